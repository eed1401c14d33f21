"""How a projection is cut into heads, and heads are joined again, in nodes of a graph."""

from __future__ import annotations

import attrs
import onnx_ir as ir

from seamline.drafts import Draft
from seamline.rewriting import Rewriting
from seamline.tensors import Dim, TensorType

__all__ = ["End", "Operand", "joined_heads", "operand_of", "swapped"]

_HEADS_FIRST = (0, 2, 1, 3)


@attrs.frozen(eq=False)
class Operand:
    """
    Queries, keys or values by head.

    Attributes
    ----------
    value
        (batch, heads, rows, size); None of keys that are only there turned.
    shape
        Of that, whether it is there or not.
    rows
        (batch, rows, heads, size), where it was made by transposing that.
    flat
        (batch, rows, heads * size), where it was cut out of that.
    cut
        Nodes that cut it.
    turned
        Nodes that turned keys for the product.
    group
        How many times each head was repeated for the product; of ``value`` and ``shape`` it is
        not.
    repeated
        Nodes that repeated heads.
    """

    value: ir.Value | None
    shape: tuple[Dim, ...] | None
    rows: ir.Value | None = None
    flat: ir.Value | None = None
    cut: tuple[ir.Node, ...] = ()
    turned: tuple[ir.Node, ...] = ()
    group: int = 1
    repeated: tuple[ir.Node, ...] = ()

    @property
    def heads(self) -> int | None:
        """Give the number of heads where it is known."""
        found = self.shape[1] if self.shape is not None else None
        return found if isinstance(found, int) else None

    def heads_first(self, draft: Draft) -> ir.Value | None:
        """Give it with heads before rows, transposed by a new node if need be."""
        if self.value is not None or self.rows is None:
            return self.value
        kind = draft.work.kind(self.rows)
        made = None if kind is None else TensorType(kind.dtype, self.shape)
        turn = {"perm": list(_HEADS_FIRST)}
        return draft.node("Transpose", [self.rows], made, turn, hint="heads")


@attrs.frozen(eq=False)
class End:
    """Heads joined again: the value, and the nodes that do it."""

    value: ir.Value
    nodes: tuple[ir.Node, ...]


def _perm(work: Rewriting, node: ir.Node | None) -> tuple[int, ...] | None:
    if node is None or node.domain or node.op_type != "Transpose":
        return None
    return tuple(work.attribute(node, "perm", ()))


def _flat(
    work: Rewriting, rows: ir.Value
) -> tuple[ir.Value | None, tuple[ir.Node, ...]]:
    """Give the projection that was reshaped to (batch, rows, heads, size), and the node."""
    node = rows.producer()
    if node is None or node.domain or node.op_type != "Reshape":
        return None, ()
    whole, cut = work.shape(node.inputs[0]), work.shape(rows)
    if whole is None or cut is None or len(whole) != 3 or len(cut) != 4:
        return None, ()
    heads, size = cut[2:]
    if None in (*whole, *cut) or whole[:2] != cut[:2]:
        return None, ()
    if not (
        isinstance(heads, int) and isinstance(size, int) and whole[2] == heads * size
    ):
        return None, ()
    return node.inputs[0], (node,)


def operand_of(work: Rewriting, value: ir.Value | None) -> Operand:
    """Look at how queries, keys or values came by heads."""
    if value is not None and (found := _repeated(work, value)) is not None:
        return found
    shape = work.shape(value)
    node = value.producer() if value is not None else None
    if node is None or _perm(work, node) != _HEADS_FIRST or node.inputs[0] is None:
        return Operand(value, shape if shape is None or len(shape) == 4 else None)
    flat, nodes = _flat(work, node.inputs[0])
    return Operand(value, shape, node.inputs[0], flat, (node, *nodes) if nodes else ())


