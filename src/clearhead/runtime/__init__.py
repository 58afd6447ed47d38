"""Inference without torch: weights are prepared once, and the C++ core in native/ computes."""

from clearhead.runtime.availability import instruction_set, is_available, why_unavailable

__all__ = ["instruction_set", "is_available", "why_unavailable"]
