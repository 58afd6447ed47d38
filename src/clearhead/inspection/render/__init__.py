"""Rendering of attention: heat maps as SVG or PNG, and one self-contained HTML file with every head."""
