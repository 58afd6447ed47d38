"""What a model is trained for: one file a task, each with its examples, its loss and its score."""
