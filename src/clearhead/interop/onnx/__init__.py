"""ONNX export: generating models as encoder and decoder step, encoders with a head as one graph."""
