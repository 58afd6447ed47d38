"""A loaded bundle, and what all verbs ask of it: its settings, its engines, and whether a verb fits."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from clearhead import config as configs
from clearhead.bundle import Manifest
from clearhead.config import Config, DecodingConfig
from clearhead.data.shortlist import Shortlist
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.engine import Engine
from clearhead.errors import ConfigError, DecodingError, TaskError
from clearhead.interop.exporting import export
from clearhead.tasks.constraints import constraints_of
from clearhead.tasks.engines import open_engine
from clearhead.tasks.purposes import purpose
from clearhead.training.checks import check_decoding

StrPath = str | Path


@dataclass(frozen=True)
class Loaded:
    """A loaded bundle: its network, its tokenizer, its settings and what is known of its making."""

    folder: Path
    config: Config
    tokenizer: Tokenizer
    network: Any
    manifest: Manifest
    _engines: dict[tuple[str, str, bool, str], Engine] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

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
        if pictures and not self.config.model.reads_images:
            raise TaskError(
                f"{self.folder} reads text, not files: give it lines on standard input, as in "
                f"clearhead {verb} {self.folder} < input.txt"
            )
        if not pictures and self.config.model.reads_images:
            raise TaskError(
                f"{self.folder} reads pictures, not text: name them, as in clearhead {verb} {self.folder} picture.png"
            )
        self.need_tag()

    def need_tag(self) -> None:
        """Refuses sources without a tag where the model was trained with one before each."""
        tags = self.config.data.source_tags
        if tags and not self.tokenizer.tag:
            raise TaskError(
                f"{self.folder} was trained with a tag before every source: say which of "
                f"{', '.join(sorted(set(tags)))} with --tag, or with_tag in Python"
            )

    def with_tag(self, tag: str) -> Self:
        """This model with a tag, such as a language or a domain, before every source; all its verbs work."""
        tags = sorted(set(self.config.data.source_tags))
        if tag not in tags:
            known = f"knows the tags {', '.join(tags)}" if tags else "was trained without tags"
            raise TaskError(f"{self.folder} {known}, not {tag!r}; name one that it knows, or leave it out")
        return replace(self, tokenizer=self.tokenizer.tagged(tag))

    def with_table(self, settings: Mapping[str, Any]) -> Self:
        """Return this model with other settings for reading tables, such as {"columns": "text=2,label=1"}."""
        if not settings:
            return self
        if "columns" not in purpose(self.config.task).data_fields:
            raise ConfigError(f"{self.folder} was trained for the task {self.config.task}, which reads no tables")
        return replace(self, config=configs.override(self.config, {"data": settings}))

    def decoding(self, verb: str = "", **overrides: Any) -> DecodingConfig:
        """The bundle's decoding settings with some replaced; None leaves a setting as it is.

        A setting that would change nothing for the verb, or beside the others, is refused.
        """
        given = {name: value for name, value in overrides.items() if value is not None}
        merged = configs.override_decoding(self.config, given)
        verb = verb or purpose(self.config.task).verb
        check_decoding(given, merged, verb, f"clearhead {verb}")
        return merged

    def _chosen(
        self, settings: DecodingConfig | None, by_name: Callable[..., DecodingConfig], **given: Any
    ) -> DecodingConfig:
        """Whole settings, or the bundle's with some replaced; both would leave one of them without effect."""
        named = [name for name, value in given.items() if value is not None]
        if settings is not None and named:
            raise ConfigError(f"expected settings, or {', '.join(named)} by name, got both; put it into the settings")
        return settings or by_name(**given)

    def engine(
        self,
        name: str = "torch",
        compute_type: str = "float32",
        token_log_probs: bool = True,
        shortlist: Shortlist | None = None,
    ) -> Engine:
        """What searches: torch, or ctranslate2 (float32 or int8), for which the bundle is converted once.

        Without `token_log_probs` the ctranslate2 engine leaves out the pass that computes them. It stays loaded, and
        has its shortlist for good, which is given to the torch engine with each text.
        """
        key = (name, compute_type, token_log_probs, "" if shortlist is None else shortlist.digest)
        if name == "torch" or key not in self._engines:
            self._engines[key] = open_engine(self, name, compute_type, token_log_probs, shortlist)
        return self._engines[key]

    def export(self, out: StrPath, to: str, *, compute_type: str = "float32", overwrite: bool = False) -> list[str]:
        """Writes the model as another toolkit reads it: ctranslate2, onnx or huggingface; gives what was left out."""
        return export(self, Path(out), to, compute_type, overwrite)

    def check_n_best(self, n_best: int, settings: DecodingConfig) -> None:
        """Refuses more translations than search keeps, and constraints that cannot be met."""
        if n_best > settings.beam_size and settings.method == "search":
            raise DecodingError(
                f"n_best={n_best} needs a beam of at least {n_best}, not {settings.beam_size}; raise the beam"
            )
        constraints_of(settings, self.tokenizer.target)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return purpose(self.config.task).pieces(self.tokenizer, texts)


def paths_of(paths: StrPath | Iterable[StrPath]) -> list[Path]:
    """One path, or several."""
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
