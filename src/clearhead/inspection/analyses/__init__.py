"""Analyses of traces and networks: ablation, attribution, alignment, logit lens."""