def _repeated(work: Rewriting, value: ir.Value) -> Operand | None:
    """See through heads that were each repeated, for a product of as many queries' heads."""
    nodes: list[ir.Node] = []
    for op_type in ("Reshape", "Expand", "Unsqueeze"):
        node = value.producer()
        if node is None or node.domain or node.op_type != op_type:
            return None
        if work.only_reader(value) is None or node.inputs[0] is None:
            return None
        nodes.append(node)
        value = node.inputs[0]
    before, apart, spread, after = (
        work.shape(v) for v in (value, *(node.outputs[0] for node in reversed(nodes)))
    )
    if before is None or len(before) != 4 or None in before or spread is None:
        return None
    b, kv, rows, size = before
    group = spread[2] if len(spread) == 5 else None
    if not isinstance(kv, int) or not isinstance(group, int):
        return None
    wanted = (
        (b, kv, 1, rows, size),
        (b, kv, group, rows, size),
        (b, kv * group, rows, size),
    )
    if (apart, spread, after) != wanted:
        return None
    return Operand(value, before, group=group, repeated=tuple(reversed(nodes)))


def swapped(work: Rewriting, value: ir.Value | None) -> Operand | None:
    """Look at keys that were turned for a product; None where they were not."""
    node = value.producer() if value is not None else None
    perm = _perm(work, node)
    if node is None or value is None or work.only_reader(value) is None:
        return None
    if perm == (0, 1, 3, 2):
        return attrs.evolve(_behind(work, node.inputs[0]), turned=(node,))
    shape = work.shape(value)
    if perm == (0, 2, 3, 1) and shape is not None and node.inputs[0] is not None:
        turned = (shape[0], shape[1], shape[3], shape[2])
        flat, nodes = _flat(work, node.inputs[0])
        cut = (node, *nodes) if nodes else ()
        return Operand(None, turned, node.inputs[0], flat, cut, (node,))
    return _through_three(work, node, value)


def _behind(work: Rewriting, value: ir.Value | None) -> Operand:
    """Give keys before they are turned; their nodes go only where all of them may."""
    found = operand_of(work, value)
    alone = value is not None and work.only_reader(value) is not None
    return found if alone else attrs.evolve(found, flat=None, cut=())


def _through_three(work: Rewriting, node: ir.Node, value: ir.Value) -> Operand | None:
    """See through keys that are turned as (batch * heads, rows, size)."""
    if node.domain or node.op_type != "Reshape" or node.inputs[0] is None:
        return None
    turn = node.inputs[0].producer()
    if turn is None or _perm(work, turn) != (0, 2, 1) or turn.inputs[0] is None:
        return None
    first = turn.inputs[0].producer()
    if first is None or first.domain or first.op_type != "Reshape":
        return None
    before, three, after = (
        work.shape(v) for v in (first.inputs[0], turn.inputs[0], value)
    )
    if before is None or three is None or after is None or None in (*before, *after):
        return None
    if len(before) != 4 or len(three) != 3 or before[2:] != three[1:]:
        return None
    if after != (before[0], before[1], before[3], before[2]):
        return None
    found = _behind(work, first.inputs[0])
    nodes = (first, turn, node)
    cut = (*nodes, *found.cut) if found.cut else ()
    return attrs.evolve(found, cut=cut, turned=nodes)


def joined_heads(
    work: Rewriting, value: ir.Value, q: Operand, v: Operand
) -> End | None:
    """Give where heads are joined to (batch, rows, heads * size), if that comes next."""
    turn = work.only_reader(value)
    if turn is None or _perm(work, turn) != _HEADS_FIRST:
        return None
    shape = work.only_reader(turn.outputs[0])
    if shape is None or shape.domain or shape.op_type != "Reshape":
        return None
    found = work.shape(shape.outputs[0])
    if q.shape is None or v.shape is None or not isinstance(v.shape[3], int):
        return None
    heads = q.heads
    if heads is None or found != (q.shape[0], q.shape[2], heads * v.shape[3]):
        return None
    return End(shape.outputs[0], (turn, shape))
