"""Text from a language model: prompt in, text out piece by piece, up to the end, a stop string or a limit."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from clearhead.config import Config
from clearhead.config.decoding import SamplingConfig
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding import sampling
from clearhead.errors import DecodingError
from clearhead.tasks.task import Ready

HALF_A_CHARACTER = "\ufffd"


@dataclass(frozen=True)
class Generated:
    """What a model wrote behind a prompt, and its log-probability under the model itself (temperature 1, all tokens).

    It ended at the document's end (end), before a stop string (stop) or at `max_tokens` (length). The tokens hold
    what of a stop string was written; the end token has a log-probability but is no piece.
    """

    text: str
    tokens: tuple[str, ...]
    log_prob: float
    token_log_probs: tuple[float, ...]
    finish_reason: Literal["end", "stop", "length"]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "text": self.text,
            "log_prob": self.log_prob,
            "tokens": list(self.tokens),
            "token_log_probs": list(self.token_log_probs),
            "finish_reason": self.finish_reason,
        }


class RunningText:
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
        if not text or text.endswith(HALF_A_CHARACTER):
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


def context_of(config: Config) -> int:
    """How many tokens a language model sees at once: what it was trained on, as far as it has places for them."""
    return min(config.data.max_pieces, config.model.max_positions)


def no_text(tokenizer: Tokenizer) -> list[int]:
    """What is never to be drawn: all special tokens but the end."""
    return [special for special in tokenizer.special_ids if special != tokenizer.eos_id]


def write(model: Ready, prompt: str, settings: SamplingConfig, number: int = 0) -> Generator[str, None, Generated]:
    """Streams the text that follows a prompt, and returns all about it; an empty prompt starts a document.

    Only text is written: no special token but the end is ever drawn. `number` tells samples of one seed apart.
    """
    tokenizer, context = model.tokenizer, context_of(model.config)
    encoded = tokenizer.encode(prompt).ids
    if len(encoded) >= context:
        raise DecodingError(f"the prompt has {len(encoded):,} pieces, the model takes {context - 1:,}; shorten it")
    end = tokenizer.eos_id
    running = RunningText(tokenizer, encoded, settings.stop)
    tokens: list[int] = []
    log_probs: list[float] = []
    parts: list[str] = []
    ids = [tokenizer.bos_id, *encoded] if settings.start or not encoded else encoded
    for drawn in sampling.sample(model.network, ids, settings, context, end, no_text(tokenizer), number):
        log_probs.append(drawn.log_prob)
        if drawn.token == end:
            break
        tokens.append(drawn.token)
        if text := running.add(drawn.token):
            parts.append(text)
            yield text
        if running.is_stopped:
            break
    is_ended = len(log_probs) > len(tokens)
    if text := running.finish():
        parts.append(text)
        yield text
    reason: Literal["end", "stop", "length"] = "stop" if running.is_stopped else "end" if is_ended else "length"
    pieces = tuple(tokenizer.piece(token) for token in tokens)
    return Generated("".join(parts), pieces, sum(log_probs), tuple(log_probs), reason)


def write_all(model: Ready, prompt: str, settings: SamplingConfig, number: int = 0) -> Generated:
    """The whole text that follows a prompt."""
    running = write(model, prompt, settings, number)
    while True:
        try:
            next(running)
        except StopIteration as done:
            result: Generated = done.value
            return result
