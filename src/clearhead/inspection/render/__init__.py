"""Rendering of attention: heat maps as SVG or PNG images, and one self-contained HTML file with every head."""
