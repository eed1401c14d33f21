"""Definitions of sums of products: matrix products, normalisation, einsum."""

from __future__ import annotations

import numpy as np

from seamline.provider import Array
from seamline_testing.operands import NotDefinedError, Operands, define

__all__: list[str] = []


@define("MatMul")
def _matmul(op: Operands) -> Array:
    return np.asarray(np.matmul(op[0], op[1]))


@define("MatMulInteger")
def _matmul_integer(op: Operands) -> Array:
    a, b = op[0].astype(np.int64), op[1].astype(np.int64)
    left, right = op.maybe(2), op.maybe(3)
    if left is not None:
        a = a - (left[:, None] if left.ndim == 1 and left.size > 1 else left).astype(
            a.dtype
        )
    if right is not None:
        b = b - right.astype(b.dtype)
    return np.asarray(np.matmul(a, b).astype(np.int32))


@define("Gemm")
def _gemm(op: Operands) -> Array:
    a = op[0].T if op.get("transA", 0) else op[0]
    b = op[1].T if op.get("transB", 0) else op[1]
    alpha, beta = op.get("alpha", 1.0), op.get("beta", 1.0)
    c = op.maybe(2)
    if not op.is_float:
        if alpha != 1 or beta != 1:
            raise NotDefinedError("integers scaled by a float")
        return np.asarray(a @ b if c is None else a @ b + c)
    product = alpha * (a @ b)
    return np.asarray(product if c is None else product + beta * c)


@define("Einsum")
def _einsum(op: Operands) -> Array:
    equation = str(op.get("equation", "")).replace(" ", "")
    return np.asarray(np.einsum(equation, *op.all()))


@define("LayerNormalization")
def _layer_normalization(op: Operands) -> tuple[Array, ...]:
    x, axis = op[0], int(op.get("axis", -1))
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = x.mean(axes, keepdims=True)
    variance = ((x - mean) ** 2).mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(variance + op.get("epsilon", 1e-5))
    bias = op.maybe(2)
    y = (x - mean) * inverse * op[1] + (0 if bias is None else bias)
    return (y, mean, inverse)


@define("RMSNormalization")
def _rms_normalization(op: Operands) -> Array:
    x, axis = op[0], int(op.get("axis", -1))
    axes = tuple(range(axis % x.ndim, x.ndim))
    mean = (x * x).mean(axes, keepdims=True)
    return np.asarray(x / np.sqrt(mean + op.get("epsilon", 1e-5)) * op[1])


@define("InstanceNormalization")
def _instance_normalization(op: Operands) -> Array:
    x = op[0]
    axes = tuple(range(2, x.ndim))
    shape = (1, -1, *[1] * (x.ndim - 2))
    mean = x.mean(axes, keepdims=True)
    variance = ((x - mean) ** 2).mean(axes, keepdims=True)
    y = (x - mean) / np.sqrt(variance + op.get("epsilon", 1e-5))
    return np.asarray(y * op[1].reshape(shape) + op[2].reshape(shape))


@define("BatchNormalization")
def _batch_normalization(op: Operands) -> tuple[Array, ...]:
    if op.version < 9:
        raise NotDefinedError("BatchNormalization before version 9")
    x, scale, bias, mean, variance = (op[index] for index in range(5))
    shape = (1, -1, *[1] * (x.ndim - 2))
    axes = (0, *range(2, x.ndim))
    kept: tuple[Array, ...] = ()
    if op.get("training_mode", 0):
        momentum = op.get("momentum", 0.9)
        now = x.mean(axes), x.var(axes)
        kept = (
            mean * momentum + now[0] * (1 - momentum),
            variance * momentum + now[1] * (1 - momentum),
        )
        mean, variance = now
    elif op.outputs > 1:
        raise NotDefinedError("outputs of training in inference")
    factor = scale / np.sqrt(variance + op.get("epsilon", 1e-5))
    y = (x - mean.reshape(shape)) * factor.reshape(shape) + bias.reshape(shape)
    return (y, *kept)


@define("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(op: Operands) -> Array:
    x = op[0]
    axes = tuple(range(2, x.ndim))
    pick = np.max if op.op_type == "GlobalMaxPool" else np.mean
    return np.asarray(pick(x, axis=axes, keepdims=True))


@define("Conv")
def _conv(op: Operands) -> Array:
    x, w, bias = op[0], op[1], op.maybe(2)
    if op.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise NotDefinedError("pads that are found from sizes")
    rank = x.ndim - 2
    strides = op.get("strides", [1] * rank)
    steps = op.get("dilations", [1] * rank)
    pads = op.get("pads", [0] * (2 * rank))
    around = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded = np.pad(x, around)
    groups = int(op.get("group", 1))
    sizes = [
        (padded.shape[2 + i] - steps[i] * (w.shape[2 + i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *sizes))
    channels, filters = w.shape[1], w.shape[0] // groups
    for place in np.ndindex(*w.shape[2:]):
        window = tuple(
            slice(p * d, p * d + (size - 1) * s + 1, s)
            for p, d, s, size in zip(place, steps, strides, sizes, strict=True)
        )
        for g in range(groups):
            part = padded[
                (slice(None), slice(g * channels, (g + 1) * channels), *window)
            ]
            weights = w[(slice(g * filters, (g + 1) * filters), slice(None), *place)]
            out[:, g * filters : (g + 1) * filters] += np.einsum(
                "nc...,fc->nf...", part, weights
            )
    return out if bias is None else out + bias.reshape(1, -1, *[1] * rank)
