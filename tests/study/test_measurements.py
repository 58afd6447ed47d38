"""Measuring functions of the studies, compared with independently known values."""

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
from clearhead.study.claims.causal_mask import compare_passes, future_and_past_gradients
from clearhead.study.claims.compute_scaling import count_flops
from clearhead.study.claims.encoder_decoder_attention import CooccurrenceDictionary, diagonal_links
from clearhead.study.claims.layers import RIDGE, _ridge
from clearhead.study.claims.long_range import FILLERS, KEYS, recall_line
from clearhead.study.claims.parallelism import ParallelismStudy, longest_path
from clearhead.study.claims.positions import linear_map_error
from clearhead.study.claims.pronoun import FORMS, other_forms
from clearhead.study.claims.receptive_field import receptive_fields
from clearhead.study.harness.models_and_data import examples_of_length, random_ids


def test_recall_line_has_the_key_at_its_distance() -> None:
    for distance in (1, 7):
        source, key = recall_line(distance, random.Random(distance))
        words = source.split()
        assert words[-1 - distance] == key and key in KEYS
        assert set(words) - {key} <= set(FILLERS)


def test_other_forms_differ_only_in_the_pronoun() -> None:
    for example in generate(5, 1, "test_pronoun"):
        assert example.pronoun is not None
        words = split_words(example.target)
        if words[example.pronoun.target_index].lower() not in FORMS:
            continue
        changed = list(other_forms(example))
        assert len(changed) == len(FORMS) - 1
        for text in changed:
            differing = [
                position for position, pair in enumerate(zip(words, split_words(text), strict=True)) if len({*pair}) > 1
            ]
            assert differing == [example.pronoun.target_index]


def example(source: str, target: str) -> Example:
    return Example(source, target, (), None, ())


def test_alignment_baselines() -> None:
    assert diagonal_links(example("a b c", "x y z")) == {(0, 0), (1, 1), (2, 2)}
    assert diagonal_links(example("a b c", "x y")) == {(0, 0), (2, 1)}
    pairs = (("red cat", "rote Katze"), ("red cow", "rote Kuh"), ("old cat", "alte Katze"))
    examples = [example(*pair) for pair in pairs]
    assert CooccurrenceDictionary.count(examples).links(example("cat red", "rote Katze")) == {(1, 0), (0, 1)}


def test_examples_of_length() -> None:
    examples = examples_of_length(6, 1, "test", 4, 6)
    assert len(examples) == 6 and all(4 <= len(split_words(one.source)) <= 6 for one in examples)


def test_linear_map_error_of_a_rotation_and_of_random_vectors() -> None:
    generator = torch.Generator().manual_seed(1)
    random_DD = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    rotation_DD = torch.linalg.matrix_exp(0.3 * (random_DD - random_DD.T))  # slow: the fit uses only even positions
    rows = [torch.randn(6, generator=generator, dtype=torch.float64)]
    for _ in range(49):
        rows.append(rows[-1] @ rotation_DD)
    assert linear_map_error(torch.stack(rows), (1, 3)) < 1e-9
    assert linear_map_error(torch.randn(50, 6, generator=generator, dtype=torch.float64), (1, 3)) > 0.5


def test_future_and_past_gradients() -> None:
    embedding = nn.Embedding(200, 3, dtype=torch.float64)
    ids_BT = random_ids(1, 5, 1)
    assert future_and_past_gradients(lambda ids: embedding(ids).cumsum(1), embedding, ids_BT)[0] == 0.0
    future, past = future_and_past_gradients(lambda ids: embedding(ids).flip(1).cumsum(1).flip(1), embedding, ids_BT)
    assert future > 0.1 and past == 0.0
    assert compare_passes(lambda ids: embedding(ids).cumsum(1), ids_BT)[0] < 1e-15
    assert compare_passes(lambda ids: embedding(ids) - embedding(ids).mean(1, keepdim=True), ids_BT)[0] > 0.01


@pytest.mark.parametrize(("family", "grows"), [("rnn", True), ("lstm", True), ("transformer", False)])
def test_longest_path_grows_linearly_or_is_constant(family: str, grows: bool) -> None:
    encoder: Any = ParallelismStudy(width=8, layers=1)._encoder(family, 1)
    five, ten, fifteen = (longest_path(encoder, random_ids(1, length, 1)) for length in (5, 10, 15))
    assert (ten > five) == grows and ten - five == fifteen - ten


def test_flops_of_a_linear_layer() -> None:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = Linear(WIDE, 300, bias=False)

        def forward(self, x_BD: Tensor) -> Tensor:
            y_BD: Tensor = self.linear(x_BD)
            return y_BD

        def logits(self, y_BD: Tensor) -> Tensor:
            return y_BD

    for rows in (3, ROW_MULTIPLE):  # uses the product of torch, and the one of oneDNN in training
        count = count_flops(Network(), torch.ones(rows, WIDE))
        assert count == 2 * (2 * rows * WIDE * 300)  # forward pass and gradient of the weight


def test_receptive_field_of_a_first_convolution() -> None:
    radii = receptive_fields(1)
    assert radii[0] == pytest.approx(math.sqrt(2)) and radii == sorted(radii) and radii[1] > radii[0]


def test_probe_is_ridge_regression() -> None:
    generator = torch.Generator().manual_seed(2)
    x_ND, y_NC = (torch.randn(11, size, generator=generator, dtype=torch.float64) for size in (5, 3))
    penalty = RIDGE * float((x_ND.T @ x_ND).diagonal().mean()) + 1e-9
    expected = Ridge(alpha=penalty, fit_intercept=False).fit(x_ND.numpy(), y_NC.numpy()).coef_
    torch.testing.assert_close(_ridge(x_ND, y_NC), torch.from_numpy(expected.T.copy()))
