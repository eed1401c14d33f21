"""
Seamline's FusedMatMul: a product, a bias and a residual, and an activation of their sum.

The library adds and activates while a tile's sums are in registers, so that the result is
written once and read by nobody in between; 16-bit floats are rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from seamline.fitting import all_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.product_types import sum_of_product, unfit_sum_of_product
from seamline.provider import NodeView
from seamline_cuda.addends import spread
from seamline_cuda.elements import FLOATS
from seamline_cuda.matmul import BIAS_EVEN, matrices_of, unfit
from seamline_cuda.matvec import no_vector, product_of, scratch_nbytes
from seamline_cuda.works import LIBRARY, Matrix, Work

__all__ = ["add_to"]

_OWN = "seamline"
#: By their names in the attribute: the library's, and those of the kernels for a vector.
_ACTIVATIONS = {"": "", "Relu": "relu", "FastGelu": "gelu"}
_VECTORS = ("", "Relu")


def _other_activation(node: NodeView) -> str | None:
    name = node.attributes.get("activation", "")
    if name in _ACTIVATIONS:
        return None
    return f"its activation is {name}; Relu, FastGelu, or none, is accepted"


def _other_type(node: NodeView) -> str | None:
    kinds = [node.tensor(i) for i in range(4) if node.has_input(i)]
    names = {kind.dtype for kind in kinds if kind is not None}
    if len(names) > 1:
        return f"its operands are {', '.join(sorted(names))}; one type is accepted"
    return None


def _places(call: Call) -> tuple[int, int]:
    bias, residual = (call.input(index) for index in (2, 3))
    return (
        bias.address if bias is not None else 0,
        residual.address if residual is not None else 0,
    )


def _multiply_vector(call: Call) -> Sequence[Work]:
    found = matrices_of(call.view)
    assert found is not None, "sizes are known when a segment is bound"
    bias, residual = _places(call)
    scratch = call.workspace.address if call.workspace is not None else 0
    return product_of(call.view, found).work(
        call.inputs[1].address, call.inputs[0].address, call.outputs[0].address, scratch,
        beta=1.0 if residual else 0.0, added=residual, added_step=1, bias=bias,
        relu=call.attr("activation", "") == "Relu",
    )  # fmt: skip


def _multiply(call: Call) -> Sequence[Work]:
    return list(_works(call)) if call.outputs[0].nbytes else []


def _works(call: Call) -> Iterator[Work]:
    found = matrices_of(call.view)
    assert found is not None, "sizes are known when a segment is bound"
    a, b, y = call.inputs[0], call.inputs[1], call.outputs[0]
    bias, residual = _places(call)
    (work,) = found.work(
        a.address, b.address, y.address, y.kind.dtype,
        alpha=1.0, tf32=bool(call.options.get("tf32")),
    )  # fmt: skip
    if bias % BIAS_EVEN:  # the library would read it by 16 bytes
        shape = (found.rows, found.columns)
        yield spread(y.kind.dtype, bias, y.address, shape, (0, 1), onto=residual)
        bias, residual = 0, y.address
    yield attrs.evolve(
        work,
        bias=bias,
        beta=1.0 if residual else 0.0,
        addend=Matrix(residual, found.columns) if residual else None,
        activation=_ACTIVATIONS[call.attr("activation", "")],
    )


def _unfit(node: NodeView) -> str | None:
    """Refuse several products, nothing to sum, and one row or column."""
    found = matrices_of(node)
    if found is not None and not found.depth:
        return "there is nothing to sum"
    if found is not None and found.columns == 1 and found.rows > 1:
        return "it makes one column; two or more are accepted"
    return None


def _no_row(node: NodeView) -> str | None:
    found = matrices_of(node)
    if found is not None and found.rows != 1:
        return f"it makes {found.rows} rows; one would be taken"
    if node.attributes.get("activation", "") not in _VECTORS:
        return "its activation is not Relu"
    return no_vector(node)


def add_to(table: KernelTable) -> None:
    """Add FusedMatMul of Seamline's own domain."""
    fits = all_of(unfit_sum_of_product, unfit, _other_type, _other_activation, _unfit)
    table.kernel(
        "FusedMatMul",
        domain=_OWN,
        dtypes={0: FLOATS, 1: FLOATS},
        when=all_of(fits, _no_row),
        workspace=scratch_nbytes,
        aliases=((0, 3),),
        variant="vector",
        because="one factor is a vector, so the matrix is read once, 16 bytes at a time",
        not_capturable=None,
    )(_multiply_vector)
    table.kernel(
        "FusedMatMul",
        domain=_OWN,
        dtypes={0: FLOATS, 1: FLOATS},
        when=fits,
        aliases=((0, 3),),
        variant=LIBRARY,
        because="cuBLASLt adds and cuts while sums are in registers",
        not_capturable=None,
    )(_multiply)
    table.infer("FusedMatMul", domain=_OWN)(sum_of_product)
