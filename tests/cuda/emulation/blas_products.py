"""What the emulated cuBLASLt computes: products of strided matrices, column by column."""

from __future__ import annotations

import ctypes
import math

import attrs
import ml_dtypes
import numpy as np
from nvmath import CudaDataType
from nvmath.bindings import cublasLt
from nvmath.bindings.cublas import ComputeType

TYPES = {
    int(CudaDataType.CUDA_R_32F): np.float32,
    int(CudaDataType.CUDA_R_16F): np.float16,
    int(CudaDataType.CUDA_R_16BF): ml_dtypes.bfloat16,
    int(CudaDataType.CUDA_R_64F): np.float64,
}
R_32F, R_16F, R_16BF, R_64F = TYPES
TRANSPOSED = 1
_BIAS_ALIGNED = 16  # bytes


@attrs.define(eq=False)
class Layout:
    """A matrix, column by column."""

    type: int
    rows: int
    cols: int
    ld: int
    batch: int = 1
    stride: int = 0

    def extent(self):
        """Give the elements from the first to one past the last."""
        return (self.batch - 1) * self.stride + (self.cols - 1) * self.ld + self.rows


class Multiplying:
    """Products over the memory of ``state``."""

    state = None

    def multiply(self, product, layouts, addresses, alpha, beta):
        wide = np.float64 if product["SCALE_TYPE"] == R_64F else np.float32
        a, b, c, _ = (
            self._matrices(x, address, wide)
            for x, address in zip(layouts, addresses, strict=True)
        )
        if product["COMPUTE_TYPE"] == ComputeType.COMPUTE_32F_FAST_TF32:
            a, b = _shortened(a), _shortened(b)
        a = a.swapaxes(1, 2) if product.get("TRANSA") == TRANSPOSED else a
        b = b.swapaxes(1, 2) if product.get("TRANSB") == TRANSPOSED else b
        with np.errstate(all="ignore"):
            made = wide(alpha) * (a @ b)
            if beta:
                made = made + wide(beta) * c
            made = self._finished(product, layouts[3], made, wide)
            self._store(layouts[3], addresses[3], made)

    def _finished(self, product, layout, made, wide):
        after = cublasLt.Epilogue(
            product.get("EPILOGUE", cublasLt.Epilogue.DEFAULT)
        ).name
        if "BIAS" in after:
            address, kind = product["BIAS_POINTER"], product["BIAS_DATA_TYPE"]
            assert address % _BIAS_ALIGNED == 0, "kernels load the bias by 16 bytes"
            made = made + self._flat(TYPES[kind], address, layout.rows)[:, None].astype(
                wide
            )
        if "RELU" in after:
            made = np.where(made < 0, wide(0), made)
        if "GELU" in after:
            inner = math.sqrt(2 / math.pi) * (made + 0.044715 * made**3)
            made = 0.5 * made * (1 + np.tanh(inner))
        return made

    def _matrices(self, layout, address, wide):
        return np.array(self._view(layout, address), wide)

    def _store(self, layout, address, made):
        self._view(layout, address)[...] = made.astype(TYPES[layout.type])

    def _view(self, layout, address):
        flat = self._flat(TYPES[layout.type], address, layout.extent())
        size = flat.itemsize
        return np.lib.stride_tricks.as_strided(
            flat,
            (layout.batch, layout.rows, layout.cols),
            (layout.stride * size, size, layout.ld * size),
        )

    def _flat(self, kind, address, count):
        nbytes = count * np.dtype(kind).itemsize
        there = self.state.host(address, nbytes, "a matrix of a product")
        raw = (ctypes.c_uint8 * nbytes).from_address(there)
        return np.frombuffer(raw, np.uint8).view(kind)


def _shortened(values):
    """Round to TF32: ten bits of mantissa, halves to even."""
    bits = values.view(np.uint32)
    low = (bits >> 13) & 1
    return ((bits + np.uint32(0xFFF) + low) & np.uint32(0xFFFFE000)).view(np.float32)
