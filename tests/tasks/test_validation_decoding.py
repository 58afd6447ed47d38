"""Validation decodes with the native engine, from the weights as they are in the middle of a training."""

from typing import Any

import pytest
import torch

from clearhead.config import DecodingConfig
from clearhead.engines.native_engine import NativeEngine
from clearhead.engines.torch_engine import TorchEngine
from clearhead.tasks.trainable import validation_decoding
from clearhead.tasks.trainable.validation_decoding import write
from tests.runtime.models import random_model, random_sequences


def test_outputs_are_those_of_the_present_weights() -> None:
    torch.set_num_threads(1)
    network: Any = random_model(scale=0.3)
    network.train()
    sources, settings = random_sequences([3, 9, 14]), DecodingConfig(beam_size=1, max_length="12")
    engine = validation_decoding._engine_of(network)
    assert isinstance(engine, NativeEngine)
    before = write(network, sources, 3, settings)
    with torch.no_grad():
        network.output.weight.copy_(network.output.weight.flip(0))
    assert write(network, sources, 3, settings) != before
    assert network.training


@pytest.mark.parametrize("shape", [{"norm": "batch"}, {"norm": "none"}])
def test_torch_decodes_what_the_core_cannot(shape: dict[str, Any]) -> None:
    assert isinstance(validation_decoding._engine_of(random_model(**shape)), TorchEngine)
