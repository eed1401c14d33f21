"""Which forms of a mixture of experts are implemented, and whether its inputs fit."""

from __future__ import annotations

from seamline.provider import NodeView
from seamline.tensors import Dim
from seamline_cpu.kernels.expert_gates import ACTIVATIONS
from seamline_cpu.kernels.fitting import dims, unlike

__all__ = ["block_of", "input_of", "sizes_of", "unfit", "unfit_routing"]

#: Inputs of QMoE by layer.
_INPUTS = {
    1: {"weights": 2, "scales": 3, "bias": 4, "points": 11},
    2: {"weights": 5, "scales": 6, "bias": 7, "points": 12},
    3: {"weights": 8, "scales": 9, "bias": 10, "points": 13},
}
_BITS = (2, 4, 8)
_FLOATS = ("float32", "float16", "bfloat16")


def input_of(layer: int, what: str) -> int:
    """Give the input that holds a layer's weights, scales, bias or zero points."""
    return _INPUTS[layer][what]


def _bits(view: NodeView, layer: int) -> int:
    of_all = view.attributes.get("expert_weight_bits", 4)
    return int(view.attributes.get(f"fc{layer}_expert_weight_bits", of_all))


def sizes_of(view: NodeView, layer: int) -> tuple[int, int, int, int]:
    """Give experts, N, K and bits of a layer whose weights' sizes are known."""
    shape, bits = dims(view, input_of(layer, "weights")), _bits(view, layer)
    experts, n, width = (size if isinstance(size, int) else 0 for size in shape or ())
    return experts, n, width * 8 // bits, bits


def block_of(k: int, blocks: int) -> int:
    """Give codes of K with one scale: all, filled up to a multiple of 16, of one block."""
    return k // blocks if blocks > 1 else -(-k // 16) * 16


def unfit(view: NodeView) -> str | None:
    """Give a reason to refuse a QMoE, or None."""
    return (
        _unknown(view)
        or unfit_routing(view, 14)
        or _not_constant(view)
        or _unlike_each_other(view)
    )


def _unknown(view: NodeView) -> str | None:
    given = view.attributes
    kind = given.get("quant_type", "int")
    if kind != "int":
        return f"quant_type {kind!r} is not implemented, only 'int'"
    if given.get("weights_prepacked", -1) == 1:
        return "weights packed for another device cannot be read"
    for layer in (1, 2, 3):
        if (bits := _bits(view, layer)) not in _BITS:
            return f"experts of {bits} bits are not implemented, only 2, 4 and 8"
    if any(view.has_input(i) for i in range(15, 21)):
        return "global scales and scales of activations are for floats of 8 and 4 bits"
    return None


def unfit_routing(view: NodeView, weights: int) -> str | None:
    """Refuse unknown activations and routings; ``weights`` is the input that states some."""
    given = view.attributes
    kind = given.get("activation_type", "relu")
    if kind not in ACTIVATIONS:
        return f"activation {kind!r} is not implemented, only {', '.join(ACTIVATIONS)}"
    if given.get("swiglu_limit_after_activation", 0):
        return "swiglu_limit_after_activation is not implemented"
    x, logits, k = dims(view, 0), dims(view, 1), given.get("k", 1)
    if x is not None and len(x) not in (2, 3):
        return f"its input has {len(x)} axes, not 2 or 3"
    if logits is None or x is None:
        return None
    if len(logits) != 2:
        return f"its router_probs have {len(logits)} axes, not 2"
    count = logits[1]
    if isinstance(count, int) and not 1 <= k <= count:
        return f"k is {k}, and there are {count} experts"
    if given.get("use_sparse_mixer", 0) and k != 2:
        return f"the sparse mixer is for two experts, and k is {k}"
    tokens = _product(x[:-1])
    return unlike(view, 1, "router_probs", (tokens, count)) or unlike(
        view, weights, "router_weights", (tokens, count)
    )


def _product(sizes: tuple[Dim, ...]) -> Dim:
    total = 1
    for size in sizes:
        if not isinstance(size, int):
            return None
        total *= size
    return total


def _not_constant(view: NodeView) -> str | None:
    for layer, names in _INPUTS.items():
        for what, index in names.items():
            if not view.has_input(index):
                continue
            if view.constant(index) is None:
                return f"its fc{layer} {what} are not constant: they are packed once"
            kind = view.tensor(index)
            allowed = ("uint8",) if what in ("weights", "points") else _FLOATS
            if kind is not None and kind.dtype not in allowed:
                return (
                    f"its fc{layer} {what} are {kind.dtype}, not {', '.join(allowed)}"
                )
    return None


def _unlike_each_other(view: NodeView) -> str | None:
    x, logits = dims(view, 0), dims(view, 1)
    for layer in (1, 2, 3):
        if not view.has_input(input_of(layer, "weights")):
            if layer < 3:
                return f"it has no weights of fc{layer}"
            continue
        shape = dims(view, input_of(layer, "weights"))
        if shape is None or len(shape) != 3:
            return f"its fc{layer} weights are not of three axes"
        if logits is not None and logits[1] not in (shape[0], None):
            return f"it has {shape[0]} experts, and logits of {logits[1]}"
        if reason := _unlike_layer(view, layer):
            return reason
    return _unlike_sizes(view, x[-1] if x else None)


def _unlike_sizes(view: NodeView, hidden: Dim) -> str | None:
    """Refuse layers that do not follow from one another."""
    given = view.attributes
    fusion, kind = given.get("swiglu_fusion", 0), given.get("activation_type", "relu")
    experts, n, k, _ = sizes_of(view, 1)
    third = view.has_input(input_of(3, "weights"))
    if kind == "swiglu" and third == bool(fusion):
        which = "has fc3 as well" if third else "has no fc3"
        return f"swiglu_fusion is {fusion}, and it {which}"
    inner = n // 2 if kind == "swiglu" and not third else n
    if isinstance(hidden, int) and hidden != k:
        return f"its input has {hidden} columns, and fc1 {k}"
    if sizes_of(view, 2)[:3] != (experts, k, inner):
        return f"fc2 is {sizes_of(view, 2)[:3]}, not {(experts, k, inner)}"
    if third and sizes_of(view, 3)[:3] != (experts, n, k):
        return f"fc3 is {sizes_of(view, 3)[:3]}, not {(experts, n, k)}"
    return None


def _unlike_layer(view: NodeView, layer: int) -> str | None:
    """Refuse scales, zero points or a bias that are not a layer's."""
    experts, n, k, bits = sizes_of(view, layer)
    scales = dims(view, input_of(layer, "scales"))
    if scales is None:
        return f"it has no fc{layer} scales"
    block = view.attributes.get("block_size", 0)
    blocks = scales[2] if len(scales) == 3 else 1
    if not isinstance(blocks, int) or blocks < 1 or k % blocks:
        return f"its fc{layer} scales are {list(scales)}, and K is {k}"
    if blocks > 1 and (block_of(k, blocks) % 16 or (block and blocks * block != k)):
        return (
            f"its fc{layer} has {blocks} blocks of {k} codes, and block_size is {block}; "
            "blocks are multiples of 16"
        )
    each = 8 // bits
    points = (experts, n, -(-blocks // each)), (experts, -(-n // each))
    name = f"fc{layer}"
    return (
        unlike(view, input_of(layer, "scales"), f"{name} scales", (experts, n, blocks),
               *([(experts, n)] if blocks == 1 else []))
        or unlike(view, input_of(layer, "points"), f"{name} zero points",
                  *(points if blocks == 1 else points[:1]))
        or unlike(view, input_of(layer, "bias"), f"{name} bias", (experts, n))
    )  # fmt: skip
