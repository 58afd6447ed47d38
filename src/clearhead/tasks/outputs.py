"""What a user gets of search: translations, one while it is written, and what else could stand at a place of it."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clearhead import config as configs
from clearhead.config import DecodingConfig
from clearhead.decoding import including
from clearhead.decoding.engine import Request
from clearhead.decoding.layout import Constraints
from clearhead.decoding.scoring import Hypothesis
from clearhead.errors import DecodingError
from clearhead.tasks.constraints import constraints_of, unmet
from clearhead.tasks.purposes import writer
from clearhead.tasks.task import Ready
from clearhead.tasks.translate import check_lines, translation_engine
from clearhead.tasks.writing import HALF_A_CHARACTER


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
    tokenizer, decode = model.tokenizer.target, writer(model.config.task).decode
    return [
        Translation(
            text=decode(tokenizer, hypothesis.tokens),
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
    check_lines(model, [encoded], first_line)
    asked, name = constraints_of(settings, model.tokenizer.target), f"line {first_line}"
    request = Request((*encoded, model.tokenizer.eos_id), 1, asked, name=name)
    decode = writer(model.config.task).decode
    shown = ""
    engine = translation_engine(model.network)
    if request.asked.phrases.size:  # which of two searches answers is known at the end only
        [[whole]] = including.run(engine, [request], settings)
        if text := decode(model.tokenizer.target, whole.tokens):
            yield text
        return whole
    streaming = engine.stream(request, settings)
    while True:
        try:
            text = decode(model.tokenizer.target, next(streaming))
        except StopIteration as done:
            best: Hypothesis = done.value
            if rest := decode(model.tokenizer.target, best.tokens)[len(shown) :]:
                yield rest
            return best
        if text.startswith(shown) and text != shown and not text.endswith(HALF_A_CHARACTER):
            yield text[len(shown) :]
            shown = text


def alternatives(
    model: Ready, encoded: Sequence[int], position: int, count: int, settings: DecodingConfig, first_line: int = 1
) -> list[Hypothesis]:
    """The `count` likeliest pieces at a position of the best output, each with the best output that goes on from it.

    The first is the likeliest piece there, which need not be the one that search wrote. What stands before the
    position stays as it is; the end of the output counts as a piece. What fills the limit, or leaves no room there for
    the words to include, does not go on.
    """
    check_lines(model, [encoded], first_line)
    engine, source = translation_engine(model.network), (*encoded, model.tokenizer.eos_id)
    asked = constraints_of(settings, model.tokenizer.target) or Constraints()
    request = Request(source, 1, asked, name=f"line {first_line}")
    [[best]] = including.run(engine, [request], settings)
    limit = request.longest(settings, engine.max_positions)
    last = min(len(best.tokens), limit - 1)
    if not 0 <= position <= last:
        raise DecodingError(
            f"line {first_line}: its output has {len(best.tokens)} pieces and may have {limit}; expected a position of "
            f"0 to {last}, not {position}."
        )
    kept = best.tokens[:position]
    one_more = {
        "beam": count, "groups": 1, "method": "search", "include": (), "max_length": str(position + 1),
        "min_length": min(settings.min_length, position + 1), "coverage": 0.0,
    }  # fmt: skip
    next_only = configs.override(model.config, {"decoding": {**settings.model_dump(), **one_more}}).decoding
    asked_next = replace(request, n_best=count, constraints=Constraints(kept, exclude=asked.exclude))
    [pieces] = engine.run([asked_next], next_only)
    going = [
        each for each in pieces if position < len(each.tokens) <= limit - max(asked.phrases.needed(each.tokens), 1)
    ]
    requests = [replace(request, constraints=replace(asked, prefix=each.tokens)) for each in going]
    found = {each.tokens: best for each, [best] in zip(going, including.run(engine, requests, settings), strict=True)}
    return [found.get(each.tokens, each) for each in pieces]
