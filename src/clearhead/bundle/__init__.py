"""The model folder: weights, config, tokenizer, manifest and model card, written atomically, with checksums, no pickle.

    model.safetensors  config.json  tokenizer.json  manifest.json  README.md     the bundle
    training/  metrics.jsonl                                                     in the same folder, not part of it

`manifest` defines the file names and `manifest.json`, `reader` loads a bundle, `writer` saves one, and `model_card`
formats README.md. Contents are bytes, arrays and JSON, independent of model classes. Only `writer` imports torch.
Imports `errors` and `files`.
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
