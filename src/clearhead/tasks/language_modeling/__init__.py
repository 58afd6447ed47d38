"""Language modelling and text generation (S8)."""
