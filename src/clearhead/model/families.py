"""From a config to its network: the one place that knows every family."""

from clearhead.config import ModelConfig
from clearhead.model.transformer import Transformer

FAMILIES = {"transformer": Transformer}


def build_model(config: ModelConfig) -> Transformer:
    """The network with fresh weights, drawn from torch's generator."""
    return FAMILIES[config.family](config)
