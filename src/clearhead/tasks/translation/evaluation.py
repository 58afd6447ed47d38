"""Evaluation of translators: BLEU, chrF, exact match and perplexity on test pairs."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from clearhead.config import Config, DecodingConfig
from clearhead.data.corpus.encoding import EncodingSettings, encode_pairs
from clearhead.data.readers.pairs import Pair, load_pairs
from clearhead.data.readers.tables import TableOptions
from clearhead.data.tokenizer import Tokenizer
from clearhead.evaluation.metrics import TranslationReport, evaluate_texts
from clearhead.tasks.scoring import mean_target_nll
from clearhead.tasks.task import LoadedModel, Log, test_records
from clearhead.tasks.translation.inference import search_texts


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, tell: Log) -> TranslationReport:
    """BLEU, chrF, exact match and perplexity."""
    pairs = test_records(load_pairs(paths, sys.maxsize, table=TableOptions.of(model.config.data)), tell)
    report = score_translations(model, translate_texts(model, [pair.source for pair in pairs], decoding), pairs)
    if report.perplexity is None:
        tell("perplexity is left out: some pairs are longer than the model takes")
    return report


def translate_texts(model: LoadedModel, texts: Sequence[str], decoding: DecodingConfig) -> list[str]:
    """The best translation of each text; an empty one stays empty."""
    found = search_texts(model, model.tokenizer.encode_batch(texts), 1, decoding)
    return [model.tokenizer.target.decode(hypotheses[0].tokens) if hypotheses else "" for hypotheses in found]


def score_translations(model: LoadedModel, texts: Sequence[str], pairs: Sequence[Pair]) -> TranslationReport:
    """Scores of given translations of these pairs, and the perplexity of the references under this model."""
    references = [reference_text(model.tokenizer, pair.target) for pair in pairs]
    block, kept = encode_pairs(pairs, model.tokenizer, EncodingSettings(model.config.model.max_positions))
    perplexity = None
    if len(kept) == len(pairs):
        perplexity = math.exp(mean_target_nll(model.scoring_engine, block.store, model.tokenizer.eos_id))
    sources = [pair.source for pair in pairs]
    return evaluate_texts(
        texts, references, tokenize=scoring_tokenizer(model.config), perplexity=perplexity, sources=sources
    )


def reference_text(tokenizer: Tokenizer, target: str) -> str:
    """A reference as it is scored: text that came in joined pieces is put together."""
    joiner = tokenizer.config.joiner
    return target.replace(f"{joiner} ", "") if joiner else target


def scoring_tokenizer(config: Config) -> str:
    """How sacreBLEU splits words: text that came already split is not split again."""
    return "none" if config.tokenizer.kind == "pretokenized" else "13a"
