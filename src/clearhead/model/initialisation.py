"""Fresh weights: one scheme for the paper's models, one for BERT and GPT, one for T5."""

from torch import nn

from clearhead.config import ModelConfig
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.embedding import TokenEmbedding
from clearhead.model.positions import LearnedPositions


def initialise(model: nn.Module, config: ModelConfig) -> None:
    """Fresh weights. Embeddings and positions draw their own, which the two special schemes replace.

    Xavier-uniform matrices; normal of deviation 0.02 everywhere where embeddings are not scaled (BERT, GPT); T5's where
    scores are not scaled but have relative positions. Biases are zero.
    """
    if config.positions == "relative" and not config.scale_attention:
        model.apply(lambda module: _draw_t5(module, config))
    elif not config.scale_embeddings:
        model.apply(_draw_narrow)
    else:
        model.apply(_draw_xavier)


def _draw_xavier(module: nn.Module) -> None:
    """The three input projections of attention each on their own."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        _clear_bias(module)
    elif isinstance(module, MultiHeadAttention):
        for part in module.in_parts():
            nn.init.xavier_uniform_(part.detach())


def _draw_narrow(module: nn.Module) -> None:
    """Normal of deviation 0.02, as in BERT and GPT."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        _clear_bias(module)
    elif isinstance(module, MultiHeadAttention):
        nn.init.normal_(module.in_weight, std=0.02)
    elif isinstance(module, TokenEmbedding):
        nn.init.normal_(module.weight, std=0.02)
    elif isinstance(module, LearnedPositions):
        nn.init.normal_(module.table_LD, std=0.02)


def _draw_t5(module: nn.Module, config: ModelConfig) -> None:
    """Variance 1 / inputs; the division of scores by sqrt(K) that is left out goes into the weights of queries.

    Tables have variance 1 where the states before the output are scaled down, so that logits start with variance 1.
    """
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
        _clear_bias(module)
    elif isinstance(module, MultiHeadAttention):
        for part, divisor in zip(module.in_parts(), (module.key_dim, 1, 1), strict=True):
            nn.init.normal_(part.detach(), std=(config.model_dim * divisor) ** -0.5)
    elif isinstance(module, TokenEmbedding):
        nn.init.normal_(module.weight, std=1.0 if config.scale_output else config.model_dim**-0.5)


def _clear_bias(linear: nn.Linear) -> None:
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
