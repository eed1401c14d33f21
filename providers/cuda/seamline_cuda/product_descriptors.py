"""What cuBLASLt is told of a product: its operation, its four matrices, and where they lie."""

from __future__ import annotations

import contextlib

from seamline_cuda.blaslt import Described, constant, described
from seamline_cuda.works import Matrix, ProductWork

__all__ = ["addresses_of", "alignment_of", "layout_of", "operation_of", "width_of"]

_TYPES = {
    "float32": "CUDA_R_32F",
    "float16": "CUDA_R_16F",
    "bfloat16": "CUDA_R_16BF",
    "float64": "CUDA_R_64F",
}
_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
_ALIGNED = 256  #: bytes; the most that the library's algorithms ask for
_TRANSPOSED = 1  #: CUBLAS_OP_T


def operation_of(work: ProductWork, stack: contextlib.ExitStack) -> Described:
    """Describe what is computed; the factors change places, see :mod:`seamline_cuda.products`."""
    wide = work.dtype == "float64"
    exact = "COMPUTE_64F" if wide else "COMPUTE_32F"
    fast = work.tf32 and work.dtype == "float32"
    made = described(
        "matmul_desc",
        constant("ComputeType", "COMPUTE_32F_FAST_TF32" if fast else exact),
        constant("CudaDataType", "CUDA_R_64F" if wide else "CUDA_R_32F"),
    )
    stack.callback(made.close)
    if work.b.swapped:
        made.set("TRANSA", _TRANSPOSED)
    if work.a.swapped:
        made.set("TRANSB", _TRANSPOSED)
    after = [work.activation.upper()] if work.activation else []
    after += ["BIAS"] if work.bias else []
    if after:
        made.set("EPILOGUE", constant("Epilogue", "_".join(after)))
    if work.bias:
        made.set("BIAS_POINTER", work.bias)
        made.set("BIAS_DATA_TYPE", _type_of(work.result or work.dtype))
    return made


def layout_of(
    work: ProductWork,
    matrix: Matrix,
    dtype: str,
    rows: int,
    columns: int,
    stack: contextlib.ExitStack,
) -> Described:
    """Describe what is stored, column by column: its rows are the columns here."""
    if matrix.swapped:
        rows, columns = columns, rows
    made = described("matrix_layout", _type_of(dtype), columns, rows, matrix.leading)
    stack.callback(made.close)
    if work.batch > 1:
        made.set("BATCH_COUNT", work.batch)
        made.set("STRIDED_BATCH_OFFSET", matrix.stride)
    return made


def _type_of(dtype: str) -> int:
    return constant("CudaDataType", _TYPES[dtype])


def width_of(dtype: str) -> int:
    """Give the bytes of an element."""
    return _WIDTHS[dtype]


def addresses_of(work: ProductWork) -> list[tuple[str, int]]:
    """Give a number for each operand that has the alignment of all its matrices."""
    addend, result = work.addend or work.target, work.result or work.dtype
    found = []
    for letter, matrix, dtype in (
        ("A", work.b, work.dtype), ("B", work.a, work.dtype),
        ("C", addend, result), ("D", work.target, result),
    ):  # fmt: skip
        steps = matrix.stride * _WIDTHS[dtype] if work.batch > 1 else 0
        found.append((letter, matrix.address | steps))
    return found


def alignment_of(address: int) -> int:
    """Give the greatest power of 2 that divides an address, as far as it matters."""
    return min(address & -address or _ALIGNED, _ALIGNED)
