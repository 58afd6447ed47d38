"""From a config to its network: the one place that knows every family."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.model.convolutional import ConvolutionalReader
from clearhead.model.heads import LabelNetwork, MaskedNetwork, TagNetwork, VectorNetwork
from clearhead.model.language import LanguageModel
from clearhead.model.patches import PatchReader
from clearhead.model.perceptron import PerceptronReader
from clearhead.model.recurrent import RecurrentReader, RecurrentTranslator
from clearhead.model.text_reader import TextReader
from clearhead.model.transformer import Transformer
from clearhead.model.weights import tied_names

WRITERS: dict[str, type[nn.Module]] = {
    "transformer": Transformer,
    "rnn": RecurrentTranslator,
    "gru": RecurrentTranslator,
    "lstm": RecurrentTranslator,
    "decoder": LanguageModel,
}
READERS: dict[str, type[nn.Module]] = {
    "encoder": TextReader,
    "rnn": RecurrentReader,
    "gru": RecurrentReader,
    "lstm": RecurrentReader,
    "vit": PatchReader,
    "cnn": ConvolutionalReader,
    "mlp": PerceptronReader,
}
HEADS: dict[str, type[nn.Module]] = {
    "classification": LabelNetwork,
    "token_classification": TagNetwork,
    "masked_lm": MaskedNetwork,
    "embedding": VectorNetwork,
}


def with_tied_names(config: ModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return named weights with the further names of tied ones, as bundles have them."""
    return {**weights, **{name: weights[first] for name, first in _tied_names(config).items()}}


@cache
def _tied_names(config: ModelConfig) -> dict[str, str]:
    with torch.device("meta"):
        return tied_names(build_model(config))


def build_model(config: ModelConfig) -> Any:
    """The network with fresh weights, drawn from torch's generator: a writer, or a reader with a head on it."""
    if config.head == "generation":
        return WRITERS[config.family](config)
    return HEADS[config.head](config, READERS[config.family](config))
