"""Translation of texts: search, streaming, alternatives at a position, shortlists and evaluation.

Denoising models use the same search.
"""

import sys
from collections.abc import Generator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.config import Config, DecodingConfig
from clearhead.data.readers.pairs import Pair, load_pairs
from clearhead.data.readers.tables import TableOptions
from clearhead.data.segmentation import TARGET_TOKEN, TARGET_TOKEN_OR_TASK_PREFIX, SegmentedText, Segmenter, SplitMode
from clearhead.data.shortlist import CANDIDATES_PER_TOKEN, NUM_FREQUENT, Shortlist, make_shortlist
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.requests import AllowedTokens, Constraints, Hypothesis, Request
from clearhead.engines import constrained_decoding
from clearhead.engines.engine import Engine
from clearhead.errors import DecodingError
from clearhead.evaluation.perplexity import perplexity
from clearhead.runtime.cancellation import Cancellation
from clearhead.tasks.generated_text import INCOMPLETE_CHARACTER, Translation, join_translations
from clearhead.tasks.lexical_constraints import find_unmet_constraints, resolve_constraints
from clearhead.tasks.scoring import mean_target_nll
from clearhead.tasks.task import LoadedModel, Log, usable_records
from clearhead.tasks.text_codec import TextCodec, max_input_tokens

if TYPE_CHECKING:
    from clearhead.evaluation.metrics import TranslationReport

CODEC = TextCodec()


def translation_segmenter(model: LoadedModel, split: bool) -> Segmenter:
    """Return the segmenter of a model that translates; with `split`, texts are split into parts as in training.

    A part has at most as many tokens as the model accepts, minus one position for the end token.
    """
    data, encode = model.config.data, model.task.codec.encode
    mode: SplitMode = data.split if split and data.split != "auto" else "none"
    language = data.languages[0] if data.languages else ""
    prefix = TARGET_TOKEN_OR_TASK_PREFIX if data.split == "none" else TARGET_TOKEN
    limit = max_input_tokens(model.config) - 1
    return Segmenter(mode, language, limit, lambda texts: [len(ids) for ids in encode(model.tokenizer, texts)], prefix)


def translate_segmented(
    model: LoadedModel,
    texts: Sequence[SegmentedText | None],
    n_best: int,
    settings: DecodingConfig,
    first_line: int = 1,
    engine: Engine | None = None,
    shortlist: Shortlist | None = None,
    cancellation: Cancellation | None = None,
) -> list[list[Translation]]:
    """Return the `n_best` translations of each text.

    A text with several parts has a single translation, joined from the best translation of each part. A skipped text
    (None) has one translation with finish reason "skipped", and an empty text one empty translation.
    """
    parts = [(line, part) for line, text in enumerate(texts, first_line) if text for part in text.parts]
    encoded = model.task.codec.encode(model.tokenizer, [part for _, part in parts])
    lines = [line for line, _ in parts]
    part_hypotheses = iter(search_texts(model, encoded, n_best, settings, lines, engine, shortlist, cancellation))
    results: list[list[Translation]] = []
    for text in texts:
        if text is None:
            results.append([Translation.skipped()])
        elif len(text.parts) > 1:
            best = [to_translations(model, next(part_hypotheses), settings)[0] for _ in text.parts]
            results.append([join_translations(text, best, settings)])
        else:
            results.append(to_translations(model, next(part_hypotheses) if text.parts else [], settings))
    return results


def search_texts(
    model: LoadedModel,
    encoded: Sequence[Sequence[int]],
    n_best: int,
    settings: DecodingConfig,
    lines: Sequence[int] | None = None,
    engine: Engine | None = None,
    shortlist: Shortlist | None = None,
    cancellation: Cancellation | None = None,
) -> list[list[Hypothesis]]:
    """Return the `n_best` hypotheses of each source, none for an empty source. Errors name a source by its line.

    With a shortlist, outputs consist of the tokens that it lists for their source. Raise RequestCancelledError if
    `cancellation` is set before the search has ended.
    """
    lines = range(1, len(encoded) + 1) if lines is None else lines
    constraints = resolve_constraints(settings, model.tokenizer.target)
    requests = [
        replace(
            _request(model, ids, add_shortlist(constraints, ids, shortlist), line),
            n_best=n_best,
            cancellation=cancellation,
        )
        for ids, line in zip(encoded, lines, strict=True)
        if ids
    ]
    answers = iter(constrained_decoding.decode(engine or model.generating_engine, requests, settings))
    results = [next(answers) if ids else [] for ids in encoded]
    if cancellation is not None:
        cancellation.raise_if_cancelled()
    return results


def add_shortlist(
    constraints: Constraints | None, source: Sequence[int], shortlist: Shortlist | None
) -> Constraints | None:
    """Return the constraints with the target tokens that a shortlist allows for this source."""
    if shortlist is None:
        return constraints
    return replace(
        constraints or Constraints(), shortlist=AllowedTokens(shortlist.allowed_targets(source), shortlist.vocab_size)
    )


def _request(model: LoadedModel, ids: Sequence[int], constraints: Constraints | None, line: int) -> Request:
    """Return the request of a source; raise DecodingError if it has more tokens than the model accepts."""
    limit = max_input_tokens(model.config) - 1  # the end token needs a position too
    if len(ids) > limit:
        raise DecodingError(f"line {line} has {len(ids):,} tokens, the model accepts {limit:,}; split the line")
    return Request((*ids, model.tokenizer.eos_id), constraints=constraints, name=f"line {line}")


