"""The studies, one module per claim (C1 to C15)."""
