"""Classification of images (S10)."""
