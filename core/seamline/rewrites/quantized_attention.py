"""
onnxruntime's QAttention, written as the product of bytes and the attention that it is.

QAttention quantises nothing by itself: a product of bytes, brought to floats, gives query,
key and value side by side, and what follows is attention over floats.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewriting import CONTRIB, Rewriting, Rules
from seamline.tensors import TensorType

__all__ = ["RULES"]

_RULE = "quantized-attention"
_KEPT = ("num_heads", "scale", "mask_filter_value", "unidirectional")


def _stands_against(work: Rewriting, node: ir.Node) -> str:
    """Say why a node stays as it is, or nothing."""
    given = [*node.inputs, *[None] * 9][:9]
    if given[8] is not None or any(v.name for v in node.outputs[1:]):
        return "it keeps keys and values of before"
    for name in ("do_rotary", "past_present_share_buffer"):
        if work.attribute(node, name, 0):
            return f"its {name} is 1"
    kind = work.kind(given[4])
    if kind is None or kind.dtype != "float32":
        return "it does not give float32"
    return ""


def attention(work: Rewriting, node: ir.Node) -> bool:
    """Write QAttention as MatMulIntegerToFloat, Split and MultiHeadAttention."""
    if node.domain != CONTRIB:
        return False
    if why := _stands_against(work, node):
        return work.leave(_RULE, node.name or "", why)
    x, w, bias, scale, w_scale, mask, point, w_point = [*node.inputs, *[None] * 8][:8]
    shape, sizes = work.shape(x), work.shape(w)
    wide = sizes[1] if sizes is not None and len(sizes) == 2 else None
    if shape is None or len(shape) != 3 or not isinstance(wide, int) or wide % 3:
        return work.leave(_RULE, node.name or "", "its sizes are not known")
    draft = Draft(work, _RULE, (node,))
    made = draft.node(
        "MatMulIntegerToFloat", [x, w, scale, w_scale, point, w_point, bias],
        TensorType("float32", (*shape[:2], wide)), domain=CONTRIB, hint="projected",
    )  # fmt: skip
    part = TensorType("float32", (*shape[:2], wide // 3))
    inputs = [made]
    given: dict[str, object] = {"axis": 2}
    if work.opset() >= 13:
        cuts = np.full(3, wide // 3, np.int64)
        inputs.append(draft.constant(cuts, "sizes"))
    else:
        given["split"] = [wide // 3] * 3
    first = draft.node("Split", inputs, part, given, hint="parts", outputs=3)
    parts = first.producer()
    outputs = parts.outputs if parts is not None else ()
    attributes = {
        name: node.attributes[name] for name in _KEPT if name in node.attributes
    }
    out = draft.node(
        "MultiHeadAttention", [*outputs, None, mask], part, attributes, domain=CONTRIB
    )
    return draft.make(
        "it is a product of bytes and attention over floats", (node.outputs[0], out)
    )


RULES: Rules = {"QAttention": (attention,)}
