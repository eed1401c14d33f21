"""
QMoE of onnxruntime's domain: a mixture of experts with weights of 2, 4 or 8 bits.

For each token, over the experts that it is routed to (:mod:`.expert_routing`),

    y = sum factor * (act(x W1^T + b1, x W3^T + b3) W2^T + b2)

with the activations of :mod:`.expert_gates` and weights dequantised as MatMulNBits'. Rows
are put in order of their experts, so that each product reads the weights of an expert
that has rows once for all of them, and no others. ``normalize_routing_weights`` 0 leaves
the softmax of all logits as it is; onnxruntime's own CPU kernel normalises all the same.
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import TensorType, ValueType
from seamline_cpu.binding import in_order, nothing
from seamline_cpu.commands import bind
from seamline_cpu.instruction_sets import converts_half
from seamline_cpu.kernels.expert_fitting import block_of, input_of, sizes_of, unfit
from seamline_cpu.kernels.expert_gates import bind_gate, bind_sum, gate_numbers
from seamline_cpu.kernels.expert_products import (
    Experts,
    Layer,
    Rows,
    pack_experts,
    padded_rows,
)
from seamline_cpu.kernels.expert_routing import (
    MIXER,
    NORMALIZED,
    SOFTMAX,
    bind_routing,
)
from seamline_cpu.kernels.gathering import unpacked
from seamline_cpu.kernels.nbits_choice import choice, forced_by, is_int8
from seamline_cpu.kernels.nbits_commands import SLOTS, narrowed, widened
from seamline_cpu.kernels.nbits_layout import packed_nbytes
from seamline_cpu.kernels.nbits_many import fill, room
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


def _weights(view: NodeView, layer: int) -> _Weights | None:
    """Give a layer's constants; None where one of them is fed."""
    codes, scales, zeros = (
        view.constant(input_of(layer, what)) for what in ("weights", "scales", "points")
    )
    if codes is None or scales is None:
        return None
    if zeros is None and view.has_input(input_of(layer, "points")):
        return None
    experts, n, k, bits = sizes_of(view, layer)
    blocks = scales.shape[2] if scales.ndim == 3 else 1
    if zeros is not None and zeros.ndim == 2:
        zeros = unpacked(zeros, bits)[:, :n, None]
    elif zeros is not None:
        zeros = unpacked(zeros, bits)[:, :, :blocks]
    block = block_of(k, blocks)
    scales = scales.reshape(experts, n, blocks)
    return _Weights(codes, scales, zeros, bits, k, block)


def _packed(call: Call, layer: int) -> Experts:
    def make() -> Experts:
        found = _weights(call.view, layer)
        assert found is not None  # the claim saw to it
        return pack_experts(
            found.codes, found.scales, found.zeros, found.bits, found.k, found.block
        )

    names = [input_of(layer, what) for what in ("weights", "scales", "points")]
    given = [i for i in names if call.view.has_input(i)]
    tag = f"experts {sizes_of(call.view, layer)}"
    made: Experts = call.resident(tag, given, make)
    return made


def _bias(call: Call, layer: int, experts: int, n: int) -> Array:
    """Give a layer's bias, or zeros, as float32 for whole groups."""
    given = call.constant(input_of(layer, "bias"))
    made = np.zeros((experts, padded_rows(n)), f4)
    if given is not None:
        made[:, :n] = given
    return made


def _resident(view: NodeView) -> int:
    total = 0
    for layer in (1, 2, 3):
        if not view.has_input(input_of(layer, "weights")):
            continue
        found = _weights(view, layer)
        if found is not None:
            experts, n, blocks = found.scales.shape
            total += packed_nbytes(
                experts * padded_rows(n), blocks, found.block, found.bits,
                found.scales, found.zeros,
            )  # fmt: skip
    return total


@TABLE.infer("QMoE", domain="com.microsoft")
@TABLE.infer("MoE", domain="com.microsoft")
def experts_type(node: NodeView) -> list[ValueType | None]:
    """Give the input's type."""
    x = node.tensor(0)
    return [None if x is None else TensorType(x.dtype, x.shape)]


