"""Functions that make training on a CPU fast: linear layers, attention, additive scores, dropout and cross-entropy.

Each function computes the formula in its docstring, up to rounding; dropout draws other masks than torch. Inside
`disabled()`, the functions use torch's operators, with the same dropout masks. A layout defines which rows of the
activations belong to which sequence; it is padded, or padding-free during training on a CPU. Imports torch, and no
other package of clearhead.
"""

from clearhead.kernels.additive_attention import additive_scores
from clearhead.kernels.chunked_cross_entropy import cross_entropy
from clearhead.kernels.dot_product_attention import attention
from clearhead.kernels.dropout_masks import add_dropout, dropout, dropout_seed, replay_dropout
from clearhead.kernels.layout import AttentionLayout, Layout, PaddedLayout, sequence_layout
from clearhead.kernels.linear_layers import Linear, joint_linear, linear
from clearhead.kernels.lstm_padding import keep_cell_at_padding
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
    "keep_cell_at_padding",
    "linear",
    "replay_dropout",
    "sequence_layout",
]
