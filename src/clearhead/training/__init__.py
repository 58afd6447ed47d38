"""From data to weights: schedule, gradients on every core, the loop, and what it leaves on disk."""
