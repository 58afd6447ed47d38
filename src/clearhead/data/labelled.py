"""Files to labelled texts: TSV (text TAB label) or JSONL ("text", "label"), each plain or gzipped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.data.corpus import MAX_CHARS, Corpus, Skips, gather
from clearhead.data.tables import Columns, read_table

COLUMNS = Columns("text", "label")


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text and what it is called."""

    text: str
    label: str
    line: int

    @property
    def parts(self) -> tuple[str, str]:
        """Text and label."""
        return self.text, self.label


def load_labelled(paths: Sequence[Path | str], max_chars: int = MAX_CHARS, minimum: int = 1) -> Corpus[Labelled]:
    """Read whole files, one after the other."""
    skips = Skips()
    return gather(read_labelled(paths, skips, max_chars), skips, paths, minimum, "labelled texts")


def read_labelled(
    paths: Sequence[Path | str], skips: Skips | None = None, max_chars: int = MAX_CHARS
) -> Iterator[Labelled]:
    """Stream the usable texts, telling `skips` of every line that is left out."""
    skips = Skips() if skips is None else skips
    for path in map(Path, paths):
        for row in read_table(path, COLUMNS):
            text, label = row.first, row.second.strip()
            reason = _fault(text, label, max_chars)
            if reason:
                skips.add(reason, path, row.line)
            else:
                yield Labelled(text, label, row.line)


def _fault(text: str, label: str, max_chars: int) -> str:
    """Why a line is of no use, or nothing."""
    if not text.strip():
        return "empty text" if label else "empty line"
    if not label:
        return "empty label"
    return f"text longer than {max_chars} characters" if len(text) > max_chars else ""
