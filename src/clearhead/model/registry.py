"""Construction of the network of a config; the only module that imports all families."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.config import ModelConfig
from clearhead.model.language_model import LanguageModel
from clearhead.model.output_heads import EmbeddingModel, MaskedLanguageModel, SequenceClassifier, TokenClassifier
from clearhead.model.parameters import tied_names
from clearhead.model.recurrent.encoder import RecurrentTextEncoder
from clearhead.model.recurrent.translator import RecurrentTranslator
from clearhead.model.text_encoder import TextEncoder
from clearhead.model.transformer import Transformer
from clearhead.model.vision.baselines import ConvolutionalEncoder, MLPEncoder
from clearhead.model.vision.vision_transformer import VisionTransformer

GENERATORS: dict[str, type[nn.Module]] = {
    "transformer": Transformer,
    "rnn": RecurrentTranslator,
    "gru": RecurrentTranslator,
    "lstm": RecurrentTranslator,
    "decoder": LanguageModel,
}
ENCODERS: dict[str, type[nn.Module]] = {
    "encoder": TextEncoder,
    "rnn": RecurrentTextEncoder,
    "gru": RecurrentTextEncoder,
    "lstm": RecurrentTextEncoder,
    "vit": VisionTransformer,
    "cnn": ConvolutionalEncoder,
    "mlp": MLPEncoder,
}
HEADS: dict[str, type[nn.Module]] = {
    "classification": SequenceClassifier,
    "token_classification": TokenClassifier,
    "masked_lm": MaskedLanguageModel,
    "embedding": EmbeddingModel,
}


def with_tied_names(config: ModelConfig, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under all names of `state_dict`, as bundles have them: a tied weight has several names."""
    return {**weights, **{name: weights[first] for name, first in _tied_names(config).items()}}


@cache
def _tied_names(config: ModelConfig) -> dict[str, str]:
    """Return the tied names of a config's network, which is built on the meta device, without memory."""
    with torch.device("meta"):
        return tied_names(build_model(config))


def build_model(config: ModelConfig) -> Any:
    """Return the network of a config with random initial weights: one that generates, or an encoder with a head."""
    if config.head == "generation":
        return GENERATORS[config.family](config)
    return HEADS[config.head](config, ENCODERS[config.family](config))
