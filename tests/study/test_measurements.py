"""What studies measure with, against values known by other means."""

import math
import random
from typing import Any

import pytest
import torch
from sklearn.linear_model import Ridge  # type: ignore[import-untyped]
from torch import Tensor, nn

from clearhead.grammar import Example, generate, split_words
from clearhead.kernels import Linear
from clearhead.kernels.onednn import WIDE
from clearhead.kernels.padding_free import ROW_MULTIPLE
from clearhead.study.claims.compute_scaling import count_flops
from clearhead.study.claims.encoder_decoder_attention import CooccurrenceDictionary, diagonal_links
from clearhead.study.claims.layers import RIDGE, _ridge
from clearhead.study.claims.long_range import FILLERS, KEYS, recall_line
from clearhead.study.claims.causal_mask import compare_passes, future_and_past_gradients
from clearhead.study.claims.parallelism import ParallelismStudy, longest_path
from clearhead.study.claims.positions import linear_map_error
from clearhead.study.claims.pronoun import FORMS, other_forms
from clearhead.study.claims.receptive_field import receptive_fields
from clearhead.study.harness.models_and_data import examples_of_length, random_ids


def test_recall_puts_the_key_where_it_should_be() -> None:
    for distance in (1, 7):
        source, key = recall_line(distance, random.Random(distance))
        words = source.split()
        assert words[-1 - distance] == key and key in KEYS
        assert set(words) - {key} <= set(FILLERS)


def test_other_forms_differ_in_the_pronoun_alone() -> None:
    for example in generate(5, 1, "test_pronoun"):
        assert example.pronoun is not None
        words = split_words(example.target)
        if words[example.pronoun.target_index].lower() not in FORMS:
            continue
        changed = list(other_forms(example))
        assert len(changed) == len(FORMS) - 1
        for text in changed:
            differing = [
                place for place, pair in enumerate(zip(words, split_words(text), strict=True)) if len({*pair}) > 1
            ]
            assert differing == [example.pronoun.target_index]


def example(source: str, target: str) -> Example:
    return Example(source, target, (), None, ())


def test_baselines_of_alignment() -> None:
    assert diagonal_links(example("a b c", "x y z")) == {(0, 0), (1, 1), (2, 2)}
    assert diagonal_links(example("a b c", "x y")) == {(0, 0), (2, 1)}
    pairs = (("red cat", "rote Katze"), ("red cow", "rote Kuh"), ("old cat", "alte Katze"))
    known = [example(*pair) for pair in pairs]
    assert CooccurrenceDictionary.of(known).links(example("cat red", "rote Katze")) == {(1, 0), (0, 1)}


def test_sentences_of_a_length() -> None:
    found = examples_of_length(6, 1, "test", 4, 6)
    assert len(found) == 6 and all(4 <= len(split_words(one.source)) <= 6 for one in found)


def test_a_linear_map_is_found_where_there_is_one() -> None:
    generator = torch.Generator().manual_seed(1)
    any_DD = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    turn_DD = torch.linalg.matrix_exp(0.3 * (any_DD - any_DD.T))  # slow turns: the fit sees every other place only
    rows = [torch.randn(6, generator=generator, dtype=torch.float64)]
    for _ in range(49):
        rows.append(rows[-1] @ turn_DD)
    assert linear_map_error(torch.stack(rows), (1, 3)) < 1e-9
    assert linear_map_error(torch.randn(50, 6, generator=generator, dtype=torch.float64), (1, 3)) > 0.5


def test_gradients_from_the_future() -> None:
    embedding = nn.Embedding(200, 3, dtype=torch.float64)
    ids_BT = random_ids(1, 5, 1)
    assert future_and_past_gradients(lambda ids: embedding(ids).cumsum(1), embedding, ids_BT)[0] == 0.0
    future, past = future_and_past_gradients(lambda ids: embedding(ids).flip(1).cumsum(1).flip(1), embedding, ids_BT)
    assert future > 0.1 and past == 0.0
    assert compare_passes(lambda ids: embedding(ids).cumsum(1), ids_BT)[0] < 1e-15
    assert compare_passes(lambda ids: embedding(ids) - embedding(ids).mean(1, keepdim=True), ids_BT)[0] > 0.01


@pytest.mark.parametrize(("family", "each"), [("rnn", True), ("lstm", True), ("transformer", False)])
def test_chains_grow_with_the_length_or_not(family: str, each: bool) -> None:
    reader: Any = ParallelismStudy(width=8, layers=1)._reader(family, 1)
    five, ten, fifteen = (longest_path(reader, random_ids(1, length, 1)) for length in (5, 10, 15))
    assert (ten > five) == each and ten - five == fifteen - ten


def test_operations_of_a_linear_layer() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = Linear(WIDE, 300, bias=False)

        def forward(self, x_BD: Tensor) -> Tensor:
            y_BD: Tensor = self.linear(x_BD)
            return y_BD

        def logits(self, y_BD: Tensor) -> Tensor:
            return y_BD

    for rows in (3, ROW_MULTIPLE):  # by torch's own product, and by oneDNN's when it is trained
        count = count_flops(Network(), torch.ones(rows, WIDE))
        assert count == 2 * (2 * rows * WIDE * 300)  # forward, and the weight's gradient


def test_a_first_convolution_sees_its_neighbours() -> None:
    reaches = receptive_fields(1)
    assert reaches[0] == pytest.approx(math.sqrt(2)) and reaches == sorted(reaches) and reaches[1] > reaches[0]


def test_the_probe_is_ridge_regression() -> None:
    generator = torch.Generator().manual_seed(2)
    x_ND, y_NC = (torch.randn(11, size, generator=generator, dtype=torch.float64) for size in (5, 3))
    penalty = RIDGE * float((x_ND.T @ x_ND).diagonal().mean()) + 1e-9
    expected = Ridge(alpha=penalty, fit_intercept=False).fit(x_ND.numpy(), y_NC.numpy()).coef_
    torch.testing.assert_close(_ridge(x_ND, y_NC), torch.from_numpy(expected.T.copy()))
