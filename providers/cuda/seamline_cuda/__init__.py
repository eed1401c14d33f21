"""The CUDA provider's place: a name that says why it cannot be used yet."""
