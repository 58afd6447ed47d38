"""Validation decodes with the native engine and the current weights of a network in training."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from clearhead.config import DecodingConfig
from clearhead.engines.native_engine import NativeEngine
from clearhead.engines.torch_engine import TorchEngine
from clearhead.errors import MissingPackageError
from clearhead.runtime import availability
from clearhead.tasks.engines import network_engine
from clearhead.tasks.trainable.seq2seq import decode_examples
from tests.runtime.models import random_model, random_sequences


def test_outputs_are_those_of_the_current_weights() -> None:
    torch.set_num_threads(1)
    network: Any = random_model(scale=0.3)
    network.train()
    sources, settings = random_sequences([3, 9, 14]), DecodingConfig(beam_size=1, max_length="12")
    engine = network_engine(network)
    assert isinstance(engine, NativeEngine)
    before = decode_examples(network, sources, 3, settings)
    with torch.no_grad():
        network.output.weight.copy_(network.output.weight.flip(0))
    assert decode_examples(network, sources, 3, settings) != before
    assert network.training


@pytest.mark.parametrize("shape", [{"norm": "batch"}, {"norm": "none"}])
def test_torch_decodes_models_that_the_core_does_not_support(shape: dict[str, Any]) -> None:
    assert isinstance(network_engine(random_model(**shape)), TorchEngine)


@pytest.fixture
def without_core(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("CI", availability.REQUIRED_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(availability, "CORE", "clearhead.runtime._absent")
    availability.why_unavailable.cache_clear()
    yield
    availability.why_unavailable.cache_clear()


def test_torch_replaces_a_missing_core_but_not_in_ci(without_core: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(network_engine(random_model()), TorchEngine)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(MissingPackageError, match=r"core is not built; .*; torch does not replace it, since CI is set"):
        network_engine(random_model())
    assert isinstance(network_engine(random_model(norm="none")), TorchEngine)
