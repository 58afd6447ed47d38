"""Searching for the best output: search over a step function, and the engines that run requests."""
