"""
MoE of onnxruntime's domain: a mixture of experts with weights that are floats.

All but the products is that of :mod:`.mixture_of_experts`, as compiled commands. BLAS
multiplies the rows of each expert that has some by its weights as they lie, in Python;
weights of 16 bits are widened an expert at a time, whenever they are used.
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline_cpu.binding import in_order, nothing
from seamline_cpu.kernels.expert_fitting import input_of, sizes_of, unfit_experts
from seamline_cpu.kernels.expert_layers import as_rows, gated, mode_of, summed, wide
from seamline_cpu.kernels.expert_routing import Routes, bind_routing
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

f4 = np.float32
_DTYPES = ("float32", "float16", "bfloat16")
_NO_WEIGHTS = 99  # MoE has no input that states what choices weigh


def _unfit(view: NodeView) -> str | None:
    return unfit_experts(view, _NO_WEIGHTS)


@TABLE.kernel(
    "MoE", domain="com.microsoft", dtypes={0: _DTYPES, 1: _DTYPES, 2: _DTYPES},
    when=_unfit, because="BLAS multiplies the rows of each expert that has some",
)  # fmt: skip
def moe(call: Call) -> Run:
    """Bind a mixture of experts of floats."""
    x, y = call.inputs[0], call.outputs[0]
    if y.size == 0:
        return nothing
    made: list[Run] = []
    rows, logits = as_rows(x, made), wide(call.inputs[1], made)
    experts, n, hidden, _ = sizes_of(call.view, 1)
    k, threads = int(call.attr("k", 1)), threads_of(call.options)
    routes, runs = bind_routing(logits, None, k, experts, mode_of(call), threads)
    made += runs
    taken = np.empty((len(routes.order), hidden), f4)
    made.append(lambda: np.copyto(taken, rows[routes.order], casting="unsafe"))
    first = np.empty((len(taken), n), f4)
    made.append(_product(call, 1, routes, taken, first))
    third = None
    if call.view.has_input(input_of(call.view, 3, "weights")):
        third = np.empty((len(taken), n), f4)
        made.append(_product(call, 3, routes, taken, third))
    inner, gate = gated(call, first, third, threads)
    results = np.empty((len(taken), hidden), f4)
    made += [gate, _product(call, 2, routes, inner, results)]
    return in_order([*made, *summed(routes, results, y.reshape(-1, hidden), threads)])


def _product(
    call: Call, layer: int, routes: Routes, x: Array, out: Array
) -> Callable[[], None]:
    weights = call.inputs[input_of(call.view, layer, "weights")]
    bias = call.input(input_of(call.view, layer, "bias"))

    def run() -> None:
        for e in routes.active[1 : 1 + routes.active[0]]:
            some = slice(routes.starts[e], routes.starts[e + 1])
            matrix = weights[e].astype(f4, copy=False)
            np.matmul(x[some], matrix.T, out[some])
            if bias is not None:
                out[some] += bias[e].astype(f4, copy=False)

    return run
