"""Classification of texts (S5)."""
