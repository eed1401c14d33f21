"""MatMul, Gemm and FusedMatMul where one factor is a vector, by kernels of their own."""

from __future__ import annotations

from collections.abc import Sequence

from seamline.fitting import all_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline_cuda.elements import FLOATS
from seamline_cuda.matmul import CONTRIB, c_steps, matrices_of, unfit, unfit_gemm
from seamline_cuda.matrices import Multiplied
from seamline_cuda.vector_products import VectorProduct
from seamline_cuda.works import Work

__all__ = ["add_to", "multiply_vector", "no_vector", "product_of", "scratch_nbytes"]


def no_vector(node: NodeView) -> str | None:
    """Refuse a product of more than one row and one column, and one of unknown sizes."""
    found = matrices_of(node)
    if found is None:
        return "a size is not known yet"
    if not found.is_single or min(found.rows, found.columns) != 1:
        return f"it makes {found.rows} rows of {found.columns}; one row, or one column, would be taken"  # fmt: skip
    if found.is_empty or not found.depth:
        return "there is nothing to multiply"
    return None


def product_of(node: NodeView, found: Multiplied) -> VectorProduct:
    """Describe a product that :func:`no_vector` does not refuse."""
    kind = node.tensor(0)
    assert kind is not None
    if found.rows == 1:
        return VectorProduct(kind.dtype, found.columns, found.depth, found.b.swapped)
    return VectorProduct(kind.dtype, found.rows, found.depth, not found.a.swapped)


def scratch_nbytes(node: NodeView) -> int:
    """Give the bytes of a product's parts, 0 until sizes are known."""
    found = matrices_of(node)
    return product_of(node, found).scratch_nbytes if found is not None else 0


def multiply_vector(call: Call) -> Sequence[Work]:
    """Multiply a matrix with one vector, and add C where it is given."""
    found = matrices_of(call.view)
    assert found is not None, "sizes are known when a segment is bound"
    a, b, c = call.inputs[0], call.inputs[1], call.input(2)
    matrix, vector = (b, a) if found.rows == 1 else (a, b)
    beta, added, step = 0.0, 0, 0
    if c is not None and call.attr("beta", 1.0):
        row_step, column_step = c_steps(c.kind.sizes)
        beta, added = call.attr("beta", 1.0), c.address
        step = column_step if found.rows == 1 else row_step
    scratch = call.workspace.address if call.workspace is not None else 0
    return product_of(call.view, found).work(
        matrix.address, vector.address, call.outputs[0].address, scratch,
        alpha=call.attr("alpha", 1.0), beta=beta, added=added, added_step=step,
    )  # fmt: skip


def add_to(table: KernelTable) -> None:
    """Add the forms with one vector; they go before those of the library."""
    for op_type, domain, since, when in (
        ("MatMul", "", 1, unfit),
        ("FusedMatMul", CONTRIB, 1, unfit),
        ("Gemm", "", 7, unfit_gemm),
    ):
        table.kernel(
            op_type,
            domain=domain,
            since=since,
            dtypes=FLOATS,
            when=all_of(when, no_vector),
            workspace=scratch_nbytes,
            variant="vector",
            because="one factor is a vector, so the matrix is read once, 16 bytes at a time",
            not_capturable=None,
        )(multiply_vector)
