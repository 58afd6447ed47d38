"""What happened inside: attention of real translations, read off the running model."""
