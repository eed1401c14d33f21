"""
Which nodes of a segment run as one kernel.

Neighbours in the segment's order whose results have one size are joined, whether or not
they depend on each other: what one makes and the next one reads stays in a register. A
result is stored only where something outside the group reads it.

Whether a group may run as one is looked at again when its places are known. The plan gives
the place of a value that is dead to a later one, and counts in nodes: inside one kernel,
threads that are ahead would overwrite what others have not read. That is harmless only
where both lie at the same address and every thread writes what it alone has read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from seamline.provider import NodeView
from seamline.tensors import TensorType
from seamline_cuda.elementwise import Generated, Group, kind_of, spread_sizes
from seamline_cuda.formulas import formula_of

__all__ = ["grouped", "single", "trampled"]

_NODES = 16  #: of one kernel; registers, and the time that it takes to compile
_LOADS = 12

Step = NodeView | Group


def grouped(
    nodes: Sequence[NodeView],
    read_outside: Collection[str],
    is_elementwise: Callable[[NodeView], bool],
) -> list[Step]:
    """
    Join what can run together; nodes that are not elementwise stay as they are.

    Parameters
    ----------
    read_outside
        Values of the segment that are read by others.
    """
    runs: list[list[NodeView]] = []
    for node in nodes:
        open_run = runs[-1] if runs else None
        if open_run and is_elementwise(node) and _joins(open_run, node, is_elementwise):
            open_run.append(node)
        else:
            runs.append([node])
    readers = _readers(nodes)
    found: list[Step] = []
    for run in runs:
        if not is_elementwise(run[0]):
            found.append(run[0])
        else:
            found.append(_group(run, readers, read_outside))
    return found


def single(group: Group) -> list[Group]:
    """Give a group's nodes as groups of their own, every result stored."""
    return [
        Group((node,), _inputs([node]), (node.node.outputs[0],)) for node in group.nodes
    ]


def trampled(
    group: Group, made: Generated, places: Mapping[str, tuple[int, int]]
) -> str:
    """
    Say what a group would overwrite before it is read; empty where nothing.

    Parameters
    ----------
    places
        Address and bytes of every value that is loaded or stored.
    """
    for store in group.stores:
        start, nbytes = places[store]
        written = kind_of(group.nodes[-1], group.nodes[-1].node.outputs[0])
        for index, load in enumerate(group.loads):
            other, length = places[load]
            if not (start < other + length and other < start + nbytes):
                continue
            alike = other == start and length == nbytes
            if alike and made.forms[index] == "flat":
                continue
            return f"{store!r} lies over {load!r}, which other threads still read ({written})"
    return ""


def _joins(
    run: Sequence[NodeView],
    node: NodeView,
    is_elementwise: Callable[[NodeView], bool],
) -> bool:
    if not is_elementwise(run[0]) or len(run) == _NODES:
        return False
    if _sizes(run[0]) != _sizes(node):
        return False
    if any(_is_repeated(run, node, name) for name in _read(node)):
        return False
    return len(_inputs([*run, node])) <= _LOADS


def _is_repeated(run: Sequence[NodeView], node: NodeView, name: str) -> bool:
    """Tell whether a value of the run would be read at another position than there."""
    made = {other.node.outputs[0] for other in run}
    if name in made:
        return kind_of(node, name).sizes != _sizes(node)
    mine = spread_sizes(node, name)
    others = [other for other in run if name in _read(other)]
    return any(spread_sizes(other, name) != mine for other in others)


def _sizes(node: NodeView) -> tuple[int, ...]:
    kind = node.outputs[0]
    assert isinstance(kind, TensorType)
    return kind.sizes


def _inputs(run: Sequence[NodeView]) -> tuple[str, ...]:
    made: set[str] = set()
    found: dict[str, None] = {}
    for node in run:
        found.update(dict.fromkeys(n for n in _read(node) if n not in made))
        made.add(node.node.outputs[0])
    return tuple(found)


def _read(node: NodeView) -> list[str]:
    formula = formula_of(node)
    return formula.operands(node) if formula else [n for n in node.node.inputs if n]


def _readers(nodes: Sequence[NodeView]) -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node in nodes:
        for name in _read(node):
            found.setdefault(name, set()).add(node.name)
    return found


def _group(
    run: Sequence[NodeView],
    readers: Mapping[str, set[str]],
    read_outside: Collection[str],
) -> Group:
    return Group(tuple(run), _inputs(run), tuple(_stores(run, readers, read_outside)))


def _stores(
    run: Sequence[NodeView],
    readers: Mapping[str, set[str]],
    read_outside: Collection[str],
) -> Iterator[str]:
    inside = {node.name for node in run}
    for node in run:
        name = node.node.outputs[0]
        if name in read_outside or readers.get(name, set()) - inside:
            yield name