@TABLE.kernel(
    "QMoE", domain="com.microsoft", dtypes={0: _DTYPES, 1: _DTYPES, 2: ("uint8",)},
    when=unfit, resident=_resident,
)  # fmt: skip
def qmoe(call: Call) -> Run:
    """Bind a quantised mixture of experts: all of it is compiled commands."""
    x, y = call.inputs[0], call.outputs[0]
    if y.size == 0:
        return nothing
    level, threads = int(call.attr("accuracy_level", 0)), threads_of(call.options)
    vectors = choice(level, forced_by(call.options), tiles=False).variant
    made: list[Run] = []
    rows = _as_rows(x, made)
    logits = _wide(_rows_of(call.inputs[1]), made)
    stated = call.input(14)
    weights = None if stated is None else _wide(_rows_of(stated), made)
    experts, _, hidden, _ = sizes_of(call.view, 1)
    k = int(call.attr("k", 1))
    routes, runs = bind_routing(logits, weights, k, experts, _mode(call), threads)
    made += runs
    layer = Layer(routes, vectors, is_int8(level), threads)
    inner, runs = _inner(call, layer, rows)
    made += runs
    second = _packed(call, 2)
    places = np.arange(len(inner), dtype=np.int64)
    ready = layer.ready(inner, places, second)
    results = np.empty((len(inner), hidden), f4)
    bias = _bias(call, 2, experts, hidden)
    made += [ready.run, layer.product(1, ready, second, bias, results)]
    out = y.reshape(-1, hidden)
    made += _summed(layer, results, out)
    return in_order(made)


def _inner(call: Call, layer: Layer, rows: Array) -> tuple[Array, list[Run]]:
    """Bind all up to the activations: give these, a row for each place."""
    first, order = _packed(call, 1), layer.routes.order
    experts, n = first.experts, first.n
    ready = layer.ready(rows, order, first)
    g = np.empty((len(order), n), f4)
    runs = [
        ready.run,
        layer.product(0, ready, first, _bias(call, 1, experts, n), g),
    ]
    linear: Array | None = None
    fusion = int(call.attr("swiglu_fusion", 0))
    kind = str(call.attr("activation_type", "relu"))
    if call.view.has_input(input_of(3, "weights")):
        third = _packed(call, 3)
        again = _same_or_ready(layer, ready, rows, first, third, runs)
        linear = np.empty((len(order), n), f4)
        bias = _bias(call, 3, experts, n)
        runs.append(layer.product(2, again, third, bias, linear))
    elif kind == "swiglu":
        g, linear = (
            (g[:, ::2], g[:, 1::2]) if fusion == 1 else (g[:, : n // 2], g[:, n // 2 :])
        )
    out = np.empty(g.shape, f4)
    numbers = gate_numbers(
        call.attr("activation_alpha", 1.0),
        call.attr("activation_beta", 0.0),
        call.attr("swiglu_limit"),
    )
    runs.append(bind_gate(kind, g, linear, out, numbers, layer.threads))
    return out, runs


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
    runs.append(made.run)
    return made


def _mode(call: Call) -> int:
    if call.attr("use_sparse_mixer", 0):
        return MIXER
    return NORMALIZED if call.attr("normalize_routing_weights", 0) else SOFTMAX


def _rows_of(x: Array) -> Array:
    """See all but the last axis as one."""
    return x.reshape(-1, x.shape[-1])


def _as_rows(x: Array, runs: list[Run]) -> Array:
    """Give rows that commands read: C-contiguous, of a type that the processor converts."""
    rows = _rows_of(x)
    if str(x.dtype) != "float16" or converts_half():
        return rows
    wide = np.empty(rows.shape, f4)
    runs.append(lambda: np.copyto(wide, rows))
    return wide


def _wide(x: Array, runs: list[Run]) -> Array:
    """Give a small matrix as float32, copied at each run where it is of another type."""
    source = _as_rows(x, runs)
    if source.dtype == f4:
        return source
    wide = room(len(source), -(-source.shape[1] // 16) * 16)
    a = np.zeros(len(SLOTS), np.int64)
    fill(
        a, SLOTS, m=len(source), k=source.shape[1], a=source.ctypes.data,
        a_pitch=source.strides[0], x=wide.ctypes.data, x_pitch=wide.strides[0],
    )  # fmt: skip
    what = widened(choice(0, None).variant, str(source.dtype))
    runs.append(bind(what, a, 1, keep=(source, wide)))
    return wide


def _summed(layer: Layer, results: Array, y: Array) -> list[Run]:
    """Bind the sums of tokens' results, in the output's type."""
    if y.dtype == f4:
        return [bind_sum(layer.routes, results, y, layer.threads)]
    total = np.empty(y.shape, f4)
    runs: list[Run] = [bind_sum(layer.routes, results, total, layer.threads)]
    kind: Any = str(y.dtype)
    if kind == "float16" and not converts_half():
        return [*runs, lambda: np.copyto(y, total, casting="unsafe")]
    arguments = [total.ctypes.data, y.size, y.ctypes.data]
    what = narrowed(layer.vectors, kind)
    return [*runs, bind(what, arguments, 1, keep=(total, y))]
