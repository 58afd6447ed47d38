"""One model folder: weights, config, tokenizer, manifest and model card; atomic, checksummed, no pickle.

Knows bytes, arrays and JSON, nothing of model classes. Reading does not import torch; `writing` saves torch
tensors.

    model.safetensors  config.json  tokenizer.json  manifest.json  README.md     the bundle
    training/  metrics.jsonl                                                     beside it, never touched here
"""

from clearhead.bundle.manifest import FORMAT_VERSION, NO_TOKENIZER, FileRecord, Manifest, WeightsKind, exists
from clearhead.bundle.reader import Bundle, load, read_manifest

__all__ = [
    "FORMAT_VERSION",
    "NO_TOKENIZER",
    "Bundle",
    "FileRecord",
    "Manifest",
    "WeightsKind",
    "exists",
    "load",
    "read_manifest",
]
