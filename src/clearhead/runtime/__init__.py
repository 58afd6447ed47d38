"""Inference without torch: `prepare` converts the weights once, and the C++ core in `native/` computes.

Imports `config` and `errors`, never torch.
"""

from clearhead.runtime.availability import check_fallback, instruction_set, is_available, why_unavailable
from clearhead.runtime.cancellation import Cancellation
from clearhead.runtime.native_model import (
    ComputeType,
    CoreHypothesis,
    CoreSearch,
    NativeModel,
    NativeState,
)
from clearhead.runtime.prepare import prepare, why_unsupported

__all__ = [
    "Cancellation",
    "ComputeType",
    "CoreHypothesis",
    "CoreSearch",
    "NativeModel",
    "NativeState",
    "check_fallback",
    "instruction_set",
    "is_available",
    "prepare",
    "why_unavailable",
    "why_unsupported",
]
