"""onnxruntime's Attention: one product for queries, keys and values, then their heads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from seamline.attention_fitting import unfit_projected
from seamline.attention_forms import refused_projected
from seamline.attention_types import ATTENTION_TYPES
from seamline.fitting import all_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView
from seamline_cuda.addends import spread
from seamline_cuda.attention_caches import joined
from seamline_cuda.attention_contrib import CONTRIB, Sizes, attended_of, unfit_mask
from seamline_cuda.attention_places import WIDTHS, Operand, aligned
from seamline_cuda.attention_works import BECAUSE
from seamline_cuda.elements import FLOATS
from seamline_cuda.works import LIBRARY, Matrix, ProductWork, Work

__all__ = ["add_to", "projected_attention", "projection"]

_EVEN = 16  #: bytes that the library trusts a bias's address to be a multiple of


def _sizes(node: NodeView) -> tuple[Sizes, tuple[int, ...]] | None:
    """Give sizes, and the values of queries, keys and values together; None if not known."""
    x, weights = node.tensor(0), node.tensor(1)
    past = node.tensor(4) if node.has_input(4) else None
    if x is None or weights is None or not (x.is_sized and weights.is_sized):
        return None
    if node.has_input(4) and (past is None or not past.is_sized):
        return None
    heads, wide = int(node.attributes["num_heads"]), weights.sizes[1]
    given = node.attributes.get("qkv_hidden_sizes") or (wide // 3,) * 3
    parts = tuple(int(n) for n in given)
    batch, rows = x.sizes[:2]
    before = past.sizes[3] if past is not None else 0
    sizes = Sizes(
        batch, heads, rows, before, rows, parts[0] // heads, parts[2] // heads
    )
    return sizes, parts


def _unfit(node: NodeView) -> str | None:
    """Give a reason to refuse a node whose form is right."""
    x = node.tensor(0)
    for index in (1, 2, 4):
        kind = node.tensor(index) if node.has_input(index) else None
        if x is not None and kind is not None and kind.dtype != x.dtype:
            return f"input {index} is {kind.dtype}, and its input {x.dtype}"
    extra = node.tensor(5) if node.has_input(5) else None
    if extra is not None and extra.dtype not in FLOATS:
        return f"its attention_bias is {extra.dtype}, not {', '.join(FLOATS)}"
    if (found := _sizes(node)) is None:
        return None
    sizes, parts = found
    weights = node.tensor(1)
    assert weights is not None
    assert x is not None
    whole = len(parts) == 3 and sum(parts) == weights.sizes[1] and parts[0] == parts[1]
    if not whole or any(n % sizes.heads for n in parts):
        return (
            f"its queries, keys and values are {list(parts)} of {weights.sizes[1]} values, "
            f"for {sizes.heads} heads"
        )
    if not x.sizes[2]:
        return "its input has no values to multiply"
    past = node.tensor(4) if node.has_input(4) else None
    form = (2, sizes.batch, sizes.heads, sizes.before, sizes.depth)
    if past is not None and (past.sizes != form or sizes.width != sizes.depth):
        return f"its past is {list(past.sizes)}, not {list(form)}"
    return unfit_mask(node, 3, sizes)


def _workspace(node: NodeView) -> int:
    found, x = _sizes(node), node.tensor(0)
    if found is None or x is None:
        return 0
    return sum(_rooms(node, *found, WIDTHS[x.dtype])) + found[0].room()


def _rooms(
    node: NodeView, sizes: Sizes, parts: tuple[int, ...], item: int
) -> tuple[int, int]:
    """Give the bytes of the projection, and of a cache that nobody asked for."""
    made = sizes.batch * sizes.rows * sum(parts) * item
    whole = 2 * sizes.batch * sizes.heads * sizes.keys * sizes.depth * item
    joins = sizes.before and not node.has_output(1)
    return aligned(made), aligned(whole) if joins else 0


def projection(call: Call, room: int, values: int) -> list[Work]:
    """Give the product of the input with the weights, and the bias."""
    x, weights, bias = call.inputs[0], call.inputs[1], call.input(2)
    rows, depth, kind = x.shape[0] * x.shape[1], x.shape[2], x.kind.dtype
    work = ProductWork(
        Matrix(x.address, depth), Matrix(weights.address, values), Matrix(room, values),
        rows, values, depth, kind, tf32=bool(call.options.get("tf32")),
    )  # fmt: skip
    if bias is None:
        return [work]
    if not bias.address % _EVEN:
        return [attrs.evolve(work, bias=bias.address)]
    first = spread(kind, bias.address, room, (rows, values), (0, 1))
    return [first, attrs.evolve(work, beta=1.0)]


def projected_attention(call: Call) -> Sequence[Work]:
    """Project, join the cache, and attend."""
    found = _sizes(call.view)
    assert found is not None, "types are sized when a kernel is made"
    sizes, parts = found
    if not sizes.batch * sizes.rows * sum(parts):
        return []
    x, past, present = call.inputs[0], call.input(4), call.output(1)
    kind, item = x.kind.dtype, WIDTHS[x.kind.dtype]
    room = call.workspace.address
    rooms = _rooms(call.view, sizes, parts, item)
    works = projection(call, room, sum(parts))
    given, start = [], room
    for size in (sizes.depth, sizes.depth, sizes.width):
        steps = (sizes.rows * sum(parts), size, sum(parts))
        given.append(Operand(start, kind, steps))
        start += size * sizes.heads * item
    caches = []
    whole = sizes.batch * sizes.heads * sizes.keys * sizes.depth * item
    for index in (1, 2):
        where = room + rooms[0] if sizes.before else 0
        where = present.address if present is not None else where
        before = None
        if past is not None:
            at = past.address + (index - 1) * (past.nbytes // 2)
            steps = (math.prod(past.shape[2:]), math.prod(past.shape[3:]), sizes.depth)
            before = Operand(at, kind, steps)
        many = (sizes.batch, sizes.heads, sizes.before, sizes.new, sizes.depth)
        place = where + (index - 1) * whole if where else 0
        caches.append(joined(given[index], before, place, many, works))
    attended = attended_of(call, sizes, given[0], caches[0], caches[1], call.input(3))
    return [*works, *attended.works(room + sum(rooms))]


def add_to(table: KernelTable) -> None:
    """Add Attention, and the types of its outputs."""
    table.infer("Attention", domain=CONTRIB)(ATTENTION_TYPES["Attention"])
    table.kernel(
        "Attention", domain=CONTRIB, dtypes={0: FLOATS, 3: ("int32",)},
        when=all_of(refused_projected, unfit_projected, _unfit), workspace=_workspace,
        variant=LIBRARY, because=f"cuBLASLt projects; {BECAUSE}",
        not_capturable=None,
    )(projected_attention)  # fmt: skip
