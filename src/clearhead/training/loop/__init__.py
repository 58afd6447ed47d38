"""The training loop: updates, learning rate, validations, gradients and callbacks."""
