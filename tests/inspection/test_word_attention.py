"""Attention between words, compared with sums of the model's attention between tokens."""

import numpy as np
import pytest
import torch

import clearhead
from clearhead.grammar import split_words
from tests.trained_model import Trained

SOURCE, TARGET = "The small dog sees the old cat.", "Der kleine Hund sieht die alte Katze."


def test_words_are_split_as_in_the_grammar(trained: Trained) -> None:
    attention = clearhead.load(trained.folder).attention(SOURCE, TARGET)
    assert attention.source_words == split_words(SOURCE)
    assert attention.target_words == split_words(TARGET)
    assert attention.weights_LHJI.shape == (2, 2, 8, 8)


def test_word_weights_are_sums_of_token_weights(trained: Trained) -> None:
    model = clearhead.load(trained.folder)
    attention = model.attention(SOURCE, TARGET)
    tokenizer, network = model.tokenizer, model.network
    src, tgt = tokenizer.encode(SOURCE).ids, tokenizer.encode(TARGET).ids
    with torch.inference_mode():
        _, state = network.start(network.encode(torch.tensor([[*src, 3]])), 1)
        step = network.step(torch.tensor([[2, *tgt]]), state, want_attention=True)
    assert step.attention is not None
    cross_TS = step.attention[1].cross_RHTS[0, 1].numpy()
    word, token_words, source_words = 2, tokenizer.word_indices(tgt), tokenizer.word_indices(src)
    rows = [cross_TS[t] for t in range(len(tgt)) if token_words[t] == word]
    expected = [
        np.mean([sum(row[s] for s in range(len(src)) if source_words[s] == i) for row in rows]) for i in range(8)
    ]
    np.testing.assert_allclose(attention.weights_LHJI[1, 1, word], expected, atol=1e-6)
    # the rest of the attention is on the end token
    assert attention.weights_LHJI.sum(-1).max() <= 1 + 1e-5


def test_links_name_the_strongest_source_word(trained: Trained) -> None:
    attention = clearhead.load(trained.folder).attention(SOURCE, TARGET)
    links = attention.links(0)
    assert {target for _, target in links} == set(range(8))
    for source, target in links:
        mean_I = attention.weights_LHJI[0].mean(0)[target]
        assert mean_I[source] == pytest.approx(mean_I.max())
