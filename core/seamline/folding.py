"""
Run once what depends on constants alone, by the same stages that run everything.

The nodes whose inputs are all constants, in bodies too, are a region without inputs: it
is planned, built, run and closed, and what it gave joins the constants. Weights that pass
through ``Identity``, ``Transpose`` or a dequantisation are constants to the kernels that
read them, which may then pack them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
import numpy as np

from seamline.claims import is_core
from seamline.constants import Constants
from seamline.errors import SeamlineError
from seamline.graph import Graph, Node
from seamline.planned import Region
from seamline.provider import Array
from seamline.tensors import TensorType, nbytes_of

__all__ = ["FOLD_LIMIT", "RANDOM", "Folding", "fold"]

FOLD_LIMIT = 1 << 30  #: bytes that folding may add

#: Operators whose results may differ from run to run; Dropout draws only when it trains.
RANDOM = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
_RESHAPES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


@attrs.frozen
class Folding:
    """
    What was folded, and what was left and why.

    Attributes
    ----------
    nodes
        Names of nodes that were run once.
    nbytes
        Bytes of the results that are kept.
    left
        Why folding stopped short; empty if it did not.
    """

    nodes: tuple[str, ...] = ()
    nbytes: int = 0
    left: str = ""


def fold(
    graph: Graph,
    constants: Constants,
    types: Callable[[str], object],
    run: Callable[[Region], dict[str, Array]],
    limit: int = FOLD_LIMIT,
) -> Folding:
    """
    Fold, adding to ``constants.folded``.

    Parameters
    ----------
    types
        Gives a value's type as known before any feed.
    run
        Plans, builds, runs and closes a region without inputs.
    """
    nodes, left = _foldable(graph, constants, types, limit)
    if not nodes:
        return Folding(left=left)
    made = {name for node in nodes for name in node.writes}
    chosen = {node.name for node in nodes}
    wanted = _wanted(graph, made, chosen)
    region = Region("constants", graph, tuple(nodes), (), (), tuple(wanted))
    try:
        results = run(region)
    except SeamlineError as error:
        # The error belongs to the run that meets it, not to the opening of a session.
        return Folding(left=f"not folded: {error}")
    total, sources = 0, _reshaped(nodes)
    for name in [name for node in nodes for name in node.writes if name in results]:
        value = results[name]
        if not isinstance(value, np.ndarray):
            continue
        seen = _seen(constants, sources.get(name, ""), value)
        if seen is None:
            value.flags.writeable = False
            total += value.nbytes
        constants.folded[name] = value if seen is None else seen
    return Folding(tuple(node.name for node in nodes), total, left)


def _reshaped(nodes: Iterable[Node]) -> dict[str, str]:
    """Give the results that are an input's elements in another shape, and that input."""
    return {
        node.outputs[0]: node.inputs[0]
        for node in nodes
        if not node.domain and node.op_type in _RESHAPES
    }


def _seen(constants: Constants, source: str, value: Array) -> Array | None:
    """Give a result as a view of the constant that it was made of: a mapped one stays so."""
    array = constants.get(source) if source else None
    if array is None or array.dtype != value.dtype or array.size != value.size:
        return None
    return array.reshape(value.shape) if array.flags.c_contiguous else None


def _foldable(
    graph: Graph, constants: Constants, types: Callable[[str], object], limit: int
) -> tuple[list[Node], str]:
    known: set[str] = set()
    nodes: list[Node] = []
    spent, left = 0, ""
    for node in graph.walk():
        if is_core(node) or node.op_type in RANDOM or not node.reads:
            continue
        if not all(name in known or name in constants for name in node.reads):
            continue
        size = _nbytes(node, types)
        if spent + size > limit:
            left = f"{node.name!r} and others would take more than {limit} bytes"
            continue
        spent += size
        nodes.append(node)
        known.update(node.writes)
    return nodes, left


def _nbytes(node: Node, types: Callable[[str], object]) -> int:
    total = 0
    for name in node.writes:
        kind = types(name)
        if isinstance(kind, TensorType) and kind.is_sized:
            total += nbytes_of(kind)
    return total


def _wanted(graph: Graph, made: set[str], chosen: set[str]) -> Iterable[str]:
    """Give results that are read by nodes that stay, or asked for."""
    wanted: dict[str, None] = {}
    for one in graph.graphs():
        wanted.update(dict.fromkeys(name for name in one.outputs if name in made))
    for node in graph.walk():
        if node.name not in chosen:
            wanted.update(dict.fromkeys(name for name in node.inputs if name in made))
    return wanted
