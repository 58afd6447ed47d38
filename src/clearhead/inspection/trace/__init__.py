"""Traces: everything that a model computes for one input.

`run_trace` makes a `Trace` in three steps:

1. search (`trace_search`): the model's own engine finds the output and reports every candidate of the beam tree;
2. forced pass (`forced_pass`): the network runs once over the input and that output, all positions at once, while
   hooks (`activation_recorder`) record every attention and the residual stream;
3. the recorded tensors, tokens and candidates become a `Trace` (`trace_types`).

`head_ref` and `token_spans` do not import torch. Modules here do not import `analyses` or `render`.
"""
