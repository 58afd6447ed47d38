"""Search for those who have ids, for every task that reads a source: requests, the engine, and their answers.

Translations from search: of hypotheses, streamed token by token, and with alternatives at a position.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace

from clearhead.config import DecodingConfig
from clearhead.data.segmentation import TARGET_TOKEN, TARGET_TOKEN_OR_TASK_PREFIX, Segmenter, SplitMode
from clearhead.data.shortlist import Shortlist
from clearhead.decoding.requests import AllowedTokens, Constraints, Hypothesis, Request
from clearhead.engines import constrained_decoding
from clearhead.engines.engine import Engine
from clearhead.errors import DecodingError
from clearhead.runtime.cancellation import Cancellation
from clearhead.tasks.incremental_detokenizer import HALF_A_CHARACTER
from clearhead.tasks.lexical_constraints import constraints_of, unmet
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import LoadedModel
from clearhead.tasks.text_codec import max_input_tokens
from clearhead.tasks.translation.result import Translation


def search_texts(
    model: LoadedModel,
    encoded: Sequence[Sequence[int]],
    n_best: int,
    decoding: DecodingConfig,
    lines: Sequence[int] | None = None,
    engine: Engine | None = None,
    shortlist: Shortlist | None = None,
    cancellation: Cancellation | None = None,
) -> list[list[Hypothesis]]:
    """Return the `n_best` hypotheses of each source, none for an empty one. Errors name a source by its line.

    With a shortlist the candidates of each output are the tokens listed for its source. Raises RequestCancelledError
    if `cancellation` is set before the search has ended.
    """
    lines = range(1, len(encoded) + 1) if lines is None else lines
    check_lines(model, encoded, lines)
    filled = [index for index, ids in enumerate(encoded) if ids]
    asked, end = constraints_of(decoding, model.tokenizer.target), model.tokenizer.eos_id
    requests = [
        Request(
            (*encoded[index], end),
            n_best,
            shortlist_tokens(asked, encoded[index], shortlist),
            name=f"line {lines[index]}",
            cancellation=cancellation,
        )
        for index in filled
    ]
    results: list[list[Hypothesis]] = [[] for _ in encoded]
    engine = engine or model.generating_engine
    for index, hypotheses in zip(filled, constrained_decoding.decode(engine, requests, decoding), strict=True):
        results[index] = hypotheses
    if cancellation is not None:
        cancellation.raise_if_cancelled()
    return results


def shortlist_tokens(
    asked: Constraints | None, source: Sequence[int], shortlist: Shortlist | None
) -> Constraints | None:
    """What is asked of an output, and the pieces of its source's shortlist."""
    if shortlist is None:
        return asked
    return replace(asked or Constraints(), shortlist=AllowedTokens(shortlist.of(source), shortlist.vocab_size))


def check_lines(model: LoadedModel, encoded: Sequence[Sequence[int]], lines: Sequence[int]) -> None:
    """Raise DecodingError if a source has more tokens than the model accepts."""
    limit = max_input_tokens(model.config) - 1  # the end token needs a position too
    for line, ids in zip(lines, encoded, strict=True):
        if len(ids) > limit:
            raise DecodingError(f"line {line} has {len(ids):,} tokens, the model accepts {limit:,}; split the line")


def translation_segmenter(model: LoadedModel, split: bool) -> Segmenter:
    """Return the segmenter of a model that translates; with `split` texts are split as the model was trained.

    A part has at most as many tokens as the model accepts, with one position for the end.
    """
    data, encode = model.config.data, get_task(model.config.task).codec.encode
    mode: SplitMode = data.split if split and data.split != "auto" else "none"
    language = data.languages[0] if data.languages else ""
    prefix = TARGET_TOKEN_OR_TASK_PREFIX if data.split == "none" else TARGET_TOKEN
    limit = max_input_tokens(model.config) - 1
    return Segmenter(mode, language, limit, lambda texts: [len(ids) for ids in encode(model.tokenizer, texts)], prefix)


def translations(model: LoadedModel, hypotheses: Sequence[Hypothesis], settings: DecodingConfig) -> list[Translation]:
    """Return hypotheses as translations; one empty translation for the source without any, which was empty."""
    tokenizer, spell = model.tokenizer.target, get_task(model.config.task).codec.detokenize
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
    model: LoadedModel, encoded: Sequence[int], settings: DecodingConfig, first_line: int = 1
) -> Generator[str, None, Hypothesis]:
    """The text of the best output in parts, as soon as each is certain; joined they are the whole text."""
    tokenizer, spell = model.tokenizer.target, get_task(model.config.task).codec.detokenize
    request = _request(model, encoded, settings, first_line)
    streaming = constrained_decoding.stream_tokens(model.generating_engine, request, settings)
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
    model: LoadedModel, encoded: Sequence[int], position: int, count: int, settings: DecodingConfig, first_line: int = 1
) -> list[Hypothesis]:
    """The `count` likeliest pieces at a position of the best output, each with the best output that goes on from it."""
    request = _request(model, encoded, settings, first_line)
    return constrained_decoding.find_alternatives(model.generating_engine, request, position, count, settings)


def _request(model: LoadedModel, encoded: Sequence[int], settings: DecodingConfig, line: int) -> Request:
    """What is asked of search for one source."""
    check_lines(model, [encoded], [line])
    asked = constraints_of(settings, model.tokenizer.target)
    return Request((*encoded, model.tokenizer.eos_id), 1, asked, name=f"line {line}")
