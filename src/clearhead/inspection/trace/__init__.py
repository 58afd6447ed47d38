"""Traces: the intermediate results of a model for one input.

`run_trace` returns a `Trace` in three steps:

1. Search (`trace_search`): the model's inference engine finds the output and reports every candidate of the search.
2. Forced pass (`forced_pass`): the network runs once over the input and that output, at all positions in parallel.
   Hooks (`activation_recorder`) record the weights of every attention and the residual streams.
3. The recorded tensors, the tokens and the candidates are collected in a `Trace` (`trace_types`).

`head_ref`, `token_spans` and `trace_types` do not import torch. The modules do not import `analyses` or `render`.
"""
