"""Experiments: recipe, data, compared variants and success criterion of each section of docs/results.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.results import prepare


@dataclass(frozen=True)
class Experiment:
    """Experiment of one section of docs/results.md."""

    name: str
    title: str
    criterion: str
    """Score to be reached, or basis of the comparison."""
    prepare: Callable[[Path, Path], prepare.Files]
    scores: tuple[str, ...]
    """Dotted paths in the report of `clearhead evaluate --json`; the first is the main score."""
    seeds: tuple[int, ...] = (1, 2, 3)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    """Settings that override the recipe, by name of the variant; None removes a setting of the recipe."""
    by_length: bool = False
    """Also report BLEU by source length."""
    recipe: str = ""
    """Name of the recipe if it differs from that of the experiment."""
    start: str = ""
    """Folder next to the data sets with a checkpoint of another toolkit that is imported and fine-tuned."""

    @property
    def recipe_file(self) -> Path:
        """Return the path of the recipe."""
        return Path("recipes") / f"{self.recipe or self.name}.toml"


BLEU = ("bleu.score", "chrf.score", "exact_match")
LABELS = ("accuracy.score", "macro_f1.score")
MINILM = "all-MiniLM-L6-v2"
_RECURRENT = {"num_encoder_layers": 1, "num_decoder_layers": 1}
_FAMILIES: dict[str, dict[str, Any]] = {
    # Similar numbers of parameters; the training time is that of the recipe.
    "RNN": {"model": {"family": "rnn", "attention": "none", "model_dim": 256, **_RECURRENT}},
    "LSTM": {"model": {"family": "lstm", "attention": "none", "model_dim": 192, **_RECURRENT}},
    "LSTM with attention": {"model": {"family": "lstm", "attention": "additive", "model_dim": 192, **_RECURRENT}},
    "Transformer": {},
}
_PRETOKENISED = {"kind": "pretokenized", "joiner": "@@", "vocab_size": 20000, "min_frequency": 1}

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "multi30k-bpe", "Multi30k English-German, published BPE files", "published result of 41.02 BLEU, tokenised",
            prepare.multi30k_bpe, BLEU, seeds=(1,), variants={"": {"tokenizer": _PRETOKENISED}}, recipe="multi30k",
        ),
        Experiment(
            "multi30k", "Multi30k English-German, raw text", "30 minutes of training, at most 40",
            prepare.multi30k, BLEU, seeds=(1,), variants={"": {"training": {"minutes": 30, "steps": 0}}},
        ),
        Experiment(
            "multi30k-families", "Multi30k, four families in equal time", "BLEU overall and by source length",
            prepare.multi30k, BLEU, seeds=(1,), variants=_FAMILIES, by_length=True,
        ),
        Experiment("sst2", "SST-2, sentiment", "at least 79 % from scratch", prepare.sst2, LABELS),
        Experiment("trec", "TREC, six kinds of question", "at least 85 %", prepare.trec, LABELS),
        Experiment("sst2-minilm", "SST-2, from all-MiniLM-L6-v2", "training from scratch on the same data (above)",
              prepare.sst2, LABELS, seeds=(1,), start=MINILM),
        Experiment("trec-minilm", "TREC, from all-MiniLM-L6-v2", "training from scratch on the same data (above)",
              prepare.trec, LABELS, seeds=(1, 2), start=MINILM),
        Experiment("masakhaner", "MasakhaNER Swahili, names", "F1 of at least 70 from scratch", prepare.masakhaner,
              ("f1.score", "precision.score", "recall.score")),
        Experiment("shakespeare", "Tiny Shakespeare by characters", "below 1.65 nats per character on the last tenth",
              prepare.shakespeare, ("nats.score", "perplexity.score"), seeds=(1,)),
        Experiment("digits", "Digits of 8x8 pixels", "at least 97 %", prepare.digits, LABELS,
              variants={"patches": {},
                        "convolutional": {"model": {"family": "cnn", "num_encoder_layers": None,
                                                    "feed_forward_dim": None}},
                        "mlp": {"model": {"family": "mlp", "model_dim": None}}}),
        Experiment("scan-simple", "SCAN, simple split", "at least 99 % exact", partial(prepare.scan, "simple"),
              ("exact_match", "bleu.score"), seeds=(1,), recipe="scan"),
        Experiment("scan-length", "SCAN, length split", "none", partial(prepare.scan, "length"),
              ("exact_match", "bleu.score"), seeds=(1,), recipe="scan"),
        Experiment("scan-jump", "SCAN, jump split", "none", partial(prepare.scan, "addprim_jump"),
              ("exact_match", "bleu.score"), seeds=(1,), recipe="scan"),
    )
}  # fmt: skip
