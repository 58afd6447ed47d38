"""Tied weights are one tensor with several names: saved once, loaded under all of them, and never different."""

from pathlib import Path

import pytest
import torch

from clearhead import bundle
from clearhead.config import ModelConfig
from clearhead.errors import BundleError
from clearhead.model.parameters import named_weights, restore, snapshot, tied_names
from clearhead.model.registry import build_model, with_tied_names
from tests.tasks.all_tasks import Models

CONFIG = ModelConfig(vocab_size=11, model_dim=6, feed_forward_dim=5, num_heads=2, num_encoder_layers=1)
FIRST = "source_embedding.tokens.weight"


def test_further_names_are_those_of_the_state_dict() -> None:
    network = build_model(CONFIG)
    weights = with_tied_names(CONFIG, named_weights(network))
    assert tied_names(network) == {"target_embedding.tokens.weight": FIRST, "output.weight": FIRST}
    assert weights.keys() == network.state_dict().keys()
    assert weights["output.weight"] is weights[FIRST]


def test_tied_weights_must_be_equal() -> None:
    weights = with_tied_names(CONFIG, snapshot(build_model(CONFIG)))
    network = build_model(CONFIG)
    restore(network, weights)
    assert torch.equal(network.output.weight, weights[FIRST])
    restore(network, {**weights, "output.weight": weights[FIRST].clone()})
    with pytest.raises(
        BundleError, match=r"output\.weight must be tied to source_embedding\.tokens\.weight, but differs"
    ):
        restore(network, {**weights, "output.weight": weights[FIRST] + 1})
    with pytest.raises(BundleError, match=r"unknown \['outputs\.weight'\]"):
        restore(network, {**weights, "outputs.weight": weights[FIRST]})


@pytest.mark.parametrize(("task", "first"), [("translate", FIRST), ("mlm", "backbone.embedding.tokens.weight")])
def test_a_bundle_has_all_names(models: Models, task: str, first: str) -> None:
    loaded = bundle.load(Path(models[task]))
    assert loaded.manifest.tied["output.weight"] == first
    assert loaded.weights["output.weight"] is loaded.weights[first]
