"""
MatMul and Gemm of whole numbers, and MatMulInteger, by a kernel of their own.

Sums are made in the result's type and wrap as it does, as ONNX allows: int32 for
MatMulInteger, whose zero points are one for all, or one for each row of A and column of B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import attrs

from seamline.fitting import all_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline.tensors import TensorType, numpy_dtype
from seamline_cuda.integer_texts import THREADS, TILE, product_kernel
from seamline_cuda.matmul import c_steps, matrices_of, unfit, unfit_gemm, unfit_sizes
from seamline_cuda.matrices import Factor, Multiplied
from seamline_cuda.works import KernelWork, Work

__all__ = ["add_to", "multiply_bytes", "multiply_integers", "unfit_bytes", "unfit_each"]

_WORDS = ("int32", "int64", "uint32", "uint64")
_BYTES = ("int8", "uint8")
_BECAUSE = "whole numbers are multiplied exactly, in tiles by a kernel of its own"


@attrs.frozen
class _Operands:
    """Addresses and numbers of a product beside its factors'."""

    a_zero: int = 0
    b_zero: int = 0
    a_zeros: int = 0
    b_zeros: int = 0
    c: int = 0
    c_steps: tuple[int, int] = (0, 0)
    alpha: int = 1
    beta: int = 0


def _steps(factor: Factor) -> tuple[int, int]:
    """Give the elements from one row to the next, and from one column."""
    return (1, factor.leading) if factor.swapped else (factor.leading, 1)


def _products(call: Call, found: Multiplied, given: _Operands) -> Iterator[KernelWork]:
    a, b, y = call.inputs[0], call.inputs[1], call.outputs[0]
    summed = y.kind.dtype
    kernel = product_kernel(
        a.kind.dtype, b.kind.dtype, summed, a_swapped=found.a.swapped,
        b_swapped=found.b.swapped,
        zeros="a" * bool(given.a_zero) + "b" * bool(given.b_zero),
    )  # fmt: skip
    stacks = found.stacks
    down, across = -(-found.rows // TILE), -(-found.columns // TILE)
    width = numpy_dtype(summed).itemsize
    size = found.rows * found.columns
    for first, second, third in stacks.starts:
        # A batch's results follow one another, else each product is a launch of its own.
        together = stacks.batch if stacks.step == 1 else 1
        for turn in range(stacks.batch // together):
            one = (first + turn * stacks.a_step, second + turn * stacks.b_step)
            places = (
                a.address + one[0] * found.a.distance * numpy_dtype(a.kind.dtype).itemsize,
                b.address + one[1] * found.b.distance * numpy_dtype(b.kind.dtype).itemsize,
                given.c, given.a_zero, given.b_zero,
                y.address + (third + turn * stacks.step) * size * width,
            )  # fmt: skip
            numbers = (
                found.rows, found.columns, found.depth, *_steps(found.a), *_steps(found.b),
                stacks.a_step * found.a.distance, stacks.b_step * found.b.distance,
                given.a_zeros, given.b_zeros, across, down, *given.c_steps,
                given.alpha, given.beta,
            )  # fmt: skip
            blocks = together * across * down
            yield KernelWork(
                kernel, (*places, *numbers), blocks * THREADS, THREADS, blocks
            )


def multiply_integers(call: Call) -> Sequence[Work]:
    """Multiply whole numbers, and add C where it is given."""
    found = matrices_of(call.view)
    assert found is not None, "sizes are known when a segment is bound"
    if found.is_empty:
        return []
    given = _Operands(alpha=int(call.attr("alpha", 1)))
    c = call.input(2)
    if c is not None and call.attr("beta", 1.0):
        given = attrs.evolve(
            given,
            c=c.address,
            c_steps=c_steps(c.kind.sizes),
            beta=int(call.attr("beta", 1)),
        )
    return list(_products(call, found, given))


def multiply_bytes(call: Call) -> Sequence[Work]:
    """Multiply bytes less their zero points."""
    found = matrices_of(call.view)
    assert found is not None, "sizes are known when a segment is bound"
    if found.is_empty:
        return []
    a, b = call.input(2), call.input(3)
    given = _Operands(
        a_zero=a.address if a is not None else 0,
        b_zero=b.address if b is not None else 0,
        a_zeros=int(a is not None and a.nbytes > 1),
        b_zeros=int(b is not None and b.nbytes > 1),
    )
    return list(_products(call, found, given))


def _whole_factors(node: NodeView) -> str | None:
    for name in ("alpha", "beta"):
        value = node.attributes.get(name, 1.0)
        if value != int(value):
            return f"{name} is {value}, and whole numbers are multiplied by whole ones only"
    return None


def unfit_bytes(node: NodeView) -> str | None:
    """Refuse zero points that are neither one for all nor one for each row or column."""
    found = matrices_of(node)
    zeros = [node.tensor(index) for index in (2, 3)]
    for index, zero in zip((2, 3), zeros, strict=True):
        if node.has_input(index) and (zero is None or not zero.is_sized):
            return f"the size of zero point {index} is not known"
    if found is None:
        return None
    for zero, is_left in zip(zeros, (True, False), strict=True):
        if zero is not None and (why := unfit_each(zero, found, is_left=is_left)):
            return f"a zero point is {zero}; {why}"
    return None


def unfit_each(kind: TensorType, found: Multiplied, *, is_left: bool) -> str | None:
    """
    Say what is accepted where a scale or zero point is not one for all or for each.

    For each row of A, with an axis of 1 after it where it has several, or for each column
    of B, with axes of 1 before it. Of a stack all matrices have the same, unless the stack
    is one product with more rows.
    """
    many, what = (found.rows, "row of A") if is_left else (found.columns, "column of B")
    sizes = kind.sizes
    inside = sizes[-1:] if is_left else sizes[:-1]
    alone = len(sizes) == 1 or math.prod(inside) == 1
    if math.prod(sizes) == 1 or (alone and math.prod(sizes) == many):
        return None
    return f"one for all, or one for each {what}, is accepted"


def add_to(table: KernelTable) -> None:
    """Add products of whole numbers."""
    for op_type, since, when in (
        ("MatMul", 9, unfit),
        ("Gemm", 9, all_of(unfit_gemm, _whole_factors)),
    ):
        table.kernel(
            op_type,
            since=since,
            dtypes=_WORDS,
            when=when,
            variant="integers",
            because=_BECAUSE,
            not_capturable=None,
        )(multiply_integers)
    table.kernel(
        "MatMulInteger",
        dtypes={0: _BYTES, 1: _BYTES},
        when=all_of(unfit_sizes, unfit_bytes),
        variant="integers",
        because=_BECAUSE,
        not_capturable=None,
    )(multiply_bytes)
