"""ONNX export: models that generate text as an encoder and a decoder step, encoders with a head as one graph."""
