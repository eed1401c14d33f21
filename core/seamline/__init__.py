"""Run ONNX graphs across providers, with every seam between them in the open."""
