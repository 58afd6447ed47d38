"""Text from a language model: prompts in, texts that go on from them out, up to the end, a stop string or a limit."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from clearhead.config import Config, DecodingConfig, merge
from clearhead.config.decoding import SamplingConfig
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.word_indices import is_wordlike
from clearhead.decoding.grid_beam_search import LETTER
from clearhead.decoding.requests import Constraints, FinishReason, Hypothesis, Request
from clearhead.engines import constrained_decoding
from clearhead.engines.engine import Engine
from clearhead.errors import DecodingError
from clearhead.tasks.incremental_detokenizer import IncrementalText, StopStrings
from clearhead.tasks.lexical_constraints import constraints_of, unmet
from clearhead.tasks.long_texts import LongTexts
from clearhead.tasks.task import LoadedModel

DRAWING = ("temperature", "top_k", "top_p", "min_p", "seed")
"""The fields of `decoding.sampling` that say how a token is drawn; the others hold for search too."""
SEARCHING = ("beam_size", "beam_groups", "include")
"""The fields of `decoding` that only search honours."""


@dataclass(frozen=True)
class GeneratedText:
    """What a model wrote behind a prompt, and its log-probability under the model itself (temperature 1, all tokens).

    It ended at the document's end (end), before a stop string (stop), at `max_tokens` (length), or where rules allowed
    no piece more (blocked). The tokens hold what of a stop string was written; the end token has a log-probability but
    is no piece. `score` is what texts of a search are ranked by: log-probability, normalised by length.
    """

    text: str
    tokens: tuple[str, ...]
    log_prob: float
    token_log_probs: tuple[float, ...]
    finish_reason: FinishReason | Literal["skipped"]
    score: float
    unmet: tuple[str, ...] = ()
    """Words to include that are missing, words to exclude that occur."""

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


SKIPPED = GeneratedText("", (), 0.0, (), "skipped", 0.0)


def context_length(config: Config) -> int:
    """How many tokens a language model sees at once: what it was trained on, as far as it has places for them."""
    return min(config.data.max_tokens, config.model.max_positions)


def suppressed_tokens(tokenizer: Tokenizer) -> list[int]:
    """What is never to be written: all special tokens but the end."""
    return [special for special in tokenizer.special_ids if special != tokenizer.eos_id]


def by_name(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their bare names, as the decoding section has them: `stop` and so on are those of sampling."""
    drawn = {name: value for name, value in given.items() if name in SamplingConfig.model_fields}
    others = {name: value for name, value in given.items() if name not in drawn}
    return merge(others, {"sampling": drawn} if drawn else {})


def with_method(given: Mapping[str, Any]) -> dict[str, Any]:
    """The method that the given settings ask for, where they do not name it: a beam searches, a temperature draws."""
    if "method" in given:
        return dict(given)
    if any(name in given for name in SEARCHING):
        return {**given, "method": "search"}
    return {**given, "method": "sample"} if any(name in given.get("sampling", {}) for name in DRAWING) else dict(given)


def generate_texts(
    model: LoadedModel,
    prompts: Sequence[str],
    n_best: int,
    settings: DecodingConfig,
    engine: Engine,
    number: int = 0,
    first_line: int = 0,
    long_texts: LongTexts | None = None,
) -> list[list[GeneratedText]]:
    """Return the `n_best` texts that follow each prompt, best first; samples from `number` on, in order of drawing.

    With `first_line` errors name a prompt by its line. A prompt that is too long is refused, or skipped as
    `long_texts` says: it gives `n_best` empty texts.
    """
    limit, tally = context_length(model.config) - 1, long_texts or LongTexts("stop")
    requests: list[Request | None] = []
    for index, ids in enumerate(model.tokenizer.encode_batch(prompts)):
        line, name = first_line + index, f"prompt {index + 1}" if len(prompts) > 1 else "the prompt"
        if len(ids) > limit and tally.policy == "skip":
            tally.record(line, len(ids), limit)
            requests.append(None)
            continue
        requests.append(prompt_request(model, ids, settings, number, n_best, f"line {line}" if first_line else name))
    asked = [request for request in requests if request]
    found = iter(constrained_decoding.decode(engine, asked, settings))
    return [
        [_generated(model, request, each, settings) for each in next(found)] if request else [SKIPPED] * n_best
        for request in requests
    ]


def stream(
    model: LoadedModel, prompt: str, settings: DecodingConfig, number: int = 0
) -> Generator[str, None, GeneratedText]:
    """The best text that follows a prompt in parts, as soon as each is certain, and all about it.

    `number` tells samples of one seed apart. An empty prompt starts a document.
    """
    engine, tokenizer = model.generating_engine, model.tokenizer
    request = prompt_request(model, tokenizer.encode(prompt).ids, settings, number)
    running = IncrementalText(tokenizer, request.source, settings.sampling.stop)
    streaming = constrained_decoding.stream_tokens(engine, request, settings)
    while True:
        try:
            tokens = next(streaming)
        except StopIteration as done:
            best: Hypothesis = done.value
            break
        for token in tokens:
            if text := running.add(token):
                yield text
    if text := running.finish():
        yield text
    return _generated(model, request, best, settings)


def alternatives(
    model: LoadedModel, prompt: str, position: int, count: int, settings: DecodingConfig
) -> list[GeneratedText]:
    """The `count` likeliest pieces at a position of the best text, each with the best text that goes on from it."""
    engine, tokenizer = model.generating_engine, model.tokenizer
    request = prompt_request(model, tokenizer.encode(prompt).ids, settings)
    found = constrained_decoding.find_alternatives(engine, request, position, count, settings)
    return [_generated(model, request, each, settings) for each in found]


def prompt_request(
    model: LoadedModel,
    ids: Sequence[int],
    settings: DecodingConfig,
    number: int = 0,
    n_best: int = 1,
    name: str = "the prompt",
) -> Request:
    """What is asked of search behind a prompt. Only text is written: no special token but the end."""
    tokenizer, context, drawn = model.tokenizer, context_length(model.config), settings.sampling
    if len(ids) >= context:
        raise DecodingError(f"{name} has {len(ids):,} tokens, the model accepts {context - 1:,}; shorten it")
    prompt = tuple(ids) if ids and not drawn.add_start_token else (tokenizer.bos_id, *ids)
    asked = constraints_of(settings, tokenizer) or Constraints()
    include = asked.include
    if include.num_tokens and any(map(is_wordlike, tokenizer.decode(ids)[-1:])):
        include = replace(include, lead=(LETTER,))
    asked = replace(
        asked,
        prompt=prompt,
        include=include,
        is_stopped=StopStrings(tokenizer, tuple(ids), drawn.stop) if drawn.stop else None,
        first_sample=number,
    )
    return Request(prompt, n_best, asked, limit=drawn.max_tokens, name=name)


def _generated(model: LoadedModel, request: Request, found: Hypothesis, settings: DecodingConfig) -> GeneratedText:
    """A hypothesis as text, cut before a stop string."""
    tokenizer = model.tokenizer
    running = IncrementalText(tokenizer, request.source, settings.sampling.stop)
    text = "".join([*map(running.add, found.tokens), running.finish()])
    return GeneratedText(
        text=text,
        tokens=tuple(tokenizer.piece(token) for token in found.tokens),
        log_prob=found.log_prob,
        token_log_probs=found.token_log_probs,
        finish_reason=found.finish_reason,
        score=found.score,
        unmet=unmet(settings, tokenizer, text, tokenizer.decode(request.source)),
    )
