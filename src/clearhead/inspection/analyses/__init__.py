"""Analyses of traces and networks: head statistics, logit lens, ablation, attribution, word alignment.

The modules import `trace`, not `render`. Among each other, only `head_importance` imports `ablation`, and
`head_statistics` and `word_alignment` import `word_attention`.
"""
