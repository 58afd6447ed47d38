"""Initialization of weights: one scheme for the paper's models, one for BERT and GPT, one for T5."""

from torch import nn

from clearhead.config import ModelConfig
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.embedding import OutputProjection, TokenEmbedding
from clearhead.model.positions import LearnedPositions


def initialize(model: nn.Module, config: ModelConfig) -> None:
    """Initialize the weights of a Transformer. The paper defines no scheme, so the settings select one of three.

    Models with relative positions and unscaled scores use T5's. Other models with unscaled embeddings use that of BERT
    and GPT: normal with standard deviation 0.02. All others have Xavier-uniform matrices, and the embeddings and
    positions set by their constructors. Biases of linear layers are 0. Norms, relative biases, class tokens and output
    heads keep the values set by their constructors.
    """
    if config.positions == "relative" and not config.scale_attention:
        model.apply(lambda module: _initialize_t5(module, config))
    elif not config.scale_embeddings:
        model.apply(_initialize_bert)
    else:
        model.apply(_initialize_xavier)


def _initialize_xavier(module: nn.Module) -> None:
    """Draw matrices from the uniform distribution of Glorot and Bengio (2010)."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        _clear_bias(module)


def _initialize_bert(module: nn.Module) -> None:
    """Draw all weights from a normal distribution with standard deviation 0.02."""
    if isinstance(module, nn.Linear | TokenEmbedding | OutputProjection | LearnedPositions):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        _clear_bias(module)


def _initialize_t5(module: nn.Module, config: ModelConfig) -> None:
    """Draw matrices with variance 1 / inputs; queries with 1 / (inputs * K), since scores are not divided by sqrt(K).

    Embeddings have variance 1 if states are scaled down before the output, so that logits start with variance 1.
    """
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
        _clear_bias(module)
    elif isinstance(module, MultiHeadAttention):  # visited after its projections, whose values are overwritten here
        nn.init.normal_(module.query.weight, std=(config.model_dim * module.key_dim) ** -0.5)
    elif isinstance(module, TokenEmbedding | OutputProjection):
        nn.init.normal_(module.weight, std=1.0 if config.scale_output else config.model_dim**-0.5)


def _clear_bias(linear: nn.Linear) -> None:
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
