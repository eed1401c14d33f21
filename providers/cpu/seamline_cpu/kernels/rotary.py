"""RotaryEmbedding, of ONNX's own domain (23) and of onnxruntime's."""

from __future__ import annotations

import numpy as np

from seamline.attention_fitting import unfit_rotary
from seamline.attention_forms import refused_rotary, refused_rotary_contrib
from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import Array
from seamline_cpu.kernels.recorded import only
from seamline_cpu.kernels.rotary_commands import bind_rotation
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__ = ["FLOAT_KINDS", "REFUSED", "rotary_embedding", "rotate"]

FLOAT_KINDS = ("float32", "float16", "bfloat16")


def rotate(x: Array, cos: Array, sin: Array, interleaved: bool, y: Array) -> None:
    """
    Rotate pairs of the leading ``2 * cos.shape[-1]`` values of each head.

    ``x`` and ``y`` are (B, S, heads, size), ``cos`` and ``sin`` (B or 1, S, half); pairs
    are the two halves, or neighbours where interleaved. The rest is copied.
    """
    half = cos.shape[-1]
    wide = x[..., : 2 * half].astype(np.float32)
    c, s = (t.astype(np.float32)[:, :, None, :] for t in (cos, sin))
    if interleaved:
        pairs = (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    else:
        pairs = (slice(0, half), slice(half, 2 * half))
    one, two = wide[..., pairs[0]], wide[..., pairs[1]]
    y[..., pairs[0]] = one * c - two * s
    y[..., pairs[1]] = one * s + two * c
    y[..., 2 * half :] = x[..., 2 * half :]


def _heads_last(x: Array, heads: int, size: int) -> Array:
    """View (B, heads, S, size) or (B, S, hidden) as (B, S, heads, size)."""
    if x.ndim == 4:
        return x.transpose(0, 2, 1, 3)
    heads = heads or x.shape[2] // size
    return x.reshape(*x.shape[:2], heads, -1)


def _bind(
    call: Call, cos: Array, sin: Array, positions: Array | None, size: int
) -> Run:
    x, y, heads = call.input(0), call.output(0), call.attr("num_heads", 0)
    x, y = (_heads_last(v, heads, size) for v in (x, y))
    dim = call.attr("rotary_embedding_dim", 0) or x.shape[-1]
    if 2 * cos.shape[-1] != dim or dim > x.shape[-1]:
        raise ValueError(f"caches {cos.shape[-1]} wide do not rotate {dim} values of a "
                         f"head of {x.shape[-1]}")  # fmt: skip
    interleaved = bool(call.attr("interleaved", 0))
    batch, length = x.shape[:2]
    if positions is None or positions.size in (1, batch * length):
        threads = threads_of(call.options)
        native = bind_rotation(x, cos, sin, positions, interleaved, y, threads)
        if native is not None:
            return native

    def run() -> None:
        if positions is None:
            rotate(x, cos, sin, interleaved, y)
            return
        rows = positions
        if rows.size == 1 and (batch, length) != (1, 1) and rows.ndim < 2:
            rows = rows.reshape(1, 1) + np.arange(length)
        rows = np.broadcast_to(rows.reshape(-1, length), (batch, length))
        if rows.size and not (rows.min() >= 0 and rows.max() < len(cos)):
            bad = rows.min() if rows.min() < 0 else rows.max()
            raise IndexError(f"position {bad} is outside [0, {len(cos)}) of the caches")
        rotate(x, cos[rows], sin[rows], interleaved, y)

    return run


REFUSED = all_of(refused_rotary, unfit_rotary(1, 2, 3))


@TABLE.kernel(
    "RotaryEmbedding",
    since=23,
    dtypes=FLOAT_KINDS,
    when=REFUSED,
    not_capturable=only(*FLOAT_KINDS),
)
def rotary_embedding(call: Call) -> Run:
    """Bind RotaryEmbedding-23; without positions the caches are (B, S, half)."""
    return _bind(call, call.input(1), call.input(2), call.input(3), 0)


@TABLE.kernel(
    "RotaryEmbedding", domain="com.microsoft", dtypes=FLOAT_KINDS,
    when=all_of(refused_rotary_contrib, unfit_rotary(2, 3, 1)),
    not_capturable=only(*FLOAT_KINDS),
)  # fmt: skip
def contrib_rotary_embedding(call: Call) -> Run:
    """Bind onnxruntime's form: positions second, (1) being where every row starts."""
    cos, sin = call.input(2), call.input(3)
    dim = call.attr("rotary_embedding_dim", 0)
    size = dim or 2 * cos.shape[-1]
    return _bind(call, cos, sin, call.input(1), size)
