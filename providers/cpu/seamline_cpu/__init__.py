"""The CPU provider: NumPy and Numba kernels on the host."""
