"""Translation of texts (S1 to S4)."""
