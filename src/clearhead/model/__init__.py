"""The model families and their parts. They compute with tensors and token ids."""
