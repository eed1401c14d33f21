"""
QMoE of onnxruntime's domain: a mixture of experts with weights of 2, 4 or 8 bits, or MXFP4.

For each token, over the experts that it is routed to (:mod:`.expert_routing`),

    y = sum factor * (act(x W1^T + b1, x W3^T + b3) W2^T + b2)

with the activations of :mod:`.expert_gates` and weights dequantised as MatMulNBits'. Rows
are put in order of their experts, so that each product reads the weights of an expert
that has rows once for all of them, and no others. ``normalize_routing_weights`` 0 leaves
the softmax of all logits as it is; onnxruntime's own CPU kernel normalises all the same.
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView, View
from seamline.tensors import TensorType, ValueType
from seamline_cpu.binding import in_order, nothing
from seamline_cpu.kernels.expert_fitting import (
    GLOBAL,
    block_of,
    input_of,
    sizes_of,
    unfit,
)
from seamline_cpu.kernels.expert_layers import as_rows, gated, mode_of, summed, wide
from seamline_cpu.kernels.expert_products import Layer, Rows
from seamline_cpu.kernels.expert_routing import (
    bind_routing,
)
from seamline_cpu.kernels.expert_weights import Experts, pack_experts, padded_rows
from seamline_cpu.kernels.gathering import unpacked
from seamline_cpu.kernels.nbits_choice import choice, forced_by, is_int8
from seamline_cpu.kernels.nbits_layout import packed_nbytes
from seamline_cpu.kernels.recorded import OF_FLOATS, constant, converted
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

f4 = np.float32
_DTYPES = ("float32", "float16", "bfloat16")


@attrs.frozen(eq=False)
class _Weights:
    """One layer of a node: codes, scales (experts, N, blocks), zero points alike or None."""

    codes: Array
    scales: Array
    zeros: Array | None
    bits: int
    k: int
    block: int
    table: str


def _weights(view: NodeView, layer: int, get: Callable[[int], View]) -> _Weights | None:
    """Give a layer's inputs; None where ``get`` does not know them all."""
    names = [input_of(view, layer, what) for what in ("weights", "scales", "points")]
    codes, scales, zeros = (get(index) for index in names)
    if codes is None or scales is None or (zeros is None and view.has_input(names[2])):
        return None
    experts, n, k, bits = sizes_of(view, layer)
    blocks = scales.shape[2] if scales.ndim == 3 else 1
    if zeros is not None and zeros.ndim == 2:
        zeros = unpacked(zeros, bits)[:, :n, None]
    elif zeros is not None:
        zeros = unpacked(zeros, bits)[:, :, :blocks]
    scales, table = scales.reshape(experts, n, blocks), ""
    if _is_mxfp4(view):
        table, whole = "e2m1", get(GLOBAL[layer])
        if whole is None:
            return None
        scales = scales.astype(f4) * whole[:, None, None]
    return _Weights(codes, scales, zeros, bits, k, block_of(k, blocks), table)


def _is_mxfp4(view: NodeView) -> bool:
    return bool(view.attributes.get("quant_type", "int") == "fp4")


def _given(view: NodeView, layer: int) -> list[int]:
    names = [input_of(view, layer, what) for what in ("weights", "scales", "points")]
    if _is_mxfp4(view) and layer in GLOBAL:
        names.append(GLOBAL[layer])
    return [index for index in names if view.has_input(index)]


def _packed(call: Call, layer: int) -> Experts:
    def make() -> Experts:
        found = _weights(call.view, layer, call.input)
        assert found is not None  # all of them are there when it runs
        return pack_experts(
            found.codes, found.scales, found.zeros, found.bits, found.k, found.block,
            found.table,
        )  # fmt: skip

    given = _given(call.view, layer)
    if any(call.constant(index) is None for index in given):
        return make()
    made: Experts = call.resident(f"experts {sizes_of(call.view, layer)}", given, make)
    return made


def _bias(call: Call, layer: int, experts: int, n: int) -> Array:
    """Give a layer's bias, or zeros, as float32 for whole groups."""
    given = call.input(input_of(call.view, layer, "bias"))
    made = np.zeros((experts, padded_rows(n)), f4)
    if given is not None:
        made[:, :n] = given
    return made


def _resident(view: NodeView) -> int:
    total = 0
    for layer in (1, 2, 3):
        found = _weights(view, layer, view.constant)
        if found is not None:
            experts, n, blocks = found.scales.shape
            total += packed_nbytes(
                experts * padded_rows(n), blocks, found.block, found.bits,
                found.scales, found.zeros, found.table,
            )  # fmt: skip
    return total


