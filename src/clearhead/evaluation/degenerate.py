"""Degenerate outputs of text generation: repetition loops and untranslated copies of the source."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

MIN_COPY_WORDS = 3  # names and numbers of one or two words are often the same in both languages
MIN_COPY_CHARACTERS = 20  # the same limit for scripts without spaces
# The same 2 to 40 characters at least four times in a row, or the same character at least eight times.
LOOP = re.compile(r"(.{2,40}?)\1{3,}|(.)\2{7,}", re.DOTALL)


@dataclass(frozen=True)
class OutputCounts:
    """Numbers of degenerate outputs among the decoded ones."""

    examples: int
    loops: int
    """Outputs that contain a repetition loop where the reference contains none."""
    copies: int | None = None
    """Outputs that equal a source of some words where the reference differs from it; None: the source is not text."""

    def __str__(self) -> str:
        shown = [f"repetition loops {self.loops:,} of {self.examples:,}"]
        if self.copies is not None:
            shown.append(f"untranslated copies {self.copies:,} of {self.examples:,}")
        return "\n".join(shown)

    @property
    def summary(self) -> str:
        """The counts that are not zero, in a few words; empty if there are none."""
        counts = {("repetition loop", "repetition loops"): self.loops,
                  ("untranslated copy", "untranslated copies"): self.copies or 0}  # fmt: skip
        return ", ".join(f"{count:,} {names[count != 1]}" for names, count in counts.items() if count)

    def to_json(self) -> dict[str, int | None]:
        """Return the counts as JSON output holds them."""
        return asdict(self)


def has_loop(text: str) -> bool:
    """Return whether a unit of characters is repeated in a row, as `LOOP` defines it."""
    return LOOP.search(f" {text}") is not None  # the space makes the first word look like the others


def is_copy(output: str, source: str) -> bool:
    """Return whether an output is its source, up to white space, and the source is more than a name or a number."""
    words = source.split()
    is_long = len(words) >= MIN_COPY_WORDS or len(source) >= MIN_COPY_CHARACTERS
    return is_long and output.split() == words


def count_outputs(
    outputs: Sequence[str], references: Sequence[str], sources: Sequence[str] | None = None
) -> OutputCounts:
    """Count degenerate outputs; an output that repeats or copies as its reference does is not one."""
    loops = sum(has_loop(out) and not has_loop(ref) for out, ref in zip(outputs, references, strict=True))
    if sources is None:
        return OutputCounts(len(outputs), loops)
    copies = sum(
        is_copy(out, source) and not is_copy(ref, source)
        for out, ref, source in zip(outputs, references, sources, strict=True)
    )
    return OutputCounts(len(outputs), loops, copies)
