"""
Operators between DequantizeLinear and QuantizeLinear become their forms over bytes.

Models quantised beforehand state an operator in floats, its inputs dequantised and its
output quantised. onnxruntime's QLinear operators are that in one: sums stay integers, and no
float is written to memory. Operators that only move elements, or choose among them, give
the same codes whether they see floats or bytes, if both sides have one scale.

Sums of a convolution are exact, where floats' are rounded, so a result may differ by a code
where it lies between two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewrites.epilogues import numbers_of
from seamline.rewrites.quantized_sites import (
    RULE,
    Codes,
    Site,
    codes_of,
    is_single,
    single_of,
    zero_of,
)
from seamline.rewriting import Rewriting, Rules

__all__ = ["RULES"]

_CLOSE = 1e-5  # of scales that are one product, rounded in another order
#: Operators that give some of their first input's elements, and so keep scale and point.
_MOVES = frozenset(
    [
        "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "Identity",
        "MaxPool", "Reshape", "Slice", "SpaceToDepth", "Squeeze", "Tile", "Transpose",
        "Unsqueeze",
    ]
)  # fmt: skip


def pair(work: Rewriting, last: ir.Node) -> bool:
    """Write Add and Mul of two dequantised tensors as QLinearAdd and QLinearMul."""
    site = Site.of(work, last)
    if site is None or site.node.domain or site.node.op_type not in ("Add", "Mul"):
        return False
    parts = [single_of(work, value) for value in site.node.inputs]
    one, other = parts
    if one is None or other is None or {one.dtype, other.dtype} != {site.kind.dtype}:
        return False
    return site.make(
        f"QLinear{site.node.op_type}",
        lambda draft: [
            one.codes, one.scale, one.point, other.codes, other.scale, other.point,
            site.scale, site.point,
        ],
        (one, other),
    )  # fmt: skip


_UNARY: Mapping[str, Mapping[str, object]] = {
    "AveragePool": {},
    "GlobalAveragePool": {"channels_last": 0},
    "LeakyRelu": {},
    "Sigmoid": {},
    "Softmax": {},
}


def unary(work: Rewriting, last: ir.Node) -> bool:
    """Write functions of one dequantised tensor as QLinear operators."""
    site = Site.of(work, last)
    if site is None or site.node.domain or site.node.op_type not in _UNARY:
        return False
    part = single_of(work, site.node.inputs[0])
    if part is None or part.dtype != site.kind.dtype:
        return False
    more = dict(_UNARY[site.node.op_type])
    if site.node.op_type == "Softmax":
        more["opset"] = work.opset()
    return site.make(
        f"QLinear{site.node.op_type}",
        lambda draft: [
            part.codes, part.scale, zero_of(draft, part, "x.zero"), site.scale,
            site.zero(draft),
        ],
        (part,), more,
    )  # fmt: skip


def concat(work: Rewriting, last: ir.Node) -> bool:
    """Write Concat of dequantised tensors as QLinearConcat."""
    site = Site.of(work, last)
    if site is None or site.node.domain or site.node.op_type != "Concat":
        return False
    parts = [single_of(work, value) for value in site.node.inputs]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or any(part.dtype != site.kind.dtype for part in known):
        return False

    def inputs(draft: Draft) -> list[ir.Value | None]:
        given: list[ir.Value | None] = [site.scale, site.zero(draft)]
        for part in known:
            given += [part.codes, part.scale, zero_of(draft, part, "x.zero")]
        return given

    return site.make("QLinearConcat", inputs, known)


def _bias(
    work: Rewriting, value: ir.Value | None, scales: Sequence[ir.Value]
) -> Codes | None:
    """Give a bias of int32 codes, whose scale is that of the sums that it is added to."""
    found = codes_of(work, value, "int32")
    known = [work.constant(v) for v in scales]
    if found is None or any(k is None for k in known):
        return None
    scale, point = work.constant(found.scale), found.point
    zero = None if point is None else work.constant(point)
    if scale is None or (point is not None and (zero is None or zero.any())):
        return None
    a, b = (np.asarray(k, np.float64).reshape(-1) for k in known)
    if not np.allclose(scale.reshape(-1), a * b, rtol=_CLOSE, atol=0):
        work.leave(RULE, value.name or "", "its scale is not that of the product")  # type: ignore[union-attr]
        return None
    return found


def convolution(work: Rewriting, last: ir.Node) -> bool:
    """Write Conv of dequantised pixels and weights as QLinearConv."""
    site = Site.of(work, last)
    if site is None or site.node.domain or site.node.op_type != "Conv":
        return False
    x, weights, bias = [*site.node.inputs, None][:3]
    pixels, w = single_of(work, x), codes_of(work, weights)
    if pixels is None or w is None or not work.is_static(w.codes):
        return False
    if not is_single(work, w.scale) and work.attribute(w.node, "axis", 1) != 0:
        return False
    parts, added = [pixels, w], None
    if bias is not None:
        if (found := _bias(work, bias, (pixels.scale, w.scale))) is None:
            return False
        parts.append(found)
        added = found.codes
    return site.make(
        "QLinearConv",
        lambda draft: [
            pixels.codes, pixels.scale, zero_of(draft, pixels, "x.zero"), w.codes, w.scale,
            zero_of(draft, w, "w.zero"), site.scale, site.zero(draft), added,
        ],
        parts, domain="",
    )  # fmt: skip


def gemm(work: Rewriting, last: ir.Node) -> bool:
    """Write Gemm of dequantised matrices as QGemm."""
    site = Site.of(work, last)
    if site is None or site.node.domain or site.node.op_type != "Gemm":
        return False
    a, b, bias = [*site.node.inputs, None][:3]
    left, right = single_of(work, a), codes_of(work, b)
    if left is None or right is None or not work.is_static(right.codes):
        return False
    turned = work.attribute(site.node, "transB", 0)
    if (
        not is_single(work, right.scale)
        and work.attribute(right.node, "axis", 1) != 1 - turned
    ):
        return False
    numbers = [work.attribute(site.node, name, 1.0) for name in ("alpha", "beta")]
    parts, added = [left, right], None
    if bias is not None:
        found = _bias(work, bias, (left.scale, right.scale))
        if found is None or numbers != [1.0, 1.0]:
            return False
        parts.append(found)
        added = found.codes
    return site.make(
        "QGemm",
        lambda draft: [
            left.codes, left.scale, zero_of(draft, left, "a.zero"), right.codes, right.scale,
            zero_of(draft, right, "b.zero"), added, site.scale, site.zero(draft),
        ],
        parts, {"beta": None},
    )  # fmt: skip


def _same(work: Rewriting, one: ir.Value | None, other: ir.Value | None) -> bool:
    """Tell whether two scales or points are one; None is a point of 0."""
    if one is other:
        return True
    values = [None if v is None else work.constant(v) for v in (one, other)]
    if any(
        v is not None and k is None for v, k in zip((one, other), values, strict=True)
    ):
        return False
    a, b = (np.zeros(()) if v is None else v.reshape(-1)[:1] for v in values)
    return bool(np.all(a == b))


def moved(work: Rewriting, last: ir.Node) -> bool:
    """Move bytes where floats were moved, between one scale and the same."""
    site = Site.of(work, last)
    if site is None or site.node.domain or site.node.op_type not in _MOVES:
        return False
    part = single_of(work, site.node.inputs[0])
    if part is None or part.dtype != site.kind.dtype:
        return False
    if not (
        _same(work, part.scale, site.scale) and _same(work, part.point, site.point)
    ):
        return False
    return site.make(
        site.node.op_type,
        lambda draft: [part.codes, *site.node.inputs[1:]],
        (part,), domain="",
    )  # fmt: skip


def clamped(work: Rewriting, last: ir.Node) -> bool:
    """Leave out Relu and Clip where codes end before or where these do."""
    site = Site.of(work, last)
    if site is None or site.node.domain or site.node.op_type not in ("Relu", "Clip"):
        return False
    bounds = (
        (0.0, np.inf) if site.node.op_type == "Relu" else numbers_of(work, site.node)
    )
    scale = work.constant(site.scale)
    point = None if site.point is None else work.constant(site.point)
    unknown = site.point is not None and point is None
    if bounds is None or scale is None or unknown or len(bounds) != 2:
        return False
    zero = 0 if point is None else int(point.reshape(-1)[0])
    ends, real = np.iinfo(site.kind.dtype), float(scale.reshape(-1)[0])
    if (ends.min - zero) * real < bounds[0] or (ends.max - zero) * real > bounds[1]:
        return False
    draft = Draft(work, f"{RULE}-{site.node.op_type.lower()}", (site.node, last))
    inputs = [site.node.inputs[0], *last.inputs[1:]]
    made = draft.node("QuantizeLinear", inputs, site.kind, dict(last.attributes))
    return draft.make("codes saturate where it would cut", (last.outputs[0], made))


RULES: Rules = {
    "QuantizeLinear": (clamped, convolution, gemm, pair, unary, concat, moved),
}
