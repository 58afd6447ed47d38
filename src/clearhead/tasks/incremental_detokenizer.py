"""Text while it is written: from tokens to what can be shown at once, and where a stop string ends it."""

from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.data.tokenizer import Tokenizer

INCOMPLETE_CHARACTER = "\ufffd"


class IncrementalDetokenizer:
    """Tokens to text that can be shown at once: only whole characters, and nothing that may begin a stop string."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stops: Sequence[str]) -> None:
        self.tokenizer, self.stops = tokenizer, stops
        self.is_stopped = False
        self._before = [*prompt]  # the space in front of a piece counts only behind another one
        self._waiting: list[int] = []
        self._held = ""

    def add(self, token: int) -> str:
        """The text that is certain with this token, if any."""
        self._waiting.append(token)
        text = self._decode()
        if not text or text.endswith(INCOMPLETE_CHARACTER):
            return ""
        self._before, self._waiting = self._waiting[-1:], []
        return self._show(text)

    def finish(self) -> str:
        """What was held back when nothing more comes."""
        shown = self._show(self._decode())
        return shown if self.is_stopped else shown + self._held

    def _decode(self) -> str:
        known = len(self.tokenizer.decode(self._before))
        return self.tokenizer.decode([*self._before, *self._waiting])[known:]

    def _show(self, text: str) -> str:
        if self.is_stopped:
            return ""
        text = self._held + text
        found = [text.index(stop) for stop in self.stops if stop in text]
        if found:
            self.is_stopped = True
            return text[: min(found)]
        held = max((_overlap(text, stop) for stop in self.stops), default=0)
        shown, self._held = text[: len(text) - held], text[len(text) - held :]
        return shown


def _overlap(text: str, stop: str) -> int:
    """How much of a stop string the text ends with, less than all of it."""
    return next(size for size in range(min(len(text), len(stop) - 1), -1, -1) if text.endswith(stop[:size]))


@dataclass(frozen=True)
class StopStrings:
    """Whether tokens that follow a prompt have written a stop string; the prompt's own text is no part of one."""

    tokenizer: Tokenizer
    prompt: tuple[int, ...]
    strings: tuple[str, ...]

    def __call__(self, tokens: Sequence[int]) -> bool:
        """Looks at the end only: whoever asks after each token has been told of what ended earlier."""
        longest = max(len(each.encode()) for each in self.strings)
        tail = [*tokens][-longest:]  # each token writes a byte or more
        before = [*self.prompt, *tokens][: -len(tail)][-1:]
        text = self.tokenizer.decode([*before, *tail])[len(self.tokenizer.decode(before)) :]
        return any(each in text for each in self.strings)
