"""Inspection of a trained model: traces of single runs, analyses of traces, and rendering of attention.

- `trace` records one run: attention weights, residual streams, logits, candidates and the beam tree.
- `analyses` computes head statistics, logit lens, ablation, attribution and word alignment from a trace or a network.
- `render` draws attention as SVG, PNG or one HTML file.

The package may import every lower package (config to training), but not api, serving, study or cli.
"""
