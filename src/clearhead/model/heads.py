"""What stands on a body that reads: one label for the whole, one tag a place, the words behind masks, or nothing.

B batch, S places, D width of the body, L labels, M masked places, V vocabulary
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.model.dropout import Dropout
from clearhead.model.embedding import OutputProjection
from clearhead.model.normalisation import build_norm
from clearhead.model.reading import Read


class LinearHead(nn.Module):
    """A body with a linear layer on it: what networks that give labels and tags have in common."""

    def __init__(self, config: ModelConfig, backbone: Any) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(backbone.width, config.num_labels)


class LabelNetwork(LinearHead):
    """Sequence to vector to label: a linear layer on the pooled state."""

    def forward(self, inputs: Tensor) -> Tensor:
        """logits_BL."""
        return self.predict(self.backbone(inputs))

    def predict(self, read: Read) -> Tensor:
        """logits_BL from what the body read."""
        logits_BL: Tensor = self.output(self.dropout(read.pooled_BD))
        return logits_BL


class VectorNetwork(nn.Module):
    """A body alone: a vector for the whole."""

    def __init__(self, config: ModelConfig, backbone: Any) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone

    def forward(self, inputs: Tensor) -> Tensor:
        """pooled_BD."""
        read: Read = self.backbone(inputs)
        return read.pooled_BD

    def predict(self, read: Read) -> Tensor:
        """logits_B01: no answers, for a vector is not chosen from anything."""
        return read.pooled_BD.new_zeros(len(read.pooled_BD), 0, 1)


class TagNetwork(LinearHead):
    """Sequence to sequence of tags: a linear layer on the state of each place."""

    def forward(self, inputs_BS: Tensor) -> Tensor:
        """logits_BSL."""
        return self.predict(self.backbone(inputs_BS))

    def predict(self, read: Read) -> Tensor:
        """logits_BSL from what the body read."""
        logits_BSL: Tensor = self.output(self.dropout(read.states_BSD))
        return logits_BSL


class MaskedNetwork(nn.Module):
    """The words behind masks, as in BERT: a layer, a norm, and the embedding table as output, with a bias."""

    def __init__(self, config: ModelConfig, backbone: Any) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.transform = nn.Linear(backbone.width, backbone.width)
        self.norm = build_norm(config)
        self.output = OutputProjection(config.vocab_size, backbone.width, backbone.embedding.tokens.weight, bias=True)

    def forward(self, inputs_BS: Tensor, places_BS: Tensor) -> Tensor:
        """hidden_MD of the places that are asked for, row by row."""
        return self.hidden(self.backbone(inputs_BS).states_BSD[places_BS])

    def hidden(self, states_MD: Tensor) -> Tensor:
        """What the table is compared with."""
        hidden_MD: Tensor = self.norm(F.gelu(self.transform(states_MD)))
        return hidden_MD

    def predict(self, read: Read) -> Tensor:
        """logits_BSV of all places, masked or not."""
        return self.logits(self.hidden(read.states_BSD))

    def logits(self, hidden_MD: Tensor) -> Tensor:
        """logits_MV."""
        logits_MV: Tensor = self.output(hidden_MD)
        return logits_MV
