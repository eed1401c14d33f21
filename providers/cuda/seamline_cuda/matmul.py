"""
MatMul and Gemm, and onnxruntime's FusedMatMul, by cuBLASLt.

float32 stays float32, unless the option ``tf32`` allows less; 16-bit floats are summed in
float32 and rounded once. A bias along rows is added by the product itself; any other
operand of Gemm is read where it has the result's size, or spread over the result before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.product_types import fused_matmul
from seamline.provider import NodeView
from seamline.tensors import FLOATS, numpy_dtype
from seamline_cuda.addends import spread
from seamline_cuda.matrices import Factor, Multiplied, multiplied
from seamline_cuda.works import LIBRARY, Matrix, Work

__all__ = [
    "BIAS_EVEN",
    "CONTRIB",
    "add_to",
    "c_steps",
    "gemm",
    "matmul",
    "matrices_of",
    "unfit",
    "unfit_gemm",
    "unfit_sizes",
]

CONTRIB = "com.microsoft"
LIMIT = 1 << 31  #: rows, columns and depth are counted in 32 bits by the library
_BECAUSE = (
    "cuBLASLt multiplies matrices; what it is told is fixed when a segment is bound"
)
BIAS_EVEN = (
    16  #: bytes that a bias must be a multiple of, which the library does not check
)


def matrices_of(node: NodeView) -> Multiplied | None:
    """Give what a node multiplies; None while a size is not known."""
    a, b = node.tensor(0), node.tensor(1)
    if a is None or b is None or not (a.is_sized and b.is_sized):
        return None
    factors = [
        Factor.of(
            kind.sizes,
            is_left=side == "A",
            swapped=bool(node.attributes.get(f"trans{side}")),
            outward=bool(node.attributes.get(f"transBatch{side}")),
        )
        for side, kind in (("A", a), ("B", b))
    ]
    return multiplied(*factors)


def unfit_sizes(node: NodeView) -> str | None:
    """Refuse numbers that are no matrices, and sizes out of range, where they are known."""
    for index in (0, 1):
        kind = node.tensor(index)
        if kind is None:
            return f"the type of input {index} is not known"
        if kind.shape is None:
            continue  # found by running; the sizes are looked at when a segment is bound
        if not kind.shape:
            return f"input {index} is a single number, and matrices are multiplied"
        if any(isinstance(n, int) and n >= LIMIT for n in kind.shape):
            return f"{kind} has a size of {LIMIT} or more"
    return None


def unfit(node: NodeView) -> str | None:
    """Give a reason to refuse matrices whose first element type was accepted."""
    if reason := unfit_sizes(node):
        return reason
    a, b = node.tensor(0), node.tensor(1)
    if a is not None and b is not None and a.dtype != b.dtype:
        return f"it multiplies {a.dtype} with {b.dtype}; one type for both is accepted"
    return None


def unfit_gemm(node: NodeView) -> str | None:
    """Refuse what is no matrix, or an operand that does not broadcast to the result."""
    if reason := unfit(node):
        return reason
    for index in (0, 1):
        kind = node.tensor(index)
        if kind is not None and kind.shape is not None and len(kind.shape) != 2:
            return f"input {index} is {kind}, and two axes are accepted"
    c, found = node.tensor(2), matrices_of(node)
    if c is None or found is None or not c.is_sized:
        return None
    wide = zip(c.sizes[::-1], (found.columns, found.rows), strict=False)
    if len(c.sizes) > 2 or any(size not in (1, whole) for size, whole in wide):
        return (
            f"its C is {c}, which does not broadcast to [{found.rows}, {found.columns}]"
        )
    if found.rows * found.columns >= LIMIT:
        return f"its result has {LIMIT} elements or more"
    return None


def matmul(call: Call) -> Sequence[Work]:
    """Multiply; write zeros where there is nothing to sum."""
    found = matrices_of(call.view)
    assert found is not None, "sizes are known when a segment is bound"
    a, b, y = call.inputs[0], call.inputs[1], call.outputs[0]
    if found.is_empty:
        return []
    if not found.depth:
        count = y.nbytes // numpy_dtype(y.kind.dtype).itemsize
        return [spread(y.kind.dtype, 0, y.address, (1, count), (0, 0), factor=0.0)]
    return list(
        found.work(
            a.address, b.address, y.address, a.kind.dtype,
            alpha=call.attr("alpha", 1.0), tf32=bool(call.options.get("tf32")),
        )
    )  # fmt: skip


def gemm(call: Call) -> Sequence[Work]:
    """Multiply, and add C where it is given."""
    found = matrices_of(call.view)
    assert found is not None, "sizes are known when a segment is bound"
    return [] if found.is_empty else list(_gemm(call, found))


def _gemm(call: Call, found: Multiplied) -> Iterator[Work]:
    a, b, c, y = call.inputs[0], call.inputs[1], call.input(2), call.outputs[0]
    beta = call.attr("beta", 1.0) if c is not None else 0.0
    shape, dtype = (found.rows, found.columns), y.kind.dtype
    steps = c_steps(c.kind.sizes) if c is not None else (0, 0)
    place = c.address if c is not None and beta else 0
    if not found.depth:
        yield spread(dtype, place, y.address, shape, steps, factor=beta)
        return
    (work,) = found.work(
        a.address, b.address, y.address, dtype,
        alpha=call.attr("alpha", 1.0), tf32=bool(call.options.get("tf32")),
    )  # fmt: skip
    if not beta:
        yield work
    elif steps == (0, 1) and beta == 1 and not place % BIAS_EVEN and dtype != "float64":
        yield attrs.evolve(work, bias=place)
    elif c is not None and c.nbytes == y.nbytes:
        yield attrs.evolve(work, beta=beta, addend=Matrix(place, found.columns))
    else:
        yield spread(dtype, place, y.address, shape, steps)
        yield attrs.evolve(work, beta=beta)


def c_steps(sizes: Sequence[int]) -> tuple[int, int]:
    """Give the elements of C from one row of the result to the next, and one column."""
    rows, columns = ((1,) * (2 - len(sizes)) + tuple(sizes))[-2:]
    return (columns if rows > 1 else 0), (1 if columns > 1 else 0)


def add_to(table: KernelTable) -> None:
    """Add products of floats."""
    for op_type, domain, since, function, when in (
        ("MatMul", "", 1, matmul, unfit),
        ("FusedMatMul", CONTRIB, 1, matmul, unfit),
        ("Gemm", "", 7, gemm, unfit_gemm),
    ):
        table.kernel(
            op_type,
            domain=domain,
            since=since,
            dtypes=FLOATS,
            when=when,
            variant=LIBRARY,
            because=_BECAUSE,
            not_capturable=None,
        )(function)
    table.infer("FusedMatMul", domain=CONTRIB)(fused_matmul)
