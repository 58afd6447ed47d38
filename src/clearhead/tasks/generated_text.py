"""Texts from generated tokens: the results of models that generate text, and detokenization token by token."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, Self

from clearhead.config import DecodingConfig
from clearhead.data.segmentation import SegmentedText
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.penalties import normalized_score
from clearhead.decoding.requests import FinishReason, Hypothesis
from clearhead.json_format import INLINE, OMIT_IF_EMPTY, JsonResult

INCOMPLETE_CHARACTER = "\ufffd"


@dataclass(frozen=True)
class GeneratedText(JsonResult):
    """A generated text with its probability under the model (temperature 1, all tokens)."""

    text: str
    """The text, without a stop string that ended it."""
    score: float
    """Length-normalized log-probability, by which beam search ranks hypotheses."""
    log_prob: float
    tokens: tuple[str, ...]
    """The generated tokens without the end token; those of a stop string are included."""
    token_log_probs: tuple[float, ...]
    """Log-probability of each token, and of the end token if it was generated."""
    finish_reason: FinishReason | Literal["skipped"]
    """end (of the text or document), stop (string), length (limit), blocked (the rules allowed no further token), or
    skipped (the input has more tokens than the model accepts)."""
    unmet_constraints: tuple[str, ...] = ()
    """Required words that are missing, excluded words that occur, and a prefix that the text does not begin with."""

    @classmethod
    def from_hypothesis(
        cls, hypothesis: Hypothesis, text: str, tokenizer: Tokenizer, unmet_constraints: tuple[str, ...] = ()
    ) -> Self:
        """Return the result for a hypothesis whose tokens were decoded to `text`."""
        return cls(
            text,
            hypothesis.score,
            hypothesis.log_prob,
            tuple(tokenizer.token(token) for token in hypothesis.tokens),
            hypothesis.token_log_probs,
            hypothesis.finish_reason,
            unmet_constraints,
        )

    @classmethod
    def skipped(cls) -> Self:
        """Return the result of an input that was skipped because it is too long."""
        return cls("", 0.0, 0.0, (), (), "skipped")


@dataclass(frozen=True)
class Translation(GeneratedText):
    """A translation, a caption or a denoised text."""

    parts: tuple["TranslatedPart", ...] = field(default=(), metadata=OMIT_IF_EMPTY)
    """The parts of a text that was split into several; log-probabilities are summed over them."""


@dataclass(frozen=True)
class TranslatedPart(JsonResult):
    """One part of a text, such as a sentence, and its translation."""

    source: str
    translation: Translation = field(metadata=INLINE)


def join_translations(
    segmented: SegmentedText, parts: Sequence[Translation], settings: DecodingConfig, text: str | None = None
) -> Translation:
    """Return the translation of a text from the translations of its parts; `text` replaces their joined texts.

    The score is normalized as that of a single hypothesis with the tokens of all parts.
    """
    if len(parts) == 1:
        return parts[0]
    log_prob = sum(part.log_prob for part in parts)
    length = sum(len(part.tokens) + (part.finish_reason == "end") for part in parts)
    return Translation(
        text=segmented.join([part.text for part in parts]) if text is None else text,
        score=normalized_score(log_prob, length, settings) if length else 0.0,
        log_prob=log_prob,
        tokens=tuple(chain.from_iterable(part.tokens for part in parts)),
        token_log_probs=tuple(chain.from_iterable(part.token_log_probs for part in parts)),
        finish_reason=next((part.finish_reason for part in parts if part.finish_reason != "end"), "end"),
        unmet_constraints=tuple(dict.fromkeys(chain.from_iterable(part.unmet_constraints for part in parts))),
        parts=tuple(map(TranslatedPart, segmented.parts, parts)),
    )


class IncrementalDetokenizer:
    """Detokenizer that returns text as soon as later tokens cannot change it.

    It withholds incomplete characters and text that may be the beginning of a stop string.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stops: Sequence[str]) -> None:
        self.tokenizer, self.stops = tokenizer, stops
        self.is_stopped = False
        self._context = [*prompt]  # the space before a token is decoded only after another token
        self._pending: list[int] = []
        self._withheld = ""

    def add(self, token: int) -> str:
        """Add a token and return the text that later tokens cannot change any more."""
        self._pending.append(token)
        text = self._decode()
        if not text or text.endswith(INCOMPLETE_CHARACTER):
            return ""
        self._context, self._pending = self._pending[-1:], []
        return self._release(text)

    def finish(self) -> str:
        """Return the withheld text at the end of generation."""
        text = self._release(self._decode())
        return text if self.is_stopped else text + self._withheld

    def _decode(self) -> str:
        context_length = len(self.tokenizer.decode(self._context))
        return self.tokenizer.decode([*self._context, *self._pending])[context_length:]

    def _release(self, text: str) -> str:
        """Return the withheld text and `text` without an ending that may begin a stop string, which is withheld."""
        if self.is_stopped:
            return ""
        text = self._withheld + text
        stop_starts = [text.index(stop) for stop in self.stops if stop in text]
        if stop_starts:
            self.is_stopped = True
            return text[: min(stop_starts)]
        length = len(text) - max((_overlap(text, stop) for stop in self.stops), default=0)
        self._withheld = text[length:]
        return text[:length]


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest proper prefix of a stop string that the text ends with."""
    return next(size for size in range(min(len(text), len(stop) - 1), -1, -1) if text.endswith(stop[:size]))


@dataclass(frozen=True)
class StopStrings:
    """Predicate that is true if the text generated after a prompt contains a stop string.

    The text of the prompt itself is not searched.
    """

    tokenizer: Tokenizer
    prompt: tuple[int, ...]
    strings: tuple[str, ...]

    def __call__(self, tokens: Sequence[int]) -> bool:
        """Return whether the last of these tokens completed a stop string; call this after each token."""
        longest = max(len(string.encode()) for string in self.strings)
        tail = [*tokens][-longest:]  # sufficient, because each token has at least one byte
        context = [*self.prompt, *tokens][: -len(tail)][-1:]
        text = self.tokenizer.decode([*context, *tail])[len(self.tokenizer.decode(context)) :]
        return any(string in text for string in self.strings)
