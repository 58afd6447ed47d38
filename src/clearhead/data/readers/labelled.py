"""Labelled texts from tables (see `tables`) with the columns "text" and "label"."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.data.readers.lines import excerpt
from clearhead.data.readers.tables import ColumnNames, Row, TableOptions, has_names, read_table
from clearhead.data.records import MAX_CHARS, Corpus, SkipReport, build_corpus
from clearhead.errors import DataError

COLUMNS = ColumnNames("text", "label")
MIN_RECORDS = 10  # fewer have no statistics
NAME = re.compile(r"[^\W\d][\w.-]*")


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text and its label."""

    text: str
    label: str
    line: int

    @property
    def parts(self) -> tuple[str, str]:
        """Text and label."""
        return self.text, self.label


def load_labelled(
    paths: Sequence[Path | str], max_chars: int = MAX_CHARS, minimum: int = 1, table: TableOptions | None = None
) -> Corpus[LabelledText]:
    """Read whole files, one after the other."""
    skips = SkipReport()
    return build_corpus(read_labelled(paths, skips, max_chars, table), skips, paths, minimum, "labelled texts")


def read_labelled(
    paths: Sequence[Path | str],
    skips: SkipReport | None = None,
    max_chars: int = MAX_CHARS,
    table: TableOptions | None = None,
) -> Iterator[LabelledText]:
    """Iterate over the usable texts; `skips` receives every line that is left out.

    Each file is read as a whole, because a header with unknown names and swapped columns show in its statistics only.
    """
    skips, table = skips or SkipReport(), table or TableOptions()
    for path in map(Path, paths):
        rows = list(read_table(path, COLUMNS, table, skips.note))
        if table.header == "auto" and not table.is_named and not has_names(path) and _starts_with_header(rows):
            first = rows.pop(0)
            names = f"{first.first.strip()}, {first.second.strip()}"
            skips.note(f"{path}: line 1 is taken for a header ({names}); set data.header=no to read it as a record")
        if not table.columns:
            _refuse_swapped(path, rows)
        for row in rows:
            text, label = row.first, row.second.strip()
            reason = _fault(text, label, max_chars)
            if reason:
                skips.add(reason, path, row.line)
            else:
                yield LabelledText(text, label, row.line)


def is_number(text: str) -> bool:
    """Return whether a label is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _fault(text: str, label: str, max_chars: int) -> str:
    """Return why a record is not usable, or nothing."""
    if not text.strip():
        return "empty text" if label else "empty line"
    if not label:
        return "empty label"
    return f"text longer than {max_chars} characters" if len(text) > max_chars else ""


def _starts_with_header(rows: Sequence[Row]) -> bool:
    """Return whether the first record is a header: two single words above texts of several words, with a label that
    no other record has although labels repeat, or although all others are numbers."""
    if len(rows) < MIN_RECORDS or rows[0].line != 1:
        return False
    text, label = rows[0].first.strip().strip('"'), rows[0].second.strip().strip('"')
    others = {row.second.strip() for row in rows[1:]}
    if not (NAME.fullmatch(text) and NAME.fullmatch(label)) or label in others:
        return False
    has_sentences = 2 * sum(len(row.first.split()) > 1 for row in rows) > len(rows)
    return has_sentences and (2 * len(others) <= len(rows) or all(map(is_number, others)))


def _refuse_swapped(path: Path, rows: Sequence[Row]) -> None:
    """Raise an error if the first column looks like labels and the second like texts."""
    texts, labels = {row.first.strip() for row in rows}, {row.second.strip() for row in rows}
    if len(rows) < MIN_RECORDS or 2 * len(labels) <= len(rows) or 2 * len(texts) > len(labels):
        return
    if sum(map(len, labels)) * len(texts) <= sum(map(len, texts)) * len(labels):  # the mean lengths
        return
    example = ", ".join(excerpt(text) for text in sorted(texts)[:3])
    raise DataError(
        f"{path}: expected the text before the label, found {len(texts):,} different values as text (such as "
        f"{example}) and {len(labels):,} longer ones as label, in {len(rows):,} records: the columns look swapped; use "
        "--columns text=2,label=1, or --columns text=1,label=2 if they are not"
    )
