"""
Matrix products: MatMul, Gemm, and onnxruntime's FusedMatMul.

float32 times a constant, and stacks in float32, go to register tiles; the rest of float32
and float64 to NumPy's BLAS with the output given, a stack times one matrix as one product.
float16 and bfloat16 are multiplied in float32 and rounded once. Integers are exact, and
wrap as C does.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import FLOATS
from seamline_cpu.binding import in_order
from seamline_cpu.kernels.broadcast_commands import bind_binary
from seamline_cpu.kernels.epilogues import PLAIN, Epilogue, bind_after
from seamline_cpu.kernels.few_rows import few_rows
from seamline_cpu.kernels.packed_product import packed
from seamline_cpu.kernels.panels import (
    bind_packing,
    empty_panels,
    pack_panels,
    packed_nbytes,
)
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.kernels.stacked_product import stacked
from seamline_cpu.table import TABLE

__all__ = ["bind_fused", "bind_product", "product"]

CONTRIB = "com.microsoft"
_DTYPES = (*FLOATS, "int32", "int64", "uint32", "uint64")
#: Bytes of a float32 copy of a constant half-precision weight that may be kept.
_KEEP_WIDE = 32 << 20
#: Bytes of a constant weight that may be kept packed.
_KEEP_PACKED = 256 << 20
#: Rows from which packed tiles pay; fewer only read the matrix once.
_TILED_ROWS = 4
#: Matrices of a stack that are commands of their own where each has few rows.
_APART = 64


def product(a: Array, b: Array, out: Array) -> Run:
    """Bind ``out = a @ b`` for arrays of one dtype that NumPy multiplies itself."""
    if 0 in a.shape or 0 in b.shape:
        return functools.partial(out.fill, 0)
    if a.ndim == 1 and b.ndim == 1:
        a, b, out = a[None], b[:, None], out.reshape(1, 1)
    elif b.ndim == 1:
        b, out = b[:, None], out[..., None]
    elif a.ndim == 1:
        a, out = a[None], out[..., None, :]
    if b.ndim > 2 and math.prod(b.shape[:-2]) == 1 and a.ndim >= b.ndim:
        b = b.reshape(b.shape[-2:])
    if a.ndim > 2 and b.ndim == 2 and _joins(a):
        a, out = a.reshape(-1, a.shape[-1]), out.reshape(-1, out.shape[-1])
    return functools.partial(np.matmul, a, b, out)


def _joins(a: Array) -> bool:
    """Tell whether leading axes join into one without a copy."""
    return all(
        a.shape[i] == 1
        or a.strides[i - 1] == a.shape[i] * a.strides[i]
        or a.shape[i - 1] == 1
        for i in range(1, a.ndim - 1)
    )


def _tiled(
    call: Call, a: Array, b: Array, out: Array, epilogue: Epilogue
) -> Run | None:
    """Bind a float32 product by this provider's own commands, where BLAS is not needed."""
    if out.dtype != np.float32 or b.ndim < 2 or 0 in (*a.shape, *b.shape):
        return None
    threads = threads_of(call.options)
    a = a[None] if a.ndim == 1 else a
    if math.prod(b.shape[:-2]) == 1 and a.ndim >= b.ndim:
        b = b.reshape(b.shape[-2:])
        return _by_one_matrix(call, a, b, out, threads, epilogue) if _joins(a) else None
    stacks = a.shape[:-2] == b.shape[:-2] and not epilogue.is_there
    if not stacks or not (_joins(a) and _joins(b)):
        return None
    a, b, out = (x.reshape(-1, *x.shape[-2:]) for x in (a, b, out))
    straight = a[0].flags.c_contiguous and 4 in b.strides[1:]
    if a.shape[1] < _TILED_ROWS and len(a) <= _APART and straight:
        each = zip(a, b, out, strict=True)
        return in_order([few_rows(x, w, y, 1) for x, w, y in each])
    return stacked(a, b, out, threads)


def _by_one_matrix(
    call: Call, a: Array, b: Array, out: Array, threads: int, epilogue: Epilogue
) -> Run | None:
    a = a.reshape(-1, a.shape[-1])
    rows = len(a)
    out = out.reshape(rows, -1)
    straight = a.flags.c_contiguous and 4 in b.strides
    if rows < _TILED_ROWS and straight:
        return few_rows(a, b, out, threads, epilogue)
    if packed_nbytes(b) > _KEEP_PACKED or (a.strides[1] != 4 and epilogue.is_there):
        return None
    if a.strides[1] != 4:
        return stacked(a[None], b[None], out[None], threads)
    if call.constant(1) is None:
        panels = empty_panels(b.shape)
        packing = bind_packing(b, panels, threads)
        return in_order([packing, packed(a, panels, out, threads, epilogue)])
    tag = f"panels {b.shape} {b.strides}"
    panels = call.resident(tag, (1,), lambda: pack_panels(b))
    return packed(a, panels, out, threads, epilogue)


def bind_fused(call: Call, a: Array, b: Array, out: Array, epilogue: Epilogue) -> Run:
    """Bind ``out = a @ b`` in float32, and what follows."""
    _check(a, b)
    if (tiled := _tiled(call, a, b, out, epilogue)) is not None:
        return tiled
    after = bind_after(epilogue, out, threads_of(call.options))
    return in_order((product(a, b, out), *after))


