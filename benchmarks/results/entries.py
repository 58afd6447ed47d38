"""What is run: a recipe, its data, the variants that are compared, and the bar that it is held to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.results import prepare


@dataclass(frozen=True)
class Entry:
    """One section of docs/results.md."""

    name: str
    title: str
    bar: str
    """What was to be reached, or what it is held against."""
    prepare: Callable[[Path, Path], prepare.Files]
    scores: tuple[str, ...]
    """Paths into the report of `clearhead evaluate --json`; the first one is the score."""
    seeds: tuple[int, ...] = (1, 2, 3)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    """Settings on top of the recipe, by name; None takes a setting of the recipe away."""
    by_length: bool = False
    """Also BLEU by source length."""
    recipe: str = ""
    """File in recipes/ without its suffix, if not named as the entry."""
    start: str = ""
    """Folder beside the data sets with a checkpoint of another toolkit, which is imported and training starts from."""

    @property
    def recipe_file(self) -> Path:
        """The recipe."""
        return Path("recipes") / f"{self.recipe or self.name}.toml"


BLEU = ("bleu.score", "chrf.score", "exact_match")
LABELS = ("accuracy.score", "macro_f1.score")
MINILM = "all-MiniLM-L6-v2"
_RECURRENT = {"num_encoder_layers": 1, "num_decoder_layers": 1}
_FAMILIES: dict[str, dict[str, Any]] = {
    # About the same number of parameters each; the time is the recipe's.
    "RNN": {"model": {"family": "rnn", "attention": "none", "model_dim": 256, **_RECURRENT}},
    "LSTM": {"model": {"family": "lstm", "attention": "none", "model_dim": 192, **_RECURRENT}},
    "LSTM with attention": {"model": {"family": "lstm", "attention": "additive", "model_dim": 192, **_RECURRENT}},
    "Transformer": {},
}
_PRETOKENISED = {"kind": "pretokenized", "joiner": "@@", "vocab_size": 20000, "min_frequency": 1}

ENTRIES = {
    entry.name: entry
    for entry in (
        Entry(
            "multi30k-bpe", "Multi30k English-German, published BPE files", "published: 41.02 BLEU, tokenised",
            prepare.multi30k_bpe, BLEU, seeds=(1,), variants={"": {"tokenizer": _PRETOKENISED}}, recipe="multi30k",
        ),
        Entry(
            "multi30k", "Multi30k English-German, raw text", "thirty minutes of training; at most 40 are allowed",
            prepare.multi30k, BLEU, seeds=(1,), variants={"": {"training": {"minutes": 30, "steps": 0}}},
        ),
        Entry(
            "multi30k-families", "Multi30k, four families in equal time", "BLEU overall and by source length",
            prepare.multi30k, BLEU, seeds=(1,), variants=_FAMILIES, by_length=True,
        ),
        Entry("sst2", "SST-2, sentiment", "at least 79 % from scratch", prepare.sst2, LABELS),
        Entry("trec", "TREC, six kinds of question", "at least 85 %", prepare.trec, LABELS),
        Entry("sst2-minilm", "SST-2, from all-MiniLM-L6-v2", "the same data from scratch, above", prepare.sst2, LABELS,
              seeds=(1,), start=MINILM),
        Entry("trec-minilm", "TREC, from all-MiniLM-L6-v2", "the same data from scratch, above", prepare.trec, LABELS,
              seeds=(1, 2), start=MINILM),
        Entry("masakhaner", "MasakhaNER Swahili, names", "F1 of at least 70 from scratch", prepare.masakhaner,
              ("f1.score", "precision.score", "recall.score")),
        Entry("shakespeare", "Tiny Shakespeare by characters", "below 1.65 nats a character on the last tenth",
              prepare.shakespeare, ("nats.score", "perplexity.score"), seeds=(1,)),
        Entry("digits", "Digits of 8x8 pixels", "at least 97 %", prepare.digits, LABELS,
              variants={"patches": {},
                        "convolutional": {"model": {"family": "cnn", "num_encoder_layers": None,
                                                    "feed_forward_dim": None}},
                        "mlp": {"model": {"family": "mlp", "model_dim": None}}}),
        Entry("scan-simple", "SCAN, simple split", "at least 99 % exact", partial(prepare.scan, "simple"),
              ("exact_match", "bleu.score"), seeds=(1,), recipe="scan"),
        Entry("scan-length", "SCAN, length split", "reported as it is", partial(prepare.scan, "length"),
              ("exact_match", "bleu.score"), seeds=(1,), recipe="scan"),
        Entry("scan-jump", "SCAN, jump split", "reported as it is", partial(prepare.scan, "addprim_jump"),
              ("exact_match", "bleu.score"), seeds=(1,), recipe="scan"),
    )
}  # fmt: skip
