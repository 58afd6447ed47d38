"""Initial weights: one scheme for the paper's models, one for BERT and GPT, one for T5."""

from torch import nn

from clearhead.config import ModelConfig
from clearhead.model.attention import MultiHeadAttention, Projection
from clearhead.model.embedding import OutputProjection, TokenEmbedding
from clearhead.model.positions import LearnedPositions


def initialize(model: nn.Module, config: ModelConfig) -> None:
    """Draw the weights of a model; embeddings and positions have drawn their own, which two of the schemes replace.

    Xavier-uniform matrices; normal with standard deviation 0.02 everywhere if embeddings are not scaled (BERT, GPT);
    the scheme of T5 if positions are relative and scores are not scaled. Biases are 0.
    """
    if config.positions == "relative" and not config.scale_attention:
        model.apply(lambda module: _initialize_t5(module, config))
    elif not config.scale_embeddings:
        model.apply(_initialize_bert)
    else:
        model.apply(_initialize_xavier)


def _initialize_xavier(module: nn.Module) -> None:
    """Draw matrices from the uniform distribution of Glorot and Bengio (2010)."""
    if isinstance(module, MultiHeadAttention):
        for projection in (module.query, module.key, module.value):
            nn.init.xavier_uniform_(projection.weight)
    elif isinstance(module, nn.Linear) and not isinstance(module, Projection):
        nn.init.xavier_uniform_(module.weight)
        _clear_bias(module)


def _initialize_bert(module: nn.Module) -> None:
    """Draw all weights from a normal distribution with standard deviation 0.02."""
    if isinstance(module, MultiHeadAttention):
        for projection in (module.query, module.key, module.value):
            nn.init.normal_(projection.weight, std=0.02)
    elif isinstance(module, nn.Linear) and not isinstance(module, Projection):
        nn.init.normal_(module.weight, std=0.02)
        _clear_bias(module)
    elif isinstance(module, TokenEmbedding | OutputProjection | LearnedPositions):
        nn.init.normal_(module.weight, std=0.02)


def _initialize_t5(module: nn.Module, config: ModelConfig) -> None:
    """Draw matrices with variance 1 / inputs; queries with 1 / (inputs K), since scores are not divided by sqrt(K).

    Embeddings have variance 1 if states are scaled down before the output, so that logits start with variance 1.
    """
    if isinstance(module, MultiHeadAttention):
        for projection, divisor in ((module.query, module.key_dim), (module.key, 1), (module.value, 1)):
            nn.init.normal_(projection.weight, std=(config.model_dim * divisor) ** -0.5)
    elif isinstance(module, nn.Linear) and not isinstance(module, Projection):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
        _clear_bias(module)
    elif isinstance(module, TokenEmbedding | OutputProjection):
        nn.init.normal_(module.weight, std=1.0 if config.scale_output else config.model_dim**-0.5)


def _clear_bias(linear: nn.Linear) -> None:
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
