"""Import of checkpoints from other toolkits, and export to other formats: one module per format.

Imports torch, and of clearhead bundle, config, data, errors, extras, files, kernels, model and runtime.
"""
