"""What happened inside: every attention and every stream of a real run, read off the running model, and what it means.

`trace` is what was seen, `tracing` makes it; everything else stands on these two: statistics of heads, the logit lens,
ablation, attribution, importance, alignment, and pictures.
"""
