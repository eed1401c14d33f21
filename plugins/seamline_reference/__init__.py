"""Any operator that ``onnx.reference`` implements: slow, exact, and only when named."""
