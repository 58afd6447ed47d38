"""What `clearhead.load` and `clearhead.train` give: one object with the verbs."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead import bundle
from clearhead import config as configs
from clearhead.bundle import Manifest
from clearhead.config import Config, DecodingConfig
from clearhead.config.decoding import SamplingConfig
from clearhead.data.aligned import read_aligned
from clearhead.data.pairs import Pair
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.engine import Engine
from clearhead.errors import ConfigError, DecodingError, InspectionError, TaskError
from clearhead.evaluation.metrics import Report
from clearhead.inspection import aligning, tracing
from clearhead.inspection.ablation import By, mean_outputs, parts_of, switch_off
from clearhead.inspection.alignment import WordAttention, word_attention
from clearhead.inspection.sublayers import Part
from clearhead.inspection.trace import Trace
from clearhead.interop.exporting import export
from clearhead.model.families import build_model
from clearhead.model.weights import restore
from clearhead.tasks import classify, filling, outputs, tag
from clearhead.tasks.caption import write_captions
from clearhead.tasks.constraints import constraints_of
from clearhead.tasks.embed import embed
from clearhead.tasks.engines import open_engine
from clearhead.tasks.filling import Filling
from clearhead.tasks.image import classify_pictures, read_pictures
from clearhead.tasks.labels import Classified
from clearhead.tasks.outputs import Translation, translations
from clearhead.tasks.purposes import purpose, writer
from clearhead.tasks.scoring import Scored, score_pairs
from clearhead.tasks.tagged_text import TaggedText
from clearhead.tasks.task import Report as AnyReport
from clearhead.tasks.translate import score_translations, search_texts
from clearhead.tasks.writing import Generated, write, write_all
from clearhead.training.checks import check_decoding
from clearhead.training.events import Silent, Watcher
from clearhead.training.run import Request as TrainingRequest
from clearhead.training.run import train as run_training

__all__ = ["Model", "Translation", "evaluate", "load", "train"]

StrPath = str | Path


@dataclass(frozen=True)
class Model:
    """A loaded bundle: its network, its tokenizer, its settings and what is known of its making."""

    folder: Path
    config: Config
    tokenizer: Tokenizer
    network: Any
    manifest: Manifest
    _engines: dict[tuple[str, str, bool], Engine] = field(default_factory=dict, init=False, repr=False, compare=False)

    def need(self, verb: str, *, pictures: bool = False) -> None:
        """Refuses a verb, or an input, that this model was not trained for, and says which one fits."""
        fitting = purpose(self.config.task).verb
        if verb != fitting:
            raise TaskError(
                f"{self.folder} was trained for the task {self.config.task}: it cannot {verb}. "
                f"Use clearhead {fitting} {self.folder}"
            )
        self._need_input(pictures=pictures)

    def _need_input(self, *, pictures: bool) -> None:
        """Refuses text where pictures are read, and the other way round."""
        verb = purpose(self.config.task).verb
        if pictures and not self.config.model.reads_pictures:
            raise TaskError(
                f"{self.folder} reads text, not files: give it lines on standard input, as in "
                f"clearhead {verb} {self.folder} < input.txt"
            )
        if not pictures and self.config.model.reads_pictures:
            raise TaskError(
                f"{self.folder} reads pictures, not text: name them, as in clearhead {verb} {self.folder} picture.png"
            )
        self.need_tag()

    def need_tag(self) -> None:
        """Refuses sources without a tag where the model was trained with one before each."""
        tags = self.config.data.tags
        if tags and not self.tokenizer.tag:
            raise TaskError(
                f"{self.folder} was trained with a tag before every source: say which of "
                f"{', '.join(sorted(set(tags)))} with --tag, or with_tag in Python"
            )

    def with_tag(self, tag: str) -> "Model":
        """This model with a tag, such as a language or a domain, before every source; all its verbs work."""
        tags = sorted(set(self.config.data.tags))
        if tag not in tags:
            known = f"knows the tags {', '.join(tags)}" if tags else "was trained without tags"
            raise TaskError(f"{self.folder} {known}, not {tag!r}; name one that it knows, or leave it out")
        return replace(self, tokenizer=self.tokenizer.tagged(tag))

    def decoding(self, verb: str = "", **overrides: Any) -> DecodingConfig:
        """The bundle's decoding settings with some replaced; None leaves a setting as it is.

        A setting that would change nothing for the verb, or beside the others, is refused.
        """
        given = {name: value for name, value in overrides.items() if value is not None}
        merged = configs.override(self.config, {"decoding": given}).decoding
        verb = verb or purpose(self.config.task).verb
        check_decoding(given, merged, verb, f"clearhead {verb}")
        return merged

    def _chosen(self, settings: DecodingConfig | None, verb: str = "", **given: Any) -> DecodingConfig:
        """Whole settings, or the bundle's with some replaced; both would leave one of them without effect."""
        named = [name for name, value in given.items() if value is not None]
        if settings is not None and named:
            raise ConfigError(f"expected settings, or {', '.join(named)} by name, got both; put it into the settings")
        return settings or self.decoding(verb, **given)

    def engine(self, name: str = "torch", compute_type: str = "float32", token_log_probs: bool = True) -> Engine:
        """What searches: torch, or ctranslate2 (float32 or int8), for which the bundle is converted once.

        Without `token_log_probs` the ctranslate2 engine leaves out the pass that computes them. It stays loaded.
        """
        key = (name, compute_type, token_log_probs)
        if name == "torch" or key not in self._engines:
            self._engines[key] = open_engine(self, *key)
        return self._engines[key]

    def export(self, out: StrPath, to: str, *, compute_type: str = "float32", overwrite: bool = False) -> list[str]:
        """Writes the model as another toolkit reads it: ctranslate2, onnx or huggingface; gives what was left out."""
        return export(self, Path(out), to, compute_type, overwrite)

    def translate(
        self,
        text: str,
        *,
        beam: int | None = None,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "torch",
        **decoding: Any,
    ) -> Translation:
        """The best translation of a sentence. More settings by name, such as include=["Hund"] or prefix="Der"."""
        return self.translate_many([text], beam=beam, settings=settings, engine=engine, **decoding)[0]

    def translate_many(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        settings: DecodingConfig | None = None,
        engine: Engine | str = "torch",
        **decoding: Any,
    ) -> list[Translation]:
        """The best translation of each sentence, batched; by the torch engine each is the same as if it were alone."""
        chosen = self._chosen(settings, beam=beam, **decoding)
        return [best[0] for best in self.translate_n_best(texts, 1, chosen, engine=engine)]

    def translate_n_best(
        self,
        texts: Sequence[str],
        n_best: int,
        settings: DecodingConfig,
        first_line: int = 1,
        engine: Engine | str = "torch",
    ) -> list[list[Translation]]:
        """The `n_best` translations of each text, best first. An empty text gives one empty translation.

        Samples come in the order in which they were drawn. An error names the text by its line, counted from
        `first_line`. `engine` is a name or what `engine()` gave.
        """
        self.need("translate")
        self.check_n_best(n_best, settings)
        searching = self.engine(engine) if isinstance(engine, str) else engine
        found = search_texts(self, self._encode(texts), n_best, settings, first_line, searching)
        return [translations(self, hypotheses, settings) for hypotheses in found]

    def check_n_best(self, n_best: int, settings: DecodingConfig) -> None:
        """Refuses more translations than search keeps, and constraints that cannot be met."""
        if n_best > settings.beam and settings.method == "search":
            raise DecodingError(
                f"n_best={n_best} needs a beam of at least {n_best}, not {settings.beam}; raise the beam"
            )
        constraints_of(settings, self.tokenizer.target)

    def stream_translation(
        self, text: str, *, settings: DecodingConfig | None = None, line: int = 1, **decoding: Any
    ) -> Generator[str, None, Translation]:
        """The best translation in parts, as soon as each is certain: with beam=1 and in sampling piece by piece."""
        self.need("translate")
        chosen = self._chosen(settings, **decoding)
        [encoded] = self._encode([text])
        if not encoded:
            return translations(self, [], chosen)[0]
        best = yield from outputs.stream(self, encoded, chosen, line)
        return translations(self, [best], chosen)[0]

    def alternatives(
        self,
        text: str,
        position: int,
        count: int = 5,
        *,
        settings: DecodingConfig | None = None,
        line: int = 1,
        **decoding: Any,
    ) -> list[Translation]:
        """What else could stand at a position of the best translation, counted in pieces from 0.

        The `count` likeliest pieces there, likeliest first, each with the best translation that goes on from it.
        """
        self.need("translate")
        chosen = self._chosen(settings, **decoding)
        [encoded] = self._encode([text])
        found = outputs.alternatives(self, encoded, position, count, chosen, line) if encoded else []
        return translations(self, found, chosen)

    def attention(self, source: str, target: str) -> WordAttention:
        """Encoder-decoder attention between words while the model is made to write `target`."""
        self.need("translate")
        return word_attention(self.trace(source, target))

    def trace(
        self,
        text: str,
        target: str | None = None,
        beam: int | None = None,
        *,
        tokens: Sequence[int] | None = None,
        hypothesis: int = 0,
        arithmetic: bool = False,
        settings: DecodingConfig | None = None,
    ) -> Trace:
        """Everything that happens inside while the model reads a text and writes `target`, or the best it finds.

        Of what search found, `hypothesis` is looked at; `tokens` are ids to be written exactly so, such as those of a
        node of the beam tree (`trace.path(node)`); `arithmetic` keeps queries, keys and values too.
        """
        self._need_input(pictures=False)
        given, settings = tracing.given_text(self, text), self._chosen(settings, self._looking, beam=beam)
        return tracing.trace(self, given, target, settings, tokens=tokens, hypothesis=hypothesis, arithmetic=arithmetic)

    def trace_picture(
        self,
        path: StrPath,
        target: str | None = None,
        beam: int | None = None,
        *,
        tokens: Sequence[int] | None = None,
        hypothesis: int = 0,
        arithmetic: bool = False,
        settings: DecodingConfig | None = None,
    ) -> Trace:
        """As `trace`, of a PNG: the places that attend and are attended to are its patches."""
        self._need_input(pictures=True)
        given, settings = tracing.given_picture(self, Path(path)), self._chosen(settings, self._looking, beam=beam)
        return tracing.trace(self, given, target, settings, tokens=tokens, hypothesis=hypothesis, arithmetic=arithmetic)

    @property
    def _looking(self) -> str:
        """Whoever looks inside a model that writes searches with it, also where its own verb only draws."""
        return "translate" if self.config.model.head == "text" else ""

    def with_heads_off(self, parts: Iterable[Part | str], by: By = "zero", over: Sequence[str] = ()) -> "Model":
        """This model with parts of its network switched off; all its verbs work, and the weights are the same.

        A part is a head such as `cross.1.0` (kind, layer, head, counted from 0) or a whole sub-layer such as
        `cross.1` or `decoder_feed_forward.0`. It gives nothing, or by="mean" always its mean over these texts.
        """
        if by not in ("zero", "mean") or (over and by == "zero"):
            raise InspectionError(f'expected by="zero", or by="mean" with texts, got by={by!r} and {len(over)} texts')
        chosen = parts_of(self.network, parts)
        means = mean_outputs(self, chosen, over, self.config.decoding) if by == "mean" else None
        return replace(self, network=switch_off(self.network, chosen, means))

    def align(
        self, pairs: Sequence[Pair], head: Part | None = None, path: StrPath = "pairs"
    ) -> Iterator[aligning.Alignment]:
        """The word alignment of each pair by a head's attention; an error names the line in `path`."""
        self.need("translate")
        return aligning.align(self, pairs, head or aligning.usual_head(self), path)

    def choose_head(self, gold: StrPath) -> aligning.ChosenHead:
        """The head that aligns best, measured against the gold alignments of a JSONL file."""
        self.need("translate")
        return aligning.choose_head(self, [*read_aligned(gold)], gold)

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
        self.need_tag()
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
        chosen = settings or self.config.decoding
        self.check_n_best(n_best, chosen)
        pixels_NCYX = read_pictures(self.config.model, _paths(paths))
        found = write_captions(self.network, pixels_NCYX, chosen, n_best, constraints_of(chosen, self.tokenizer))
        return [translations(self, hypotheses, chosen) for hypotheses in found]

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
        vector_D: NDArray[np.float32] = self.embed_many([text], unit=unit)[0]
        return vector_D

    def embed_many(self, texts: Sequence[str], *, unit: bool = False, first_line: int = 1) -> NDArray[np.float32]:
        """The vector of each text, by any model with a text encoder; an error names the text by its line."""
        if self.config.model.family != "encoder":
            raise TaskError(f"{self.folder} has no encoder to embed with; its family is {self.config.model.family}")
        return embed(self, texts, first_line, unit)

    def generate(self, prompt: str = "", *, sample: int = 0, **settings: Any) -> Generated:
        """Text that goes on from a prompt; settings are max_tokens, temperature, top_k, top_p, min_p, seed and stop.

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
        return writer(self.config.task).encode(self.tokenizer, texts)


def load(folder: StrPath, tag: str = "") -> Model:
    """The model in a bundle; every file is checked, no connection is opened. `tag` stands before every source."""
    found = bundle.load(Path(folder))
    config = configs.parse(found.config)
    network = build_model(config.model)
    restore(network, found.weights)
    network.eval()
    tokenizer = None if found.tokenizer.strip() == bundle.NO_TOKENIZER else Tokenizer.from_json(found.tokenizer)
    model = Model(Path(folder), config, tokenizer, network, found.manifest)  # type: ignore[arg-type]
    return model.with_tag(tag) if tag else model


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
    resume: bool = False,
    threads: int = 0,
    device: str = "auto",
    watcher: Watcher | None = None,
) -> Model:
    """Trains a model and loads the result.

    `files` is one TSV or JSONL file or two line files, or what the task reads; `task` is translate if neither it nor
    the settings say otherwise; `start` is a model to start from; `settings` are nested as in a recipe, such as
    {"model": {"dropout": 0.2}}. With `resume` the run in `out` goes on where its last checkpoint was saved, to the
    same weights as if it had never stopped; without a checkpoint it starts from the beginning.
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
        resume=resume,
        device=device,
    )
    run_training(request, watcher or Silent())
    return load(out)


def evaluate(folder: StrPath, files: StrPath | Sequence[StrPath]) -> AnyReport:
    """Scores of a bundle on test files of the kind that it was trained on."""
    return load(folder).evaluate_files(_paths(files))


def _paths(paths: StrPath | Iterable[StrPath]) -> list[Path]:
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
