"""What of this folder is not searched for examples."""

collect_ignore = ["torch_encoder.py"]  # imports torch, which is not among our needs
