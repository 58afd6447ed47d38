"""Encoder models with a head: classifiers of the input or of each token, masked language model, and embedding model.

As in the generators, `forward` returns hidden states and `logits` projects them; the embedding model has no logits.

B batch, S positions, D width of the encoder, L labels, M masked positions, V vocabulary
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.embedding import OutputProjection
from clearhead.model.normalization import build_norm


class Classifier(nn.Module):
    """Base class of classifiers: an encoder with a linear layer."""

    def __init__(self, config: ModelConfig, backbone: Any) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(backbone.width, config.num_labels)

    def logits(self, hidden_D: Tensor) -> Tensor:
        """Return logits_L of hidden states."""
        return self.output(hidden_D)


class SequenceClassifier(Classifier):
    """Predicts a label of the whole input from the pooled state."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return hidden_BD, the pooled states."""
        return self.dropout(self.backbone(inputs).pooled_BD)


class TokenClassifier(Classifier):
    """Predicts a label of each token from the state of its position."""

    def forward(self, inputs_BS: Tensor) -> Tensor:
        """Return hidden_BSD, the states of all positions."""
        return self.dropout(self.backbone(inputs_BS).states_BSD)


class EmbeddingModel(nn.Module):
    """An encoder without an output layer, which returns one vector per input."""

    def __init__(self, config: ModelConfig, backbone: Any) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone

    def forward(self, inputs: Tensor) -> Tensor:
        """Return pooled_BD."""
        return self.backbone(inputs).pooled_BD


class MaskedLanguageModel(nn.Module):
    """Predicts masked tokens, as BERT (Devlin et al. 2019) in its published code: LayerNorm(GELU(W h + b)), then the
    embedding as output projection."""

    def __init__(self, config: ModelConfig, backbone: Any) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.transform = nn.Linear(backbone.width, backbone.width)
        self.norm = build_norm(config)
        self.output = OutputProjection(config.vocab_size, backbone.width, backbone.embedding.tokens.weight, bias=True)

    def forward(self, inputs_BS: Tensor, is_masked_BS: Tensor | None = None) -> Tensor:
        """Return hidden_MD of the masked positions, row by row, or hidden_BSD of all positions."""
        states_BSD = self.backbone(inputs_BS).states_BSD
        states_D = states_BSD if is_masked_BS is None else states_BSD[is_masked_BS]
        return self.norm(F.gelu(self.transform(states_D)))

    def logits(self, hidden_D: Tensor) -> Tensor:
        """Return logits_V of hidden states."""
        return self.output(hidden_D)