def to_translations(
    model: LoadedModel, hypotheses: Sequence[Hypothesis], settings: DecodingConfig
) -> list[Translation]:
    """Return hypotheses as translations; one empty translation for an empty source, which has no hypotheses."""
    tokenizer, detokenize = model.tokenizer.target, model.task.codec.detokenize
    return [
        Translation.from_hypothesis(
            hypothesis,
            detokenize(tokenizer, hypothesis.tokens),
            tokenizer,
            find_unmet_constraints(settings, tokenizer, tokenizer.decode_tokens(hypothesis.tokens))
            if settings.has_constraints
            else (),
        )
        for hypothesis in hypotheses or [Hypothesis((), 0.0, 0.0, (), "end")]
    ]


def stream(
    model: LoadedModel, encoded: Sequence[int], settings: DecodingConfig, line: int = 1
) -> Generator[str, None, Hypothesis]:
    """Yield the text of the best output in parts as soon as each is final; return the hypothesis."""
    tokenizer, detokenize = model.tokenizer.target, model.task.codec.detokenize
    request = _request(model, encoded, resolve_constraints(settings, tokenizer), line)
    search = constrained_decoding.stream_tokens(model.generating_engine, request, settings)
    yielded, tokens = "", list[int]()
    while True:
        try:
            tokens += next(search)
        except StopIteration as stop:
            best: Hypothesis = stop.value
            if rest := detokenize(tokenizer, best.tokens)[len(yielded) :]:
                yield rest
            return best
        text = detokenize(tokenizer, tokens)
        if text.startswith(yielded) and text != yielded and not text.endswith(INCOMPLETE_CHARACTER):
            yield text[len(yielded) :]
            yielded = text


def alternatives(
    model: LoadedModel, encoded: Sequence[int], position: int, count: int, settings: DecodingConfig, line: int = 1
) -> list[Hypothesis]:
    """Return the `count` most probable tokens at a position of the best output, each with its best continuation."""
    request = _request(model, encoded, resolve_constraints(settings, model.tokenizer.target), line)
    return constrained_decoding.find_alternatives(model.generating_engine, request, position, count, settings)


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, log: Log) -> "TranslationReport":
    """Return BLEU, chrF, exact match and perplexity."""
    pairs = usable_records(load_pairs(paths, sys.maxsize, table=TableOptions.from_config(model.config.data)), log)
    report = score_translations(model, translate_unsplit(model, [pair.source for pair in pairs], decoding), pairs)
    if report.perplexity is None:
        log("perplexity is omitted: some pairs have more tokens than the model accepts")
    return report


def translate_unsplit(model: LoadedModel, texts: Sequence[str], decoding: DecodingConfig) -> list[str]:
    """Return the best translation of each text without splitting it; an empty text remains empty."""
    results = search_texts(model, model.tokenizer.encode_batch(texts), 1, decoding)
    return [model.tokenizer.target.decode(hypotheses[0].tokens) if hypotheses else "" for hypotheses in results]


def score_translations(model: LoadedModel, texts: Sequence[str], pairs: Sequence[Pair]) -> "TranslationReport":
    """Return the scores of given translations, and the perplexity of the references under the model."""
    from clearhead.data.corpus.encoding import EncodingSettings, encode_pairs
    from clearhead.evaluation.metrics import evaluate_texts  # imports sacrebleu, which is not needed to translate

    references = [reference_text(model.tokenizer, pair.target) for pair in pairs]
    block, encoded = encode_pairs(pairs, model.tokenizer, EncodingSettings(model.config.model.max_positions))
    reference_perplexity = None
    if len(encoded) == len(pairs):
        reference_perplexity = perplexity(mean_target_nll(model.scoring_engine, block.pair_ids, model.tokenizer.eos_id))
    return evaluate_texts(
        texts,
        references,
        tokenize=scoring_tokenizer(model.config),
        perplexity=reference_perplexity,
        sources=[pair.source for pair in pairs],
    )


def reference_text(tokenizer: Tokenizer, target: str) -> str:
    """Return a reference for scoring: subwords that are marked by a joiner such as @@ are joined to words."""
    joiner = tokenizer.config.joiner
    return target.replace(f"{joiner} ", "") if joiner else target


def scoring_tokenizer(config: Config) -> str:
    """Return the name of sacreBLEU's word tokenizer: "none" for pretokenized text, else "13a"."""
    return "none" if config.tokenizer.kind == "pretokenized" else "13a"


def learn_shortlist(
    model: LoadedModel, pairs: Sequence[Pair], best: int = CANDIDATES_PER_TOKEN, frequent: int = NUM_FREQUENT
) -> Shortlist:
    """Return a shortlist of the `best` most probable target tokens of each source token.

    The `frequent` most frequent target tokens are allowed for every source.
    """
    encode, source, target = model.task.codec.encode, model.tokenizer, model.tokenizer.target
    return make_shortlist(
        encode(source, [pair.source for pair in pairs]),
        encode(target, [pair.target for pair in pairs]),
        (source.vocab_size, target.vocab_size),
        [target.eos_id],
        tokenizer_fingerprint(source),
        best,
        frequent,
        copies=_shared_text_tokens(source, target),
    )


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str:
    """Return a hash that is equal for equal tokenizers."""
    return sha256(tokenizer.to_json().encode()).hexdigest()


def _shared_text_tokens(source: Tokenizer, target: Tokenizer) -> list[int]:
    """Return all tokens with text if both sides have the same vocabulary; otherwise none."""
    if [*map(source.token, range(source.vocab_size))] != [*map(target.token, range(target.vocab_size))]:
        return []
    return [token for token in range(source.vocab_size) if source.token_bytes(token)]
