"""Import of checkpoints of other toolkits, and export to standard formats: one module per format.

Imports torch, and of clearhead bundle, config, data, errors, extras, files, kernels, model and runtime.
"""
