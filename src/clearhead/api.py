"""What `clearhead.load` and `clearhead.train` give: one object with the verbs."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead import bundle
from clearhead import config as configs
from clearhead.bundle import Manifest
from clearhead.config import Config, DecodingConfig
from clearhead.config.decoding import SamplingConfig
from clearhead.data.pairs import Pair
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.scoring import Hypothesis
from clearhead.errors import DecodingError, TaskError
from clearhead.evaluation.metrics import Report
from clearhead.inspection.alignment import WordAttention, word_attention
from clearhead.model.families import build_model
from clearhead.model.weights import restore
from clearhead.tasks import classify, filling, tag
from clearhead.tasks.caption import write_captions
from clearhead.tasks.embed import embed
from clearhead.tasks.filling import Filling
from clearhead.tasks.holes import decode_marked, encode_marked
from clearhead.tasks.image import classify_pictures, read_pictures
from clearhead.tasks.labels import Classified
from clearhead.tasks.purposes import purpose
from clearhead.tasks.scoring import Scored, score_pairs
from clearhead.tasks.tagged_text import TaggedText
from clearhead.tasks.task import Report as AnyReport
from clearhead.tasks.translate import score_translations, search_texts
from clearhead.tasks.writing import Generated, write, write_all
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
    network: Any
    manifest: Manifest

    def need(self, verb: str, *, pictures: bool = False) -> None:
        """Refuses a verb, or an input, that this model was not trained for, and says which one fits."""
        fitting = purpose(self.config.task).verb
        if verb != fitting:
            raise TaskError(
                f"{self.folder} was trained for the task {self.config.task}: it cannot {verb}. "
                f"Use clearhead {fitting} {self.folder}"
            )
        if pictures and not self.config.model.reads_pictures:
            raise TaskError(
                f"{self.folder} reads text, not files: give it lines on standard input, as in "
                f"clearhead {verb} {self.folder} < input.txt"
            )
        if not pictures and self.config.model.reads_pictures:
            raise TaskError(
                f"{self.folder} reads pictures, not text: name them, as in clearhead {verb} {self.folder} picture.png"
            )

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
        self.need("translate")
        if n_best > settings.beam:
            raise DecodingError(f"{n_best} best translations need a beam of at least {n_best}, not {settings.beam}")
        found = search_texts(self, self._encode(texts), n_best, settings, first_line)
        empty = Translation("", 0.0, (), 0.0, (), "end")
        return [[self._translation(one) for one in hypotheses] or [empty] for hypotheses in found]

    def attention(self, source: str, target: str) -> WordAttention:
        """Encoder-decoder attention between words while the model is made to write `target`."""
        self.need("translate")
        return word_attention(self.network, self.tokenizer, source, target)

    def evaluate(self, pairs: Sequence[Pair], settings: DecodingConfig | None = None) -> Report:
        """Scores of the model's translations of these pairs, and the perplexity of their references."""
        return self.score_texts([one.text for one in self.translate_pairs(pairs, settings)], pairs)

    def translate_pairs(self, pairs: Sequence[Pair], settings: DecodingConfig | None = None) -> list[Translation]:
        """The translations of the pairs' sources."""
        return self.translate_many([pair.source for pair in pairs], settings=settings or self.config.decoding)

    def score_texts(self, texts: Sequence[str], pairs: Sequence[Pair]) -> Report:
        """Scores of given translations of these pairs, and the perplexity of the references under this model."""
        return score_translations(self, texts, pairs)

    def score(
        self, pairs: Sequence[Pair], settings: DecodingConfig | None = None, path: StrPath = "pairs"
    ) -> list[Scored]:
        """How probable the model finds each pair's target, token by token; an error names the line in `path`."""
        self.need("translate")
        return score_pairs(self, pairs, settings or self.config.decoding, path)

    def evaluate_files(
        self, paths: Sequence[StrPath], settings: DecodingConfig | None = None, watcher: Watcher | None = None
    ) -> AnyReport:
        """Scores on test files of the kind that the model was trained on; the watcher hears what was left out."""
        tell = (watcher or Silent()).message
        return purpose(self.config.task).evaluate(self, _paths(paths), settings or self.config.decoding, tell)

    def classify(self, text: str) -> Classified:
        """The label of a text, with the probability of each."""
        return self.classify_many([text])[0]

    def classify_many(self, texts: Sequence[str], first_line: int = 1) -> list[Classified]:
        """The label of each text; an error names the text by its line."""
        self.need("classify")
        return classify.classify(self, texts, first_line)

    def classify_pictures(self, paths: StrPath | Sequence[StrPath]) -> list[Classified]:
        """The label of each PNG, with the probability of every label."""
        self.need("classify", pictures=True)
        return classify_pictures(self, _paths(paths))

    def caption_pictures(
        self, paths: StrPath | Sequence[StrPath], n_best: int = 1, settings: DecodingConfig | None = None
    ) -> list[list[Translation]]:
        """The `n_best` texts about each PNG, best first."""
        self.need("translate", pictures=True)
        pixels_NCYX = read_pictures(self.config.model, _paths(paths))
        found = write_captions(self.network, pixels_NCYX, settings or self.config.decoding, n_best)
        return [[self._translation(hypothesis) for hypothesis in hypotheses] for hypotheses in found]

    def tag(self, text: str) -> TaggedText:
        """The spans of a text, such as names, and the tag of each word."""
        return self.tag_many([text])[0]

    def tag_many(self, texts: Sequence[str], first_line: int = 1) -> list[TaggedText]:
        """The spans of each text; an error names the text by its line."""
        self.need("tag")
        return tag.tag(self, texts, first_line)

    def fill(self, text: str, top: int = 5, name: str = "the text") -> list[list[Filling]]:
        """For each gap of a text, written [MASK], the pieces that fit best; an error calls the text by its name."""
        self.need("fill")
        return filling.fill(self, text, top, name)

    def embed(self, text: str, *, unit: bool = False) -> NDArray[np.float32]:
        """The vector of a text: the mean of the encoder's states; with `unit` of length 1."""
        return self.embed_many([text], unit=unit)[0]

    def embed_many(self, texts: Sequence[str], *, unit: bool = False, first_line: int = 1) -> NDArray[np.float32]:
        """The vector of each text, by any model with a text encoder; an error names the text by its line."""
        if self.config.model.family != "encoder":
            raise TaskError(f"{self.folder} has no encoder to embed with; its family is {self.config.model.family}")
        return embed(self, texts, first_line, unit)

    def generate(self, prompt: str = "", *, sample: int = 0, **settings: Any) -> Generated:
        """Text that goes on from a prompt; settings are max_tokens, temperature, top_k, top_p, seed and stop.

        The same settings give the same text; `sample` tells several texts of one seed apart.
        """
        self.need("generate")
        return write_all(self, prompt, self._sampling(settings), sample)

    def stream(self, prompt: str = "", *, sample: int = 0, **settings: Any) -> Generator[str, None, Generated]:
        """As `generate`, piece by piece while it is written."""
        self.need("generate")
        return write(self, prompt, self._sampling(settings), sample)

    def _sampling(self, settings: Mapping[str, Any]) -> SamplingConfig:
        """The bundle's settings with some replaced; None leaves a setting as it is."""
        given = {name: value for name, value in settings.items() if value is not None}
        return self.decoding(sampling=given).sampling

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """A model that fills holes is given texts with sentinels in them."""
        if self.config.task == "denoise":
            return [encode_marked(self.tokenizer, text) for text in texts]
        return self.tokenizer.encode_batch(texts)

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        decode = decode_marked if self.config.task == "denoise" else Tokenizer.decode
        return Translation(
            text=decode(self.tokenizer.target, hypothesis.tokens),
            score=hypothesis.score,
            tokens=tuple(self.tokenizer.target.piece(token) for token in hypothesis.tokens),
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
    tokenizer = None if found.tokenizer.strip() == bundle.NO_TOKENIZER else Tokenizer.from_json(found.tokenizer)
    return Model(Path(folder), config, tokenizer, network, found.manifest)  # type: ignore[arg-type]


def train(
    files: StrPath | Sequence[StrPath],
    out: StrPath,
    *,
    task: str = "",
    valid: StrPath | Sequence[StrPath] = (),
    start: StrPath | None = None,
    preset: str = "",
    minutes: float | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    settings: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    threads: int = 0,
    watcher: Watcher | None = None,
) -> Model:
    """Trains a model and loads the result.

    `files` is one TSV or JSONL file or two line files, or what the task reads; `task` is translate if neither it nor
    the settings say otherwise; `start` is a model to start from; `settings` are nested as in a recipe, such as
    {"model": {"dropout": 0.2}}.
    """
    length = {"minutes": minutes, "epochs": epochs, "steps": steps}
    given = {name: value for name, value in length.items() if value is not None}
    request = TrainingRequest(
        files=_paths(files),
        out=Path(out),
        valid=_paths(valid),
        preset=preset,
        settings=configs.merge(settings or {}, {"training": given} if given else {}),
        overwrite=overwrite,
        threads=threads,
        task=task,
        start=Path(start) if start else None,
    )
    run_training(request, watcher or Silent())
    return load(out)


def evaluate(folder: StrPath, files: StrPath | Sequence[StrPath]) -> AnyReport:
    """Scores of a bundle on test files of the kind that it was trained on."""
    return load(folder).evaluate_files(_paths(files))


def _paths(paths: StrPath | Iterable[StrPath]) -> list[Path]:
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
