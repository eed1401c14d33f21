"""Packed weights of every form, and the matrix that they stand for."""

from __future__ import annotations

import numpy as np

from seamline_cpu.kernels.nbits_layout import Source, pack, sorted_by_block

MIDDLE, BYTES, FLOATS = "middle", "bytes", "floats"


def packed_codes(q, bits):
    """Pack the last axis into bytes, low bits first."""
    each = 8 // bits
    out = np.zeros((*q.shape[:-1], q.shape[-1] // each), np.uint8)
    for i in range(each):
        out |= (q[..., i::each] << (bits * i)).astype(np.uint8)
    return out


def weights(
    n, k, bits=4, block=32, zeros=MIDDLE, dtype=np.float32, seed=0, coarse=False
):
    """
    Give codes, scales, zero points, and in float64 the N by K matrix.

    What fills up the last block is random; ``coarse`` scales are exact in float16.
    """
    r = np.random.default_rng(seed)
    blocks, top = -(-k // block), 1 << bits
    q = r.integers(0, top, (n, blocks, block))
    scale = (
        r.integers(1, 9, (n, blocks)) / 64
        if coarse
        else r.uniform(0.01, 0.03, (n, blocks))
    )
    scale = scale.astype(dtype)
    z, given = np.full((n, blocks), top / 2), None
    if zeros == BYTES:
        given = r.integers(0, top, (n, blocks)).astype(np.uint8)
        z = given.astype(float)
    elif zeros == FLOATS:
        given = (r.integers(0, 4 * top, (n, blocks)) / 4 + 1 / 8).astype(dtype)
        z = given.astype(float)
    w = (q - z[..., None]) * scale.astype(float)[..., None]
    return packed_codes(q, bits), scale, given, w.reshape(n, -1)[:, :k]


def packed(n, k, groups=None, **form):
    """Give packed weights and the matrix; ``groups`` is a g_idx."""
    codes, scale, zeros, w = weights(n, k, **form)
    block, bits = form.get("block", 32), form.get("bits", 4)
    order = None if groups is None else sorted_by_block(groups, block)
    return pack(Source(codes, scale, zeros, k, bits, order)), w


def error(got, want):
    """Give the root of the mean square of the error, as a share of the values'."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return float(np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2)))
