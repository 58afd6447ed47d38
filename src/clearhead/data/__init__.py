"""From files to batches: readers, the built-in grammar, the tokenizer, ids, and which examples go together."""