@TABLE.infer("QMoE", domain="com.microsoft")
@TABLE.infer("MoE", domain="com.microsoft")
def experts_type(node: NodeView) -> list[ValueType | None]:
    """Give the input's type."""
    x = node.tensor(0)
    return [None if x is None else TensorType(x.dtype, x.shape)]


#: What is packed before any run, by its input.
_PACKED = {
    2: "fc1 weight", 3: "fc1 scale", 5: "fc2 weight", 6: "fc2 scale", 8: "fc3 weight",
    9: "fc3 scale", 4: "fc1 bias", 7: "fc2 bias", 10: "fc3 bias", 11: "fc1 zero point",
    12: "fc2 zero point", 13: "fc3 zero point", 15: "fc1 global scale",
    16: "fc2 global scale",
}  # fmt: skip


@TABLE.kernel(
    "QMoE", domain="com.microsoft", dtypes={0: _DTYPES, 1: _DTYPES, 2: ("uint8",)},
    when=unfit, resident=_resident,
    not_capturable=all_of(OF_FLOATS, constant(_PACKED), converted()),
)  # fmt: skip
def qmoe(call: Call) -> Run:
    """Bind a quantised mixture of experts; weights that are fed are packed at every run."""
    if call.outputs[0].size == 0:
        return nothing
    view = call.view
    names = [i for layer in (1, 2, 3) for i in _given(view, layer)]
    names += [input_of(view, layer, "bias") for layer in (1, 2, 3)]
    if all(call.constant(i) is not None for i in names if view.has_input(i)):
        return _bound(call)
    return lambda: _bound(call)()


def _bound(call: Call) -> Run:
    x, y = call.inputs[0], call.outputs[0]
    level, threads = int(call.attr("accuracy_level", 0)), threads_of(call.options)
    vectors = choice(level, forced_by(call.options), tiles=False).variant
    made: list[Run] = []
    rows = as_rows(x, made)
    logits = wide(call.inputs[1], made)
    stated = call.input(14)
    weights = None if stated is None else wide(stated, made)
    experts, _, hidden, _ = sizes_of(call.view, 1)
    k = int(call.attr("k", 1))
    routes, runs = bind_routing(logits, weights, k, experts, mode_of(call), threads)
    made += runs
    layer = Layer(routes, vectors, is_int8(level), threads)
    inner, runs = _inner(call, layer, rows)
    made += runs
    second = _packed(call, 2)
    places = np.arange(len(inner), dtype=np.int64)
    ready = layer.ready(inner, places, second)
    results = np.empty((len(inner), hidden), f4)
    bias = _bias(call, 2, experts, hidden)
    made += [*ready.runs, *layer.product(1, ready, second, bias, results)]
    out = y.reshape(-1, hidden)
    made += summed(routes, results, out, threads)
    return in_order(made)


def _inner(call: Call, layer: Layer, rows: Array) -> tuple[Array, list[Run]]:
    """Bind all up to the activations: give these, a row for each place."""
    first, order = _packed(call, 1), layer.routes.order
    experts, n = first.experts, first.n
    ready = layer.ready(rows, order, first)
    g = np.empty((len(order), n), f4)
    runs = [
        *ready.runs,
        *layer.product(0, ready, first, _bias(call, 1, experts, n), g),
    ]
    linear: Array | None = None
    if call.view.has_input(input_of(call.view, 3, "weights")):
        third = _packed(call, 3)
        again = _same_or_ready(layer, ready, rows, first, third, runs)
        linear = np.empty((len(order), n), f4)
        bias = _bias(call, 3, experts, n)
        runs += layer.product(2, again, third, bias, linear)
    out, gate = gated(call, g, linear, layer.threads)
    return out, [*runs, gate]


def _same_or_ready(
    layer: Layer,
    ready: Rows,
    rows: Array,
    one: Experts,
    other: Experts,
    runs: list[Run],
) -> Rows:
    """Give rows made ready for one layer, or anew where another reads them otherwise."""
    a, b = one.packed.form, other.packed.form
    alike = (a.step, a.bits, a.zero) == (b.step, b.bits, b.zero)
    if (alike or not layer.int8) and one.packed.depth == other.packed.depth:
        return ready
    made = layer.ready(rows, layer.routes.order, other)
    runs += made.runs
    return made
