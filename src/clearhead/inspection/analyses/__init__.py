"""Analyses of traces and networks: head statistics, logit lens, ablation, attribution, word alignment.

Each module is independent, except that importance needs ablation, and alignment and antecedents need word attention.
Modules here import `trace`, not `render`.
"""
