"""Training speed on a CPU, behind the functions that models call: linear, attention, dropout and cross_entropy.

Each function equals plain torch up to rounding; inside `disabled()` it consists of torch's operators, with the same
dropout masks. A layout says which rows of the activations belong to which sequence: padded, or padding-free where a CPU
trains.
"""

from clearhead.kernels.additive_attention import additive_scores
from clearhead.kernels.chunked_cross_entropy import cross_entropy
from clearhead.kernels.dot_product_attention import attention
from clearhead.kernels.dropout_masks import add_dropout, dropout, dropout_seed, replay_dropout
from clearhead.kernels.layout import AttentionLayout, Layout, PaddedLayout, sequence_layout
from clearhead.kernels.linear_layers import Linear, joint_linear, linear
from clearhead.kernels.switch import disabled

__all__ = [
    "AttentionLayout",
    "Layout",
    "Linear",
    "PaddedLayout",
    "add_dropout",
    "additive_scores",
    "attention",
    "cross_entropy",
    "disabled",
    "dropout",
    "dropout_seed",
    "joint_linear",
    "linear",
    "replay_dropout",
    "sequence_layout",
]
