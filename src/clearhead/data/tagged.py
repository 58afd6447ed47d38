"""Files to tagged sentences: CoNLL, a word and its tag a line (tab or space between), a blank line between sentences.

Lines that begin with `-DOCSTART-` or `# ` are left out. Only the first and the last column count, so that the four
columns of CoNLL-2003 can be read as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.data.corpus import Corpus, Skips, gather
from clearhead.data.lines import excerpt, read_lines, refuse_empty
from clearhead.errors import DataError

OUTSIDE = "O"


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sentence word by word, and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    line: int
    """Of its first word."""

    @property
    def parts(self) -> tuple[str, str]:
        """Words and tags."""
        return " ".join(self.words), " ".join(self.tags)


def load_tagged(paths: Sequence[Path | str], max_words: int, minimum: int = 1) -> Corpus[Tagged]:
    """Read whole files, one after the other."""
    skips = Skips()
    return gather(read_tagged(paths, skips, max_words), skips, paths, minimum, "sentences")


def read_tagged(paths: Sequence[Path | str], skips: Skips, max_words: int) -> Iterator[Tagged]:
    """Stream the sentences; longer ones than `max_words` are skipped and counted."""
    for path in map(Path, paths):
        for sentence in _read_file(path):
            if len(sentence.words) > max_words:
                skips.add(f"sentence longer than {max_words} words", path, sentence.line)
            else:
                yield sentence


def _read_file(path: Path) -> Iterator[Tagged]:
    words: list[str] = []
    tags: list[str] = []
    number = begin = 0
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith(("-DOCSTART-", "# ")):
            continue
        if line.strip():
            begin = begin if words else number
            word, tag = _parse(path, number, line)
            words.append(word)
            tags.append(tag)
        elif words:
            yield Tagged(tuple(words), tuple(tags), begin)
            words, tags = [], []
    refuse_empty(path, number)
    if words:
        yield Tagged(tuple(words), tuple(tags), begin)


def _parse(path: Path, number: int, line: str) -> tuple[str, str]:
    columns = line.split("\t") if "\t" in line else line.split(" ")
    columns = [column.strip() for column in columns if column.strip()]
    if len(columns) < 2:
        raise DataError.at(
            path, number, f"expected a word and its tag, separated by a tab or a space, got {excerpt(line)}"
        )
    word, tag = columns[0], columns[-1]
    if tag != OUTSIDE and (tag[:2] not in ("B-", "I-") or len(tag) < 3):
        problem = f"expected the tag O, or B- or I- and a type such as B-PER, got {excerpt(tag)}"
        raise DataError.at(path, number, problem + "; convert the file to BIO tags")
    return word, tag
