"""The CUDA provider: kernels compiled from Python, device virtual memory, CUDA graphs."""
