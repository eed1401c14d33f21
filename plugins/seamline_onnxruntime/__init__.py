"""ONNX Runtime's CPU as a provider: a peer, and an example of a whole-segment compiler."""
