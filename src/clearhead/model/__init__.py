"""The model families and their parts. They know tensors and token ids; nothing of text, tasks or files."""
