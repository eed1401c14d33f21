"""Which forms of a mixture of experts are implemented, and whether its inputs fit."""

from __future__ import annotations

from seamline.fitting import dims, unlike
from seamline.provider import NodeView
from seamline.tensors import Dim
from seamline_cpu.kernels.expert_gates import ACTIVATIONS

__all__ = ["GLOBAL", "block_of", "input_of", "sizes_of", "unfit", "unfit_experts"]

_NONE = 99  # an input that no node has
#: Inputs by operator and layer.
_INPUTS = {
    "QMoE": {
        1: {"weights": 2, "scales": 3, "bias": 4, "points": 11},
        2: {"weights": 5, "scales": 6, "bias": 7, "points": 12},
        3: {"weights": 8, "scales": 9, "bias": 10, "points": 13},
    },
    "MoE": {
        layer: {
            "weights": 2 * layer,
            "bias": 2 * layer + 1,
            "scales": _NONE,
            "points": _NONE,
        }
        for layer in (1, 2, 3)
    },
}
GLOBAL = {1: 15, 2: 16}  #: inputs that are a scale for each expert, by layer
_BITS = (2, 4, 8)
_FLOATS = ("float32", "float16", "bfloat16")


def input_of(view: NodeView, layer: int, what: str) -> int:
    """Give the input that holds a layer's weights, scales, bias or zero points."""
    return _INPUTS[view.op_type][layer][what]


def _bits(view: NodeView, layer: int) -> int:
    if view.op_type == "MoE":
        return 8  # of an element of the packed axis: floats are not packed
    of_all = view.attributes.get("expert_weight_bits", 4)
    return int(view.attributes.get(f"fc{layer}_expert_weight_bits", of_all))


def sizes_of(view: NodeView, layer: int) -> tuple[int, int, int, int]:
    """Give experts, N, K and bits of a layer, 0 for what is not known."""
    experts, n, k = (x if isinstance(x, int) else 0 for x in _matrix(view, layer))
    return experts, n, k, _bits(view, layer)


def _matrix(view: NodeView, layer: int) -> tuple[Dim, Dim, Dim]:
    """Give experts, N and K, some of which may be open."""
    shape = dims(view, input_of(view, layer, "weights"))
    if shape is None or len(shape) != 3:
        return None, None, None
    experts, n, width = shape
    k = width * 8 // _bits(view, layer) if isinstance(width, int) else None
    return experts, n, k


def block_of(k: int, blocks: int) -> int:
    """Give codes of K with one scale: all, filled up to a multiple of 16, of one block."""
    return k // blocks if blocks > 1 else -(-k // 16) * 16


def unfit(view: NodeView) -> str | None:
    """Give a reason to refuse a QMoE, or None."""
    return _unknown(view) or unfit_experts(view, 14)


def unfit_experts(view: NodeView, weights: int) -> str | None:
    """Refuse what no mixture of experts is; input ``weights`` states what choices weigh."""
    return _unfit_routing(view, weights) or _of_types(view) or _unlike_each_other(view)


def _unknown(view: NodeView) -> str | None:
    given = view.attributes
    kind = given.get("quant_type", "int")
    if kind not in ("int", "fp4"):
        return f"quant_type {kind!r} is not implemented, only 'int' and 'fp4'"
    if kind == "fp4" and (reason := _unlike_mxfp4(view)):
        return reason
    if given.get("weights_prepacked", -1) == 1:
        return "weights packed for another device cannot be read"
    for layer in (1, 2, 3):
        if (bits := _bits(view, layer)) not in _BITS:
            return f"experts of {bits} bits are not implemented, only 2, 4 and 8"
    if any(view.has_input(i) for i in range(15 if kind == "int" else 17, 21)):
        return "global scales and scales of activations are for floats of 8 and 4 bits"
    return None


def _unlike_mxfp4(view: NodeView) -> str | None:
    """Refuse what is no MXFP4: blocks of 32, a scale for each expert, no zero points."""
    given = view.attributes
    if given.get("expert_weight_bits", 4) != 4 or given.get("block_size", 32) != 32:
        return "quant_type 'fp4' has 4 bits in blocks of 32"
    for layer in (1, 2, 3):
        if view.has_input(input_of(view, layer, "points")):
            return "quant_type 'fp4' has no zero points"
        scale = view.tensor(input_of(view, layer, "scales"))
        if scale is not None and scale.dtype != "float8_e8m0fnu":
            return f"its fc{layer} scales are {scale.dtype}, not float8_e8m0fnu"
    if view.has_input(input_of(view, 3, "weights")):
        return "quant_type 'fp4' has no global scale for an fc3"
    experts = _matrix(view, 1)[0]
    for layer, index in GLOBAL.items():
        if not view.has_input(index):
            return f"quant_type 'fp4' has a global scale of fc{layer}"
        if reason := unlike(view, index, f"fc{layer} global scale", (experts,)):
            return reason
    return None


