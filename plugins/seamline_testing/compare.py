"""
Where two lists of providers part ways inside a model.

Both run the model with every value as an output. In topological order, a node whose
output differs is then run alone by both, on the very inputs that the first list had:

- They differ: the node itself diverges. The first such node is what is looked for.
- One gives alone another value than inside the model: it diverges in place, and the model
  around it matters.
- Neither: the node passes on what its inputs had already, within the tolerance of what
  made them, or made larger. A deep model drifts so at many nodes, and no node is at fault.

A node with bodies that diverges is looked into; see :mod:`seamline_testing.descending`.

Equal inputs leave nothing to decide about how far two inputs may be apart and still agree.
To observe a value may change what is fused or kept where: a model whose outputs differ
while every observed node agrees is reported as such.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import onnx

from seamline.errors import RunError, SeamlineError
from seamline.graph import Graph, Node, load
from seamline_testing.descending import descended
from seamline_testing.excerpts import Excerpt, ExcerptError
from seamline_testing.observed import Observed
from seamline_testing.sides import Closeness, Side, apart

__all__ = ["RANDOM", "Comparison", "Divergence", "compare"]

#: Two runs of one of these may differ, so their outputs are not compared.
RANDOM = frozenset(
    {
        "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
        "RandomUniformLike",
    }
)  # fmt: skip
_WINDOW = 256  #: nodes observed at a time: all values of a large model take much memory


@attrs.frozen(eq=False)
class Divergence:
    """
    The first node at which two lists part ways.

    Attributes
    ----------
    index
        Its place in topological order, from 0.
    output
        The name of the output that differs, and how; no name where the node cannot be run,
        and what was said of that.
    by
        Who ran it, one name for each list: provider and variant.
    in_place
        Which list gives another value inside the model than alone; empty where the two
        differ alone.
    excerpt
        The node with its inputs; more nodes where it diverges only among them.
    unreduced
        Why there is no excerpt.
    owners
        The nodes in whose bodies it stands, the outermost first.
    inside
        Which branches or turns of those; for a node with bodies, why none inside is named.
    """

    node: Node
    index: int
    output: str
    said: str
    by: tuple[str, str]
    in_place: str = ""
    excerpt: Excerpt | None = None
    unreduced: str = ""
    owners: tuple[str, ...] = ()
    inside: str = ""

    @property
    def path(self) -> str:
        """Give its name after those of its owners."""
        return "/".join((*self.owners, self.node.name))


@attrs.frozen(eq=False)
class Comparison:
    """
    What came of a comparison.

    Attributes
    ----------
    outputs
        Outputs of the model as it is that differ, and how, by name.
    failed
        Why one of the lists cannot run the model as it is; empty where both do.
    nodes, values
        How many were observed; fewer than there are once a divergence is found.
    drifting
        Nodes that differ in the model and agree alone, on equal inputs.
    not_compared
        Nodes that draw random numbers.
    """

    graph: Graph
    outputs: Mapping[str, str] = attrs.field(factory=dict)
    failed: str = ""
    nodes: int = 0
    values: int = 0
    drifting: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    divergence: Divergence | None = None

    @property
    def diverges(self) -> bool:
        """Tell whether anything is over tolerance that random numbers do not explain."""
        return self.divergence is not None or bool(self.outputs or self.failed)


def compare(
    source: str | os.PathLike[str] | onnx.ModelProto,
    sides: tuple[Side, Side],
    feeds: Mapping[str, Any],
    closeness: Closeness = Closeness(),  # noqa: B008 - it is frozen
    heard: Callable[[int, int], None] = lambda done, total: None,
) -> Comparison:
    """
    Find the first node at which two lists of providers part ways.

    Parameters
    ----------
    feeds
        Checked arrays by input name; see :class:`seamline.feeds.FeedCheck`.
    heard
        Told how many nodes were observed, of how many.

    Raises
    ------
    SeamlineError
        One of the lists cannot open the model; it says which provider.
    """
    graph = load(source)
    both = Observed(graph, sides, feeds, closeness)
    found = _as_it_is(both)
    total = len(graph.nodes)
    for start in range(0, total, _WINDOW):
        found = _look(both, graph.nodes[start : start + _WINDOW], start, found)
        heard(found.nodes, total)
        if found.divergence is not None:
            break
    drawn = _drawn(graph)
    fixed = {name: how for name, how in found.outputs.items() if name not in drawn}
    return attrs.evolve(found, outputs=fixed)


def _draws(node: Node) -> bool:
    """Tell whether two runs of a node may differ; Dropout draws where it may train."""
    if node.domain or node.op_type == "Dropout":
        return not node.domain and any(node.inputs[2:])
    return node.op_type in RANDOM


def _drawn(graph: Graph) -> set[str]:
    """Give the values that depend on random numbers."""
    found: set[str] = set()
    for node in graph.nodes:
        if _draws(node) or found.intersection(node.reads):
            found.update(node.writes)
    return found


def _look(
    both: Observed, nodes: Sequence[Node], start: int, found: Comparison
) -> Comparison:
    """Observe nodes and follow them; fewer at a time where one of them cannot be run."""
    try:
        both.observe(nodes)
    except RunError as error:
        if len(nodes) == 1:
            # A value before it may be why: those agree, or it would not be looked at.
            stopped = Divergence(nodes[0], start, "", str(error), ("", ""))
            return attrs.evolve(found, nodes=found.nodes + 1, divergence=stopped)
        half = len(nodes) // 2
        found = _look(both, nodes[:half], start, found)
        if found.divergence is None:
            found = _look(both, nodes[half:], start + half, found)
        return found
    return _follow(both, nodes, start, found)


def _as_it_is(both: Observed) -> Comparison:
    """Compare the outputs of the model with nothing else observed."""
    names = list(dict.fromkeys(both.graph.outputs))
    given = []
    for side in both.sides:
        pipeline = side.open(both.graph.model)
        try:
            given.append(pipeline.run(both.feeds, names))
        except RunError as error:
            return Comparison(both.graph, failed=str(error))
        finally:
            pipeline.close()
    operators = [node.op_type for node in both.graph.nodes]
    said = {
        name: both.closeness.difference(a, b, operators)
        for name, a, b in zip(names, *given, strict=True)
    }
    return Comparison(both.graph, {name: how for name, how in said.items() if how})


def _follow(
    both: Observed, nodes: Sequence[Node], start: int, found: Comparison
) -> Comparison:
    """Look at nodes in order until one diverges."""
    for index, node in enumerate(nodes, start):
        found = attrs.evolve(
            found, nodes=found.nodes + 1, values=found.values + len(node.writes)
        )
        if _draws(node):
            skipped = (*found.not_compared, node.name)
            found = attrs.evolve(found, not_compared=skipped)
            continue
        output, said = both.differs(node)
        if not output:
            continue
        divergence = _diagnosed(both, node, index, (output, said))
        if divergence is not None:
            return attrs.evolve(found, divergence=divergence)
        found = attrs.evolve(found, drifting=(*found.drifting, node.name))
    return found


def _diagnosed(
    both: Observed, node: Node, index: int, seen: tuple[str, str]
) -> Divergence | None:
    """Say whether a node that differs diverges; None where it passes on a difference."""
    by = both.by[node.name]
    try:
        excerpt = both.alone([node], 0)
        output, said = apart(excerpt, both.sides, both.closeness)
        if output:
            alone = Divergence(node, index, output, said, by, excerpt=excerpt)
            if not node.bodies:
                return alone
            return descended(alone, both.sides, both.closeness, compare)
        for which, side in enumerate(both.sides):
            output, said = both.strays(node, which)
            if output:
                grown = _grown(both, node)
                why = "" if grown else "it diverges only inside the whole model"
                return Divergence(
                    node, index, output, said, by, side.text, grown, why
                )  # fmt: skip
    except ExcerptError as error:
        return Divergence(node, index, *seen, by, unreduced=str(error))
    except SeamlineError as error:
        why = f"it cannot be run alone: {error}"
        return Divergence(node, index, *seen, by, unreduced=why)
    return None


def _grown(both: Observed, node: Node) -> Excerpt | None:
    """Take a node out with more and more of what leads to it, until it diverges."""
    for nodes in _leading_to(both.graph, node):
        known = both.given[0]
        made = {name for one in nodes for name in one.writes}
        needed = [n for one in nodes for n in one.reads if n not in made]
        if all(n in known or n in both.graph.constants for n in needed):
            excerpt = both.alone(nodes, 0)
            if apart(excerpt, both.sides, both.closeness)[0]:
                return excerpt
    return None


def _leading_to(graph: Graph, node: Node) -> Iterator[list[Node]]:
    """Give the node with 1, 2, 4, ... generations before it, up to all."""
    writer = {name: one for one in graph.nodes for name in one.writes}
    taken, latest, depth, next_at = {node.name}, [node], 0, 1
    while latest:
        before = {
            writer[name].name: writer[name]
            for one in latest
            for name in one.reads
            if name in writer and writer[name].name not in taken
        }
        latest = list(before.values())
        taken |= before.keys()
        depth += 1
        if depth == next_at or not latest:
            next_at *= 2
            yield [one for one in graph.nodes if one.name in taken]
