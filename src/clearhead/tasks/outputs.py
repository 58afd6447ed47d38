"""What a user gets of search: translations, one while it is written, and what else could stand at a place of it."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.config import DecodingConfig
from clearhead.decoding import including
from clearhead.decoding.alternatives import alternatives as find_alternatives
from clearhead.decoding.engine import Request
from clearhead.decoding.scoring import Hypothesis
from clearhead.tasks.constraints import constraints_of, unmet
from clearhead.tasks.purposes import purpose
from clearhead.tasks.running import HALF_A_CHARACTER
from clearhead.tasks.searching import check_lines, translation_engine
from clearhead.tasks.task import Ready


@dataclass(frozen=True)
class Translation:
    """One translation. `score` is what translations of a sentence are ranked by: normalised log-probability."""

    text: str
    score: float
    tokens: tuple[str, ...]
    log_prob: float
    token_log_probs: tuple[float, ...]
    finish_reason: str
    unmet: tuple[str, ...] = ()
    """Words to include that are missing, words to exclude that are there; a prefix that it does not begin with."""

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "text": self.text,
            "score": self.score,
            "log_prob": self.log_prob,
            "tokens": list(self.tokens),
            "token_log_probs": list(self.token_log_probs),
            "finish_reason": self.finish_reason,
            "unmet": list(self.unmet),
        }


def translations(model: Ready, hypotheses: Sequence[Hypothesis], settings: DecodingConfig) -> list[Translation]:
    """Hypotheses as texts; of a source without any, which was empty, the empty one."""
    tokenizer, spell = model.tokenizer.target, purpose(model.config.task).spell
    return [
        Translation(
            text=spell(tokenizer, hypothesis.tokens),
            score=hypothesis.score,
            tokens=tuple(tokenizer.piece(token) for token in hypothesis.tokens),
            log_prob=hypothesis.log_prob,
            token_log_probs=hypothesis.token_log_probs,
            finish_reason=hypothesis.finish_reason,
            unmet=unmet(settings, tokenizer, tokenizer.decode_pieces(hypothesis.tokens)),
        )
        for hypothesis in hypotheses or [Hypothesis((), 0.0, 0.0, (), "end")]
    ]


def stream(
    model: Ready, encoded: Sequence[int], settings: DecodingConfig, first_line: int = 1
) -> Generator[str, None, Hypothesis]:
    """The text of the best output in parts, as soon as each is certain; joined they are the whole text."""
    tokenizer, spell = model.tokenizer.target, purpose(model.config.task).spell
    request = _request(model, encoded, settings, first_line)
    streaming = including.stream(translation_engine(model.network), request, settings)
    shown, tokens = "", list[int]()
    while True:
        try:
            tokens += next(streaming)
        except StopIteration as done:
            best: Hypothesis = done.value
            if rest := spell(tokenizer, best.tokens)[len(shown) :]:
                yield rest
            return best
        text = spell(tokenizer, tokens)
        if text.startswith(shown) and text != shown and not text.endswith(HALF_A_CHARACTER):
            yield text[len(shown) :]
            shown = text


def alternatives(
    model: Ready, encoded: Sequence[int], position: int, count: int, settings: DecodingConfig, first_line: int = 1
) -> list[Hypothesis]:
    """The `count` likeliest pieces at a position of the best output, each with the best output that goes on from it."""
    request = _request(model, encoded, settings, first_line)
    return find_alternatives(translation_engine(model.network), request, position, count, settings)


def _request(model: Ready, encoded: Sequence[int], settings: DecodingConfig, line: int) -> Request:
    """What is asked of search for one source."""
    check_lines(model, [encoded], line)
    asked = constraints_of(settings, model.tokenizer.target)
    return Request((*encoded, model.tokenizer.eos_id), 1, asked, name=f"line {line}")
