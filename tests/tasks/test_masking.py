"""Masks and targets of masked language models, and the tokens of text with masks."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from clearhead import config as configs
from clearhead.config import TokenizerConfig
from clearhead.data.readers.documents import Document
from clearhead.data.records import SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.tokenizer import MASK_TOKEN
from clearhead.errors import DataError
from clearhead.model.registry import build_model
from clearhead.tasks.masked_lm.inference import encode_with_masks, split_documents
from clearhead.tasks.masked_lm.masking import NO_UNIT, choose_positions, count_targets, masking_units
from clearhead.tasks.masked_lm.training import MaskedLMTask
from clearhead.tasks.registry import get_task
from tests.tasks.artificial_text import SMALL, artificial_text

MAX_TOKENS = 29


def small_task(whole_word_masking: bool = False, share: float = 0.15) -> MaskedLMTask:
    """Return the task over a few lines, with a small vocabulary."""
    lines = artificial_text(40)
    settings = {"tokenizer": {"vocab_size": 300}, "model": SMALL["model"],
                "data": {"whole_word_masking": whole_word_masking, "mask_probability": share}}  # fmt: skip
    config = configs.build(settings, base=get_task("mlm").base)
    tokenizer = Tokenizer.train(lines, config.tokenizer)
    config = configs.override(config, {"model": {"vocab_size": tokenizer.vocab_size}})
    documents = [Document(line, number) for number, line in enumerate(lines, 1)]
    rows = split_documents(documents, tokenizer, 256, SkipReport(), Path("t"))
    return MaskedLMTask(config, tokenizer, rows, rows)


@pytest.mark.parametrize(
    ("sizes", "share", "count"),
    [
        ([1] * 20, 0.15, 3),
        ([1] * 3, 0.15, 1),  # at least one
        ([2, 2, 2], 0.15, 1),
        ([1, 3, 3, 3], 0.4, 4),
        ([5], 0.15, 1),
        ([4, 4, 4, 4, 1], 0.4, 7),
    ],
)
def test_units_are_masked_whole_and_the_number_of_targets_is_fixed(sizes: list[int], share: float, count: int) -> None:
    unit_S = np.concatenate([[NO_UNIT], *([unit] * size for unit, size in enumerate(sizes)), [NO_UNIT]]).astype(int)
    assert count_targets(unit_S, share) == count
    seen = set()
    for seed in range(99):
        masked_P, targets_M = choose_positions(unit_S, count, np.random.default_rng(seed))
        assert len(targets_M) == len(set(targets_M)) == count and set(targets_M) <= set(masked_P)
        assert NO_UNIT not in unit_S[masked_P] and len(masked_P) < count + max(sizes)
        assert set(unit_S[masked_P]).isdisjoint(np.delete(unit_S, masked_P))
        seen |= set(targets_M)
    assert seen == set(np.flatnonzero(unit_S != NO_UNIT))  # every position is a target with some seed


def test_special_tokens_have_no_unit() -> None:
    assert masking_units([2, 9, 1, 7, 3], None, range(5)).tolist() == [NO_UNIT, 1, NO_UNIT, 3, NO_UNIT]
    assert masking_units([2, 9, 8, 7, 3], [-1, 0, 0, 1, -1], range(5)).tolist() == [NO_UNIT, 0, 0, 1, NO_UNIT]


def test_eighty_ten_ten() -> None:
    task = small_task(share=0.4)
    choices: Counter[str] = Counter()
    for epoch in range(60):
        batch = task.batch(np.arange(40), epoch)
        shown_M = batch.ids_NS[batch.is_target_NS]
        choices["mask"] += int((shown_M == task.vocabulary.mask_id).sum())
        choices["same"] += int((shown_M == batch.targets_M).sum())
        assert bool((shown_M >= task.vocabulary.mask_id).all()) and int(shown_M.max()) < task.tokenizer.vocab_size
    total = 60 * task.tokens(np.arange(40))
    assert abs(choices["mask"] / total - 0.8) < 0.02 and abs(choices["same"] / total - 0.1) < 0.02


@pytest.mark.parametrize("whole_word_masking", [False, True])
def test_masks_follow_from_seed_epoch_and_example(whole_word_masking: bool) -> None:
    task = small_task(whole_word_masking=whole_word_masking)
    together = task.batch(np.arange(11), 3)
    for row in range(11):
        alone = task.batch(np.array([row]), 3)
        width = alone.ids_NS.shape[1]
        assert torch.equal(alone.ids_NS[0], together.ids_NS[row, :width])
        assert torch.equal(alone.is_target_NS[0], together.is_target_NS[row, :width])
        assert not bool(together.is_target_NS[row, width:].any())
        assert int(alone.is_target_NS.sum()) == task.tokens(np.array([row])) >= 1
        originals_S = torch.tensor(task.train.ids[row].tolist())
        assert torch.equal(alone.targets_M, originals_S[alone.is_target_NS[0]])
        if not whole_word_masking:
            kept_S = ~alone.is_target_NS[0]
            assert torch.equal(alone.ids_NS[0][kept_S], originals_S[kept_S])
    assert not torch.equal(together.is_target_NS, task.batch(np.arange(11), 4).is_target_NS)
    assert task.tokens(np.arange(11)) == len(together.targets_M)


def test_whole_words_are_masked() -> None:
    task = small_task(whole_word_masking=True)
    long_words = 0
    for row in range(40):
        ids = task.train.ids[row].tolist()
        shown_S = task.train.mask(row, np.random.default_rng(row), task.vocabulary, only_masks=True).ids_S
        words_S, is_mask_S = np.array(task.tokenizer.word_indices(ids)), shown_S == task.vocabulary.mask_id
        for word in set(words_S[is_mask_S].tolist()):
            assert is_mask_S[words_S == word].all()
            long_words += int((words_S == word).sum()) > 1
        assert shown_S[~is_mask_S].tolist() == np.array(ids)[~is_mask_S].tolist()
    assert long_words > 20  # otherwise the test proves nothing


def test_the_loss_is_cross_entropy_at_the_targets() -> None:
    task = small_task()
    model = build_model(task.config.model).eval()
    batch = task.batch(np.arange(7), 0)
    logits_NSV = model.logits(model(batch.ids_NS))
    originals_NS = task.dataset.rows(np.arange(7), 0).masked_fill(~batch.is_target_NS, -100)
    expected = F.cross_entropy(logits_NSV.transpose(1, 2), originals_NS, reduction="sum")
    loss = task.loss(model, batch)
    torch.testing.assert_close(loss.smoothed, expected)
    assert loss.tokens == task.tokens(np.arange(7))
    halves = [task.loss(model, task.batch(part, 0)) for part in task.split(np.arange(7), 2)]
    torch.testing.assert_close(sum(half.smoothed for half in halves), expected)


def test_long_documents_are_split_without_loss() -> None:
    tokenizer = Tokenizer.train(artificial_text(40), TokenizerConfig(vocab_size=330, special_tokens=(MASK_TOKEN,)))
    text = " ".join(artificial_text(9))
    ids = tokenizer.encode(text).ids
    rows = split_documents([Document(text, 5), Document("The dog.", 6)], tokenizer, MAX_TOKENS, SkipReport(), Path("t"))
    assert max(map(len, rows.rows)) <= MAX_TOKENS and rows.num_split == 1
    assert rows.lines == [5] * (len(rows.rows) - 1) + [6]
    assert [index for row in rows.rows[:-1] for index in row[1:-1]] == ids
    assert all(row[0] == tokenizer.bos_id and row[-1] == tokenizer.eos_id for row in rows.rows)


def test_text_without_known_tokens_is_reported() -> None:
    tokenizer = Tokenizer.train(["ab ab"], TokenizerConfig(kind="word", vocab_size=20, special_tokens=(MASK_TOKEN,)))
    skips = SkipReport()
    assert len(split_documents([Document("zz", 1), Document("ab", 2)], tokenizer, 9, skips, Path("t")).rows) == 1
    assert skips.counts == {"no known token": 1}
    with pytest.raises(DataError, match="expected text with tokens of the tokenizer"):
        split_documents([Document("zz", 1)], tokenizer, 9, skips, Path("t"))


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word", "char", "pretokenized"])
@pytest.mark.parametrize(
    "text",
    [
        "The {dog} eats the grass.",
        "{Look} at the saw there!",
        "Look at the saw there{!}",
        "The {dog} eats the {grass} .",
        "The {dog} {eats} the  wood.",
        "   Look \u00e9 at {the} cafe\u0301 \ue000 .",
    ],
)
def test_tokens_around_masks_are_those_of_the_whole_text(kind: str, text: str) -> None:
    if kind == "pretokenized":
        text = text.replace("{!}", " {!}")
    tokenizer = Tokenizer.train(
        artificial_text(60), TokenizerConfig(kind=kind, vocab_size=330, special_tokens=(MASK_TOKEN,))
    )
    parts = re.split(r"[{}]", text)  # the odd ones are masked
    whole, starts = "".join(parts), np.cumsum([0, *map(len, parts)])
    masks = [range(starts[i], starts[i + 1]) for i in range(1, len(parts), 2)]
    segments: list[list[int]] = [[] for _ in range(len(masks) + 1)]
    encoding = tokenizer.encode(whole)
    for index, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
        is_space = kind == "char" and start == end
        if is_space or not any(start in mask for mask in masks):
            segments[sum(mask.stop <= start for mask in masks)].append(index)
    expected = segments[0] + [index for segment in segments[1:] for index in (4, *segment)]
    for mask in ("[MASK]", "<mask>"):
        given = "".join(mask if number % 2 else part for number, part in enumerate(parts))
        assert encode_with_masks(tokenizer, given) == expected
