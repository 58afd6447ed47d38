"""Heads on an encoder: a label for the input, a label for each token, the tokens behind masks, or none.

B batch, S positions, D width of the encoder, L labels, M masked positions, V vocabulary
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.embedding import OutputProjection
from clearhead.model.encoder_output import EncoderOutput
from clearhead.model.normalization import build_norm


class Classifier(nn.Module):
    """Base class of classifiers: an encoder with a linear layer."""

    def __init__(self, config: ModelConfig, backbone: Any) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(backbone.width, config.num_labels)


class SequenceClassifier(Classifier):
    """A linear layer on the pooled state: a label for the whole input."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits_BL."""
        return self.predict(self.backbone(inputs))

    def predict(self, encoded: EncoderOutput) -> Tensor:
        """Return logits_BL of an encoded input."""
        logits_BL: Tensor = self.output(self.dropout(encoded.pooled_BD))
        return logits_BL


class TokenClassifier(Classifier):
    """A linear layer on the state of each position: a label for each token."""

    def forward(self, inputs_BS: Tensor) -> Tensor:
        """Return logits_BSL."""
        return self.predict(self.backbone(inputs_BS))

    def predict(self, encoded: EncoderOutput) -> Tensor:
        """Return logits_BSL of an encoded input."""
        logits_BSL: Tensor = self.output(self.dropout(encoded.states_BSD))
        return logits_BSL


class EmbeddingModel(nn.Module):
    """An encoder alone: a vector for the whole input."""

    def __init__(self, config: ModelConfig, backbone: Any) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone

    def forward(self, inputs: Tensor) -> Tensor:
        """Return pooled_BD."""
        encoded: EncoderOutput = self.backbone(inputs)
        return encoded.pooled_BD

    def predict(self, encoded: EncoderOutput) -> Tensor:
        """Return logits_B01, without any answer: a vector is not chosen from a set."""
        return encoded.pooled_BD.new_zeros(len(encoded.pooled_BD), 0, 1)


class MaskedLanguageModel(nn.Module):
    """Predicts the tokens behind masks, as BERT: a linear layer, a norm, and the embedding as output projection."""

    def __init__(self, config: ModelConfig, backbone: Any) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.transform = nn.Linear(backbone.width, backbone.width)
        self.norm = build_norm(config)
        self.output = OutputProjection(config.vocab_size, backbone.width, backbone.embedding.tokens.weight, bias=True)

    def forward(self, inputs_BS: Tensor, is_masked_BS: Tensor) -> Tensor:
        """Return hidden_MD of the masked positions, row by row."""
        return self.hidden(self.backbone(inputs_BS).states_BSD[is_masked_BS])

    def hidden(self, states_D: Tensor) -> Tensor:
        """Return the input of the output projection."""
        hidden_D: Tensor = self.norm(F.gelu(self.transform(states_D)))
        return hidden_D

    def predict(self, encoded: EncoderOutput) -> Tensor:
        """Return logits_BSV of all positions."""
        return self.logits(self.hidden(encoded.states_BSD))

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """Return logits_MV of hidden states."""
        logits_MV: Tensor = self.output(hidden_MD)
        return logits_MV
