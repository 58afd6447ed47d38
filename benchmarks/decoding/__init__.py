"""Speed of inference against CTranslate2, onnxruntime and torch: `make bench-decoding DATA=<folder>` runs it."""
