"""Validation in the core: missing, unknown and misshapen tensors, settings, ids, limits and rows."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clearhead.config import ModelConfig
from clearhead.errors import BundleError
from clearhead.model.parameters import named_weights
from clearhead.runtime import prepare
from tests.runtime.models import (
    ENCODERS,
    LANGUAGE_MODELS,
    TRANSLATORS,
    core_settings,
    native,
    random_model,
    random_sequences,
    tensors,
)

SOURCES = random_sequences([5, 17, 1, 33])


FAMILIES: dict[str, dict[str, Any]] = {
    "transformer": {},
    "decoder": {"family": "decoder", "num_encoder_layers": 4},
    "encoder": {"family": "encoder", "num_decoder_layers": 4},
}
SHAPES = [("transformer", each) for each in TRANSLATORS]
SHAPES += [("decoder", each) for each in LANGUAGE_MODELS] + [("encoder", each) for each in ENCODERS]


@pytest.mark.parametrize(("family", "name"), SHAPES)
def test_every_tensor_is_needed(family: str, name: str) -> None:
    """A model without one of its tensors is refused, as by torch."""
    shapes = {**TRANSLATORS, **LANGUAGE_MODELS, **ENCODERS}
    network: Any = random_model(**FAMILIES[family], **shapes[name])
    whole = tensors(network)
    native(network)
    for missing in named_weights(network):
        arrays = {name: tensor for name, tensor in whole.items() if tensor is not whole[missing]}
        with pytest.raises(BundleError, match=f"the tensor {re.escape(missing)} is missing"):
            prepare(network.config, arrays)


@pytest.mark.parametrize(
    ("settings", "unread", "message"),
    [
        ({}, {"bias": False}, "bias does not belong"),
        (LANGUAGE_MODELS["gpt2"], {"bias": False}, "bias does not belong"),
        ({}, {"norm": "rms"}, "norm.bias does not belong"),
        ({"output_bias": True}, {"output_bias": False}, "output.bias does not belong"),
        ({}, {"norm_placement": "post"}, "norm.bias does not belong"),
        ({"positions": "learned"}, {"positions": "none"}, "positions.weight does not belong"),
        ({"positions": "learned"}, {"positions": "sinusoidal"}, "positions.weight does not belong"),
        (TRANSLATORS["t5"], {"positions": "rotary"}, "relative_bias.weight does not belong"),
        (TRANSLATORS["t5"], {"relative_buckets": 31}, r"relative_bias.weight has shape \[32, 3\]"),
        ({"tied_embeddings": "none"}, {"tied_embeddings": "all"}, "must be tied to source_embedding.tokens.weight"),
    ],
)
def test_tensors_of_other_settings_are_named(settings: Any, unread: Any, message: str) -> None:
    family = "decoder" if settings is LANGUAGE_MODELS["gpt2"] else "transformer"
    network: Any = random_model(**FAMILIES[family], **settings)
    other = ModelConfig.model_validate({**network.config.model_dump(), **unread})
    with pytest.raises(BundleError, match=message):
        prepare(other, tensors(network))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("encoder.norm.weight"), "encoder.norm.weight is missing"),
        (lambda arrays: arrays.pop("encoder.norm.bias"), "encoder.norm.bias is missing"),
        (lambda arrays: arrays.update({"extra.weight": np.zeros(3, np.float32)}), "extra.weight does not belong"),
        (lambda arrays: arrays.update({"encoder.layers.0.bias": np.zeros(3, np.float32)}), "0.bias does not belong"),
        (lambda arrays: arrays.update({"output.bias": np.zeros(107, np.float32)}), "output.bias does not belong"),
        (lambda arrays: arrays.update({"encoder.norm.weight": np.zeros((9, 24), np.float32)}), r"shape \[9, 24\]"),
        (lambda arrays: arrays.update({"output.weight": np.zeros((9, 24), np.float32)}), "must be tied"),
    ],
)
def test_tensors_that_do_not_fit_are_named(change: Any, message: str) -> None:
    network: Any = random_model()
    arrays = tensors(network)
    change(arrays)
    with pytest.raises(BundleError, match=message):
        prepare(network.config, arrays)


def test_settings_beyond_float32_are_refused() -> None:
    network: Any = random_model()
    config = ModelConfig.model_validate({**network.config.model_dump(), "norm_epsilon": 1e300})
    with pytest.raises(BundleError, match="the setting norm_epsilon is not a finite float32"):
        prepare(config, tensors(network))


@pytest.mark.parametrize("large", [5 + 2**32, -(2**31) - 1, 2**70])
def test_integers_that_are_no_int32_are_refused(large: int) -> None:
    """The first value would be 5 if it were truncated to 32 bits."""
    model = native(random_model())
    state = model.start(model.encode([[5]]), 1, 1)
    calls: list[Callable[[Any], object]] = [
        lambda ids: model.search([ids], [4], core_settings()),
        lambda ids: model.search([[5]], ids, core_settings()),
        lambda ids: model.search([[5]], [4], core_settings(), [ids]),
        lambda ids: model.search([[5]], [4], core_settings(suppressed=tuple(ids))),
        lambda ids: model.score([[5]], [ids]),
        lambda ids: model.reorder(state, np.array(ids)),
        lambda ids: model.step(np.array([ids]), state),
    ]
    for call in calls:
        for ids in ([large], np.array([large])):
            with pytest.raises(ValueError, match="expected integers of 32 bits"):
                call(ids)


def test_wrong_ids_limits_and_rows_are_refused() -> None:
    model = native(random_model())
    with pytest.raises(ValueError, match="outside of the vocabulary"):
        model.search([[5, 107]], [4], core_settings())
    with pytest.raises(ValueError, match="outside of the vocabulary"):
        model.search([[-1]], [4], core_settings())
    with pytest.raises(ValueError, match="empty or too long"):
        model.search([[]], [4], core_settings())
    with pytest.raises(ValueError, match="limit is out of range"):
        model.search([[5]], [65], core_settings())
    for unordered in ([5, 3], [3, 3]):
        with pytest.raises(ValueError, match="must ascend"):
            model.search([[5]], [4], core_settings(), [unordered])
    for penalty in (0, -1, np.inf, np.nan):
        with pytest.raises(ValueError, match="positive and finite"):
            model.search([[5]], [4], replace(core_settings(), penalties=np.full(5, penalty, np.float32)))
    state = model.start(model.encode(SOURCES[:2]), 2, 1)
    with pytest.raises(ValueError, match="no such row"):
        model.reorder(state, np.array([0, 7]))
    for count in (0, 65_536):
        with pytest.raises(ValueError, match="1 to 65,535 rows"):
            model.reorder(state, np.zeros(count, np.int64))
    with pytest.raises(ValueError, match="of another model"):
        native(random_model()).step(np.array([[2], [2]]), state)
    for _ in range(64):
        model.step(np.array([[2], [2]]), state)
    with pytest.raises(ValueError, match="max_positions"):
        model.step(np.array([[2], [2]]), state)
