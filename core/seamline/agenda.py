"""
Which nodes of a region run in this plan, which never, and which wait for a size.

A node whose results follow from sizes and constants alone is *resolved*. One that no
output depends on is *unused*. What depends on a value whose size is found by running is
*blocked*: it is the plan's rest, planned when that size is known. All others run, each on
the provider that was chosen for it, which is asked once more now that sizes are known.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from seamline.claims import CORE, Claims, ask
from seamline.constants import Known
from seamline.errors import BuildError, ContractError, PinError, UnclaimedNodeError
from seamline.graph import Node
from seamline.placement import Choice, Placement
from seamline.planned import Region
from seamline.provider import Claim, Provider, view_of
from seamline.tensors import TensorType, ValueType

__all__ = ["Agenda", "Due", "agenda"]


@attrs.frozen
class Due:
    """
    A node that runs in this plan.

    Attributes
    ----------
    alone
        Decided by the core, or sized at run: a step of its own, at the end.
    """

    node: Node
    choice: Choice
    alone: bool


@attrs.frozen(eq=False)
class Agenda:
    """
    What becomes of every node of a region, for one shape signature.

    Attributes
    ----------
    due
        Nodes that run, in the region's order.
    resolved, unused
        Names of nodes that do not run, since what they give is known, or not needed.
    blocked
        Nodes that wait for a size.
    late
        Values whose size is found by running.
    """

    region: Region
    known: Known
    due: tuple[Due, ...]
    resolved: tuple[str, ...]
    unused: tuple[str, ...]
    blocked: tuple[Node, ...]
    late: frozenset[str]

    @property
    def kept(self) -> frozenset[str]:
        """Give the values that are read after the last step of this plan."""
        names = set(self.region.outputs)
        for node in self.blocked:
            names.update(node.reads)
        return frozenset(names)

    @property
    def early(self) -> tuple[str, ...]:
        """Give the values that the rest reads where this plan has put them."""
        return tuple(
            [n for n in self._reads() if n not in self.late and n not in self.known]
        )

    def rest(self) -> Region | None:
        """Give the region of what waits, or None where nothing does."""
        if not self.blocked:
            return None
        made = {name for node in self.blocked for name in node.writes}
        reads = self._reads()
        # What follows from sizes is handed on too: its node is resolved, not blocked.
        given = [name for name in reads if name in self.known.values]
        return Region(
            f"{self.region.name}+",
            self.region.graph,
            self.blocked,
            tuple([name for name in reads if name in self.late]),
            (*given, *self.early),
            tuple([n for n in dict.fromkeys(self.region.outputs) if n in made]),
        )

    def _reads(self) -> list[str]:
        made = {name for node in self.blocked for name in node.writes}
        reads = [n for node in self.blocked for n in node.reads if n not in made]
        return list(dict.fromkeys(reads))


def agenda(
    region: Region,
    placement: Placement,
    providers: Mapping[str, Provider],
    types: Mapping[str, ValueType | None],
    known: Known,
) -> Agenda:
    """
    Sort out a region's nodes.

    Raises
    ------
    PinError
        A pinned provider refuses a node with its sizes known.
    UnclaimedNodeError
        With sizes known, no provider runs a node.
    BuildError
        A provider that had claimed a node broke when it was asked with sizes known.
    """
    sorting = _Sorting(region, placement, providers, types, known)
    for node in region.nodes:
        sorting.add(node)
    return sorting.agenda()


class _Sorting:
    """Decides node by node, in order: what a node waits for comes before it."""

    def __init__(
        self,
        region: Region,
        placement: Placement,
        providers: Mapping[str, Provider],
        types: Mapping[str, ValueType | None],
        known: Known,
    ) -> None:
        self.region, self.placement, self.providers = region, placement, providers
        self.types, self.known = types, known
        self.needed = _needed(region, known)
        self.due: list[Due] = []
        self.resolved: list[str] = []
        self.unused: list[str] = []
        self.blocked: list[Node] = []
        self.late: set[str] = set()

    def add(self, node: Node) -> None:
        if all(name in self.known for name in node.writes):
            self.resolved.append(node.name)
        elif node.name not in self.needed:
            self.unused.append(node.name)
        elif any(name in self.late for name in node.reads):
            self.blocked.append(node)
            self.late.update(node.writes)
        else:
            self.due.append(self._due(node))

    def _due(self, node: Node) -> Due:
        choice = _choose(node, self.placement, self.providers, self.types, self.known)
        by_core = choice.provider == CORE
        alone = by_core or choice.claim.sizes_at_run or not _sized(node, self.types)
        if alone:
            self.late.update(node.writes)
        return Due(node, choice, alone)

    def agenda(self) -> Agenda:
        return Agenda(
            self.region,
            self.known,
            tuple(self.due),
            tuple(self.resolved),
            tuple(self.unused),
            tuple(self.blocked),
            frozenset(self.late),
        )


def _needed(region: Region, known: Known) -> set[str]:
    """Give the nodes that an output depends on, once known values are taken as given."""
    values = {name for name in region.outputs if name not in known}
    nodes: set[str] = set()
    for node in reversed(region.nodes):
        if any(name in values for name in node.writes):
            nodes.add(node.name)
            values.update(name for name in node.reads if name not in known)
    return nodes


def _sized(node: Node, types: Mapping[str, ValueType | None]) -> bool:
    kinds = [types.get(name) for name in node.writes]
    return all(isinstance(kind, TensorType) and kind.is_sized for kind in kinds)


def _candidates(choice: Choice, placement: Placement, node: Node) -> list[str]:
    """Give who may be asked: the one chosen, then those that also offered."""
    names = [choice.provider, *(n for n in placement.order if n != choice.provider)]
    if choice.is_open:  # nobody could offer before
        return names[:1] if choice.pinned else list(placement.order)
    offers = placement.claims.offers(node.name)
    return [name for name in names if name in offers]


def _broken(error: ContractError, node: Node) -> BuildError:
    """Say that a provider broke where it had claimed: no refusal, which others make good."""
    built = BuildError(str(error), provider=error.provider, node=node.name)
    built.nodes = (node.name,)
    return built


def _as_claimed(
    node: Node, claims: Claims, types: Mapping[str, ValueType | None], known: Known
) -> bool:
    """Tell whether all that a claim may depend on is what it was; nobody is asked then."""
    constants, then = known.constants, claims.types
    for name in node.inputs:
        if name in known.values or name in constants.folded:
            return False
        if name in constants.overridden:
            return False
    for name in (*node.inputs, *node.outputs):
        now, before = types.get(name), then.get(name)
        if now is not before and now != before:
            return False
    return True


def _choose(
    node: Node,
    placement: Placement,
    providers: Mapping[str, Provider],
    types: Mapping[str, ValueType | None],
    known: Known,
) -> Choice:
    """Ask the chosen provider again, now that sizes are known; others if it refuses."""
    choice = placement.of(node)
    if choice.provider == CORE or (
        not choice.is_open and _as_claimed(node, placement.claims, types, known)
    ):
        return choice
    view = view_of(node, types, known.get)
    said: dict[str, str] = {}
    for name in _candidates(choice, placement, node):
        provider = providers[name]
        answer = ask(provider, view)
        if isinstance(answer, ContractError):
            raise _broken(answer, node) from answer
        if isinstance(answer, Claim):
            reason = choice.reason
            if said:
                reason = f"with sizes known, refused by {', '.join(said)}"
            return Choice(name, provider.device, answer, reason, choice.pinned)
        said[name] = f"with sizes known: {answer}"
        if choice.pinned:
            raise PinError(
                f"node {node.name!r} ({node.qualified_op}) is {choice.reason} to "
                f"{name!r}, which refuses it with sizes known: {answer}"
            )
    raise UnclaimedNodeError({node.name: node.qualified_op}, {node.name: said})