def _unfit_routing(view: NodeView, weights: int) -> str | None:
    """Refuse unknown activations and routings."""
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


def _of_types(view: NodeView) -> str | None:
    packed = ("uint8",) if view.op_type == "QMoE" else _FLOATS
    for layer, names in _INPUTS[view.op_type].items():
        for what, index in names.items():
            kind = view.tensor(index)
            allowed = packed if what in ("weights", "points") else _FLOATS
            if what == "scales" and view.attributes.get("quant_type") == "fp4":
                continue
            if kind is not None and kind.dtype not in allowed:
                return (
                    f"its fc{layer} {what} are {kind.dtype}, not {', '.join(allowed)}"
                )
    return None


def _differ(one: Dim, other: Dim) -> bool:
    """Tell whether two sizes that are both known are not the same."""
    return isinstance(one, int) and isinstance(other, int) and one != other


def _unlike_each_other(view: NodeView) -> str | None:
    x, logits = dims(view, 0), dims(view, 1)
    for layer in (1, 2, 3):
        index = input_of(view, layer, "weights")
        if not view.has_input(index):
            if layer < 3:
                return f"it has no weights of fc{layer}"
            continue
        shape = dims(view, index)
        if shape is not None and len(shape) != 3:
            return f"its fc{layer} weights are not of three axes"
        if shape is not None and logits is not None and _differ(logits[1], shape[0]):
            return f"it has {shape[0]} experts, and logits of {logits[1]}"
        if reason := _unlike_layer(view, layer):
            return reason
    return _unlike_sizes(view, x[-1] if x else None)


def _unlike_sizes(view: NodeView, hidden: Dim) -> str | None:
    """Refuse layers that do not follow from one another."""
    given = view.attributes
    fusion, kind = given.get("swiglu_fusion", 0), given.get("activation_type", "relu")
    experts, n, k = _matrix(view, 1)
    third = view.has_input(input_of(view, 3, "weights"))
    if kind != "swiglu" and fusion:
        return f"swiglu_fusion is {fusion}, and its activation {kind}"
    if kind == "swiglu" and third == bool(fusion):
        which = "has fc3 as well" if third else "has no fc3"
        return f"swiglu_fusion is {fusion}, and it {which}"
    if _differ(hidden, k):
        return f"its input has {hidden} columns, and fc1 {k}"
    halved = kind == "swiglu" and not third
    inner = n // 2 if halved and isinstance(n, int) else None if halved else n
    wanted = {2: (experts, k, inner), **({3: (experts, n, k)} if third else {})}
    for layer, sizes in wanted.items():
        found = _matrix(view, layer)
        if any(_differ(a, b) for a, b in zip(found, sizes, strict=True)):
            return f"fc{layer} is {found}, not {sizes}"
    return None


def _unlike_layer(view: NodeView, layer: int) -> str | None:
    """Refuse scales, zero points or a bias that are not a layer's."""
    experts, n, k = _matrix(view, layer)
    scales, name = dims(view, input_of(view, layer, "scales")), f"fc{layer}"
    bias = input_of(view, layer, "bias")
    if reason := unlike(view, bias, f"{name} bias", (experts, n)):
        return reason
    if view.op_type == "MoE":
        return None
    if not view.has_input(input_of(view, layer, "scales")):
        return f"it has no {name} scales"
    if scales is None or not isinstance(k, int):
        return None
    block = view.attributes.get("block_size", 0)
    blocks = scales[2] if len(scales) == 3 else 1
    if not isinstance(blocks, int):
        return None
    if blocks < 1 or k % blocks:
        return f"its {name} scales are {list(scales)}, and K is {k}"
    if (block and blocks * block != k) or block_of(k, blocks) % 16:
        return (
            f"its {name} has {blocks} blocks of {k} codes, and block_size is {block}; "
            "blocks are multiples of 16"
        )
    return _unlike_scales(view, layer, blocks)


def _unlike_scales(view: NodeView, layer: int, blocks: int) -> str | None:
    experts, n, _ = _matrix(view, layer)
    each, name, single = 8 // _bits(view, layer), f"fc{layer}", blocks == 1
    by_row: list[tuple[Dim, ...]] = [(experts, n, -(-blocks // each))]
    if single:
        by_row.append((experts, -(-n // each) if isinstance(n, int) else None))
    shapes: list[tuple[Dim, ...]] = [(experts, n, blocks)]
    shapes += [(experts, n)] if single else []
    scales, points = (input_of(view, layer, what) for what in ("scales", "points"))
    return unlike(view, scales, f"{name} scales", *shapes) or unlike(
        view, points, f"{name} zero points", *by_row
    )
