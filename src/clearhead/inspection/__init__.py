"""Inspection of a trained model: traces of real runs, analyses of traces, and rendering of attention.

- `trace` records one run: attention weights, residual streams, logits, candidates and the beam tree.
- `analyses` compute from a trace or a network: head statistics, logit lens, ablation, attribution, word alignment.
- `render` draws attention as SVG, PNG or one HTML file.

The package may import every package that comes before it (config to training), but not api, serving, study or cli.
"""
