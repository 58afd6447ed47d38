"""Checkpoints of other toolkits in, standard formats out: one small file a format, a table of names each."""
