"""Figures of attention: heat maps as SVG or PNG, and the HTML file."""
