"""What mixtures of experts have in common, whatever their weights: rows, gates, sums."""

from __future__ import annotations

from functools import partial

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline_cpu.commands import bind
from seamline_cpu.instruction_sets import converts_half
from seamline_cpu.kernels.expert_commands import widened
from seamline_cpu.kernels.expert_gates import bind_gate, bind_sum, gate_numbers
from seamline_cpu.kernels.expert_routing import MIXER, NORMALIZED, SOFTMAX, Routes
from seamline_cpu.kernels.expert_turns import SLOTS
from seamline_cpu.kernels.nbits_choice import choice
from seamline_cpu.kernels.nbits_commands import narrowed
from seamline_cpu.kernels.nbits_many import fill, room

__all__ = ["as_rows", "gated", "mode_of", "summed", "wide"]

f4 = np.float32


def mode_of(call: Call) -> int:
    """Give how a node's weights come about."""
    if call.attr("use_sparse_mixer", 0):
        return MIXER
    return NORMALIZED if call.attr("normalize_routing_weights", 0) else SOFTMAX


def as_rows(x: Array, runs: list[Run]) -> Array:
    """Give rows that commands read; where those do not read ``x``, copied at each run."""
    rows = x.shape[:-1]
    halves = str(x.dtype) == "float16" and not converts_half()
    if x.flags.c_contiguous and not halves:
        return x.reshape(-1, x.shape[-1])
    made = np.empty((*rows, x.shape[-1]), f4 if halves else x.dtype)
    runs.append(partial(np.copyto, made, x))
    return made.reshape(-1, x.shape[-1])


def wide(x: Array, runs: list[Run]) -> Array:
    """Give a small matrix as float32, copied at each run where it is of another type."""
    source = as_rows(x, runs)
    if source.dtype == f4:
        return source
    made = room(len(source), -(-source.shape[1] // 16) * 16)
    order = np.arange(len(source), dtype=np.int64)
    a = np.zeros(len(SLOTS), np.int64)
    fill(
        a, SLOTS, order=order.ctypes.data, rows=len(source), k=source.shape[1],
        a=source.ctypes.data, a_pitch=source.strides[0], x=made.ctypes.data,
        x_pitch=made.strides[0],
    )  # fmt: skip
    what = widened(choice(0, None, tiles=False).variant, str(source.dtype))
    runs.append(bind(what, a, 1, keep=(source, made, order)))
    return made


def summed(routes: Routes, results: Array, y: Array, threads: int) -> list[Run]:
    """Bind the sums of tokens' results, in the output's type."""
    if y.dtype == f4:
        return [bind_sum(routes, results, y, threads)]
    total = np.empty(y.shape, f4)
    runs: list[Run] = [bind_sum(routes, results, total, threads)]
    kind = str(y.dtype)
    if kind == "float16" and not converts_half():
        return [*runs, partial(np.copyto, y, total, casting="unsafe")]
    arguments = [total.ctypes.data, y.size, y.ctypes.data]
    what = narrowed(choice(0, None, tiles=False).variant, kind)
    return [*runs, bind(what, arguments, 1, keep=(total, y))]


def gated(
    call: Call, g: Array, linear: Array | None, threads: int
) -> tuple[Array, Run]:
    """
    Bind a node's activation.

    Parameters
    ----------
    g
        float32, what the first product gives; both halves where a swiglu is fused.
    linear
        What the third product gives, or None.

    Returns
    -------
    tuple
        float32, a row for each of ``g``, and what writes it.
    """
    kind, n = str(call.attr("activation_type", "relu")), g.shape[1]
    if kind == "swiglu" and linear is None:
        if int(call.attr("swiglu_fusion", 0)) == 1:
            g, linear = g[:, ::2], g[:, 1::2]
        else:
            g, linear = g[:, : n // 2], g[:, n // 2 :]
    out = np.empty(g.shape, f4)
    numbers = gate_numbers(
        call.attr("activation_alpha", 1.0),
        call.attr("activation_beta", 0.0),
        call.attr("swiglu_limit"),
    )
    return out, bind_gate(kind, g, linear, out, numbers, threads)
