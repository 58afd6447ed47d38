"""What `clearhead.load` and `clearhead.train` give: one object with the verbs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead import bundle
from clearhead import config as configs
from clearhead.bundle import Manifest
from clearhead.config import Config, DecodingConfig
from clearhead.data.corpus import Pair, load_pairs
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.engine import Request, TorchEngine
from clearhead.decoding.scoring import Hypothesis
from clearhead.errors import DecodingError
from clearhead.evaluation.metrics import Report, evaluate_texts
from clearhead.inspection.alignment import WordAttention, word_attention
from clearhead.model.families import build_model
from clearhead.model.transformer import Transformer
from clearhead.model.weights import restore
from clearhead.tasks.translate import mean_nll, reference_text, scoring_tokenizer, tokenise_pairs, translation_engine
from clearhead.training.events import Silent, Watcher
from clearhead.training.run import Request as TrainingRequest
from clearhead.training.run import train as run_training

StrPath = str | Path


@dataclass(frozen=True)
class Translation:
    """One translation. `score` is what translations of a sentence are ranked by: normalised log-probability."""

    text: str
    score: float
    tokens: tuple[str, ...]
    log_prob: float
    token_log_probs: tuple[float, ...]
    finish_reason: str

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "text": self.text,
            "score": self.score,
            "log_prob": self.log_prob,
            "tokens": list(self.tokens),
            "token_log_probs": list(self.token_log_probs),
            "finish_reason": self.finish_reason,
        }


@dataclass(frozen=True)
class Model:
    """A loaded bundle: its network, its tokenizer, its settings and what is known of its making."""

    folder: Path
    config: Config
    tokenizer: Tokenizer
    network: Transformer
    manifest: Manifest

    def decoding(self, **overrides: Any) -> DecodingConfig:
        """The bundle's decoding settings with some replaced; None leaves a setting as it is."""
        given = {name: value for name, value in overrides.items() if value is not None}
        return configs.override(self.config, {"decoding": given}).decoding

    def translate(self, text: str, *, beam: int | None = None, settings: DecodingConfig | None = None) -> Translation:
        """The best translation of a sentence."""
        return self.translate_many([text], beam=beam, settings=settings)[0]

    def translate_many(
        self, texts: Sequence[str], *, beam: int | None = None, settings: DecodingConfig | None = None
    ) -> list[Translation]:
        """The best translation of each sentence, batched; each is the same as if it were alone."""
        return [best[0] for best in self.translate_n_best(texts, 1, settings or self.decoding(beam=beam))]

    def translate_n_best(
        self, texts: Sequence[str], n_best: int, settings: DecodingConfig, first_line: int = 1
    ) -> list[list[Translation]]:
        """The `n_best` translations of each text, best first. An empty text gives one empty translation.

        An error names the text by its line, counted from `first_line`.
        """
        if n_best > settings.beam:
            raise DecodingError(f"{n_best} best translations need a beam of at least {n_best}, not {settings.beam}")
        encoded = self.tokenizer.encode_batch(texts)
        for line, ids in enumerate(encoded, first_line):
            if len(ids) >= self.config.model.max_positions:
                limit = self.config.model.max_positions - 1
                raise DecodingError(f"line {line} has {len(ids):,} pieces, the model takes {limit:,}; split the line")
        filled = [index for index, ids in enumerate(encoded) if ids]
        requests = [Request((*encoded[index], self.tokenizer.eos_id), n_best) for index in filled]
        empty = Translation("", 0.0, (), 0.0, (), "end")
        results = [[empty] for _ in texts]
        for index, hypotheses in zip(filled, self._engine().run(requests, settings), strict=True):
            results[index] = [self._translation(hypothesis) for hypothesis in hypotheses]
        return results

    def attention(self, source: str, target: str) -> WordAttention:
        """Encoder-decoder attention between words while the model is made to write `target`."""
        return word_attention(self.network, self.tokenizer, source, target)

    def evaluate(self, pairs: Sequence[Pair], settings: DecodingConfig | None = None) -> Report:
        """Scores of the model's translations of these pairs, and the perplexity of their references."""
        return self.score_texts([one.text for one in self.translate_pairs(pairs, settings)], pairs)

    def translate_pairs(self, pairs: Sequence[Pair], settings: DecodingConfig | None = None) -> list[Translation]:
        """The translations of the pairs' sources."""
        return self.translate_many([pair.source for pair in pairs], settings=settings or self.config.decoding)

    def score_texts(self, texts: Sequence[str], pairs: Sequence[Pair]) -> Report:
        """Scores of given translations of these pairs, and the perplexity of the references under this model."""
        references = [reference_text(self.tokenizer, pair.target) for pair in pairs]
        store, kept = tokenise_pairs(pairs, self.tokenizer, self.config.model.max_positions)
        perplexity = None
        if len(kept) == len(pairs):
            perplexity = math.exp(mean_nll(self.network, store, self.tokenizer, 4096))
        return evaluate_texts(texts, references, tokenize=scoring_tokenizer(self.config), perplexity=perplexity)

    def _engine(self) -> TorchEngine:
        return translation_engine(self.network)

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        return Translation(
            text=self.tokenizer.decode(hypothesis.tokens),
            score=hypothesis.score,
            tokens=tuple(self.tokenizer.piece(token) for token in hypothesis.tokens),
            log_prob=hypothesis.log_prob,
            token_log_probs=hypothesis.token_log_probs,
            finish_reason=hypothesis.finish_reason,
        )


def load(folder: StrPath) -> Model:
    """The model in a bundle; every file is checked, no connection is opened."""
    found = bundle.load(Path(folder))
    config = configs.parse(found.config)
    network = build_model(config.model)
    restore(network, found.weights)
    network.eval()
    return Model(Path(folder), config, Tokenizer.from_json(found.tokenizer), network, found.manifest)


def train(
    pairs: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    valid: StrPath | Sequence[StrPath] = (),
    preset: str = "",
    minutes: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    settings: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    threads: int = 0,
    watcher: Watcher | None = None,
) -> Model:
    """Trains on sentence pairs and loads the result.

    `pairs` is one TSV or JSONL file or two line files; `settings` are nested as in a recipe, such as
    {"model": {"dropout": 0.2}}.
    """
    length = {"minutes": minutes, "epochs": epochs, "steps": steps}
    given = {name: value for name, value in length.items() if value is not None}
    request = TrainingRequest(
        pairs=_paths(pairs),
        out=Path(out),
        valid=_paths(valid),
        preset=preset,
        settings=configs.merge(settings or {}, {"training": given} if given else {}),
        overwrite=overwrite,
        threads=threads,
    )
    run_training(request, watcher or Silent())
    return load(out)


def evaluate(folder: StrPath, pairs: StrPath | Sequence[StrPath]) -> Report:
    """Scores of a bundle on a file of pairs."""
    return load(folder).evaluate(load_pairs(_paths(pairs)).pairs)


def _paths(paths: StrPath | Iterable[StrPath]) -> list[Path]:
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