def _check(a: Array, b: Array) -> None:
    if a.shape[-1:] != b.shape[max(b.ndim - 2, 0) :][:1]:
        raise ValueError(f"{list(a.shape)} cannot be multiplied by {list(b.shape)}")
    np.broadcast_shapes(a.shape[:-2], b.shape[:-2])


def bind_product(call: Call, a: Array, b: Array, out: Array, alpha: float = 1.0) -> Run:
    """
    Bind ``out = alpha * (a @ b)``, with ``a`` and ``b`` views of inputs 0 and 1.

    Raises
    ------
    ValueError
        Rows of ``a`` are not as long as columns of ``b``, or the stacks do not broadcast.
    """
    _check(a, b)
    if a.dtype.kind in "iu" or a.dtype.itemsize >= 4:
        multiply = _tiled(call, a, b, out, PLAIN) or product(a, b, out)
        return multiply if alpha == 1 else _then_scaled(call, multiply, out, alpha)
    wide, left = np.empty(out.shape, np.float32), np.empty(a.shape, np.float32)
    fixed = call.constant(1) is not None and b.size * 4 <= _KEEP_WIDE
    if fixed:
        tag = f"float32 {b.shape} {b.strides}"
        right = call.resident(tag, (1,), lambda: b.astype(np.float32))
    else:
        right = np.empty(b.shape, np.float32)
    multiply = product(left, right, wide)
    multiply = multiply if alpha == 1 else _then_scaled(call, multiply, wide, alpha)

    def run() -> None:
        np.copyto(left, a)
        if not fixed:
            np.copyto(right, b)
        multiply()
        np.copyto(out, wide, casting="unsafe")

    return run


def _then_scaled(call: Call, multiply: Run, out: Array, alpha: float) -> Run:
    factor = np.array(alpha, out.dtype)
    native = bind_binary("Mul", call, out, factor, out)
    scale = native or functools.partial(np.multiply, out, factor, out)
    return in_order((multiply, scale))


@TABLE.kernel("MatMul", dtypes=_DTYPES, not_capturable=OF_FLOAT32)
def matmul(call: Call) -> Run:
    """Bind MatMul, with NumPy's rules for one dimension and for stacks."""
    return bind_product(call, call.input(0), call.input(1), call.output(0))


@TABLE.kernel("FusedMatMul", domain=CONTRIB, dtypes=FLOATS, not_capturable=OF_FLOAT32)
def fused_matmul(call: Call) -> Run:
    """
    Bind ``alpha * A' @ B'``.

    ``transBatchX`` takes the first axis to where rows are; ``transX`` then swaps the
    last two. A vector is not transposed.
    """
    views: list[Array] = []
    for index, side in enumerate("AB"):
        x = call.input(index)
        if x.ndim > 2 and call.attr(f"transBatch{side}", 0):
            x = np.moveaxis(x, 0, -2)
        if x.ndim > 1 and call.attr(f"trans{side}", 0):
            x = x.swapaxes(-1, -2)
        views.append(x)
    a, b = views
    return bind_product(call, a, b, call.output(0), float(call.attr("alpha", 1.0)))


def _whole_factors(view: NodeView) -> str | None:
    kind = view.tensor(0)
    if kind is None or kind.dtype in FLOATS:
        return None
    for name in ("alpha", "beta"):
        value = view.attributes.get(name, 1.0)
        if value != int(value):
            return (
                f"{name} is {value}, and integers are multiplied by whole numbers only"
            )
    return None


@TABLE.kernel(
    "Gemm", since=7, dtypes=_DTYPES, when=_whole_factors, not_capturable=OF_FLOAT32
)
def gemm(call: Call) -> Run:
    """Bind ``alpha * A' @ B' + beta * C``; half precision is rounded once, at the end."""
    a, b, c, y = call.input(0), call.input(1), call.input(2), call.output(0)
    a = a.T if call.attr("transA", 0) else a
    b = b.T if call.attr("transB", 0) else b
    alpha, beta = call.attr("alpha", 1.0), call.attr("beta", 1.0)
    if c is None or beta == 0:
        return bind_product(call, a, b, y, alpha)
    exact = y.dtype.kind in "iu" or y.dtype.itemsize >= 4
    wide = y if exact else np.empty(y.shape, np.float32)
    add = _addition(call, c, beta, wide)
    if exact:
        multiply = bind_product(call, a, b, y, alpha)
        return in_order((multiply, add))

    def run() -> None:
        np.matmul(a.astype(np.float32), b.astype(np.float32), out=wide)
        np.multiply(wide, np.float32(alpha), out=wide)
        add()
        np.copyto(y, wide, casting="unsafe")

    return run


def _addition(call: Call, c: Array, beta: float, out: Array) -> Run:
    """Bind ``out += beta * C``; a constant C is multiplied once."""
    kind: Any = out.dtype.type
    if beta == 1 and c.dtype == out.dtype:
        return _added(call, c, out)
    if call.constant(2) is not None:
        return _added(call, np.asarray(c.astype(out.dtype) * kind(beta)), out)
    return lambda: np.add(out, c.astype(out.dtype) * kind(beta), out)


def _added(call: Call, c: Array, out: Array) -> Run:
    native = bind_binary("Add", call, out, c, out)
    return native or functools.partial(np.add, out, c, out)
