"""Seamline's DequantizedMatMul: a product with constant weights that are kept as codes."""

from __future__ import annotations

from seamline.fitting import all_of, dims, unlike
from seamline.kernels import Call, Run
from seamline.provider import NodeView
from seamline.tensors import TensorType, ValueType
from seamline_cpu.binding import nothing
from seamline_cpu.kernels.dequantized_weights import (
    BITS,
    SCALES,
    TABLES,
    form_of,
    source_of,
    unfit_weights,
)
from seamline_cpu.kernels.matmul_nbits import bind_packed
from seamline_cpu.kernels.nbits_choice import choice, forced_by, is_exact, is_int8
from seamline_cpu.kernels.nbits_layout import Packed, pack, packed_nbytes
from seamline_cpu.kernels.nbits_product import Product
from seamline_cpu.kernels.recorded import OF_FLOATS, constant, converted
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

OWN = "seamline"
_DTYPES = ("float32", "float16", "bfloat16")


def _unfit(view: NodeView) -> str | None:
    a, form = dims(view, 0), form_of(view)
    if a is None or form is None:
        return None
    if not a or (isinstance(a[-1], int) and a[-1] != form.k):
        return f"its input is {list(a)}, and K is {form.k}"
    return unlike(view, 4, "bias", (form.n,))


def _resident(view: NodeView) -> int:
    form, scale, codes = form_of(view), view.constant(2), view.constant(1)
    fed = view.has_input(3) and view.constant(3) is None
    if form is None or scale is None or codes is None or not codes.size or fed:
        return 0
    source = source_of(form, codes, scale, view.constant(3))
    return packed_nbytes(
        form.n, form.blocks, form.block, form.bits, source.scales, source.zeros, source.table
    )  # fmt: skip


_PACKED = {1: "weight", 2: "scale", 3: "zero point", 4: "bias"}


@TABLE.kernel(
    "DequantizedMatMul", domain=OWN, dtypes={0: _DTYPES, 1: tuple(BITS), 2: SCALES},
    when=all_of(unfit_weights, _unfit), resident=_resident,
    not_capturable=all_of(OF_FLOATS, constant(_PACKED), converted()),
)  # fmt: skip
def dequantized_matmul(call: Call) -> Run:
    """
    Bind ``A @ DequantizeLinear(B, scale, zero_point) + bias``.

    ``B`` is K by N, or N by K where ``transB`` is 1; ``axis`` and ``block_size`` are
    DequantizeLinear's, counted in ``B`` as it lies. ``accuracy_level`` is MatMulNBits'; codes
    of ``float4e2m1`` have no form for AMX. Weights that
    are fed are packed at every run.
    """
    y, form = call.outputs[0], form_of(call.view)
    if y.size == 0:
        return nothing
    assert form is not None  # sizes are known when a node is bound
    level, table = int(call.attr("accuracy_level", 0)), form.dtype in TABLES
    variant = choice(level, forced_by(call.options), tiles=not table).variant

    given = [i for i in (1, 2, 3) if call.view.has_input(i)]
    int8, threads = is_int8(level), threads_of(call.options)

    def bound(packed: Packed) -> Run:
        product = Product(packed, variant, int8, threads, is_exact(level))
        return bind_packed(call, product, 4)

    def make() -> Packed:
        return pack(source_of(form, call.inputs[1], call.inputs[2], call.input(3)))

    if all(call.constant(i) is not None for i in given):
        return bound(call.resident(f"codes {form}", given, make))
    return lambda: bound(make())()


@TABLE.infer("DequantizedMatMul", domain=OWN)
def infer_dequantized_matmul(node: NodeView) -> list[ValueType | None]:
    """Give ``A``'s type with rows as long as ``B``'s."""
    a, b = node.tensor(0), node.tensor(1)
    if a is None:
        return [None]
    if not a.shape or b is None or b.shape is None or len(b.shape) != 2:
        return [TensorType(a.dtype, None)]
    width = b.shape[0 if node.attributes.get("transB", 0) else 1]
    return [TensorType(a.dtype, (*a.shape[:-1], width))]
