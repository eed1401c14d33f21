"""
Choose a provider for every node: pins, then the order of the providers, then cost.

Cost decides only where every rate it needs was measured. A node moves away from the
provider that comes first when another is predicted to be faster even after its inputs and
outputs have crossed, all of it from measured rates; a rate that is not known moves
nothing.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import attrs

from seamline.claims import CORE, Claims
from seamline.collector import collector_paused
from seamline.errors import PinError, UnclaimedNodeError
from seamline.graph import Node
from seamline.pins import pinned_nodes, refuse_pin
from seamline.provider import HOST, Claim, Cost, Device

__all__ = ["LATER", "Choice", "Placement", "Rates", "place"]

#: Stands in for a provider until the types of a node's inputs are known.
LATER = "later"
_LATER = Claim(LATER, "nobody can be asked before the types of its inputs are known")


@attrs.frozen
class Rates:
    """
    Measured rates of one provider; None: not measured.

    Attributes
    ----------
    flops, bytes
        Operations and bytes a second.
    link
        Bytes a second between its device and the host; infinite on the host.
    """

    flops: float | None = None
    bytes: float | None = None
    link: float | None = None

    def seconds(self, cost: Cost) -> float | None:
        """Predict a node's time: the slower of arithmetic and traffic."""
        if self.flops is None or self.bytes is None:
            return None
        return max(
            cost.flops / self.flops, (cost.bytes_read + cost.bytes_written) / self.bytes
        )


@attrs.frozen
class Choice:
    """
    Who runs a node, on which device, under which claim, and why.

    ``is_open`` tells that nobody has claimed it yet: it is asked about when the types of
    what it reads are known.
    """

    provider: str
    device: Device
    claim: Claim
    reason: str
    pinned: bool = False

    @property
    def is_open(self) -> bool:
        """Tell whether it is settled only when more types are known."""
        return self.claim.variant == LATER


@attrs.frozen(eq=False)
class Placement:
    """
    A provider for every node.

    Attributes
    ----------
    order
        The providers, most preferred first.
    choices
        By node name, bodies included.
    fallbacks
        Nodes that run on a provider that was not named, and what the named ones said.
    """

    claims: Claims = attrs.field(repr=False)
    order: tuple[str, ...]
    choices: Mapping[str, Choice] = attrs.field(repr=False)
    fallbacks: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)

    def of(self, node: Node) -> Choice:
        """Give a node's choice."""
        return self.choices[node.name]


@collector_paused()
def place(
    claims: Claims,
    devices: Mapping[str, Device],
    *,
    named: Sequence[str] = (),
    pins: Mapping[str, str] | None = None,
    rates: Mapping[str, Rates] | None = None,
) -> Placement:
    """
    Place every node.

    Parameters
    ----------
    devices
        Device of each provider, in order of preference.
    named
        Providers that the caller named; the others were added as a fallback.
    pins
        Node name, pattern of names (``*``, ``?``, ``[...]``) or operator -> provider. A
        name is stronger than a pattern, a pattern than an operator; of equals, the first.

    Raises
    ------
    PinError
        A pin matches nothing, or its provider refuses the node.
    UnclaimedNodeError
        Nodes that no provider claims; lists every refusal.
    """
    nodes = list(claims.graph.walk())
    placing = _Placing(
        claims,
        devices,
        pinned_nodes(nodes, pins or {}, devices),
        rates or {},
        frozenset([name for node in nodes for name in node.writes]),
    )
    choices: dict[str, Choice] = {}
    unclaimed: dict[str, str] = {}
    fallbacks: dict[str, Mapping[str, str]] = {}
    for node in nodes:
        choice = placing.choice(node)
        if choice is None:
            unclaimed[node.name] = node.qualified_op
            continue
        choices[node.name] = choice
        asked = not (choice.pinned or choice.is_open or choice.provider == CORE)
        if named and asked and choice.provider not in named:
            fallbacks[node.name] = claims.refusals(node.name)
    if unclaimed:
        raise UnclaimedNodeError(
            unclaimed, {name: claims.refusals(name) for name in unclaimed}
        )
    return Placement(claims, tuple(devices), choices, fallbacks)


@attrs.frozen(eq=False)
class _Placing:
    """What a node's choice depends on; ``made`` are the values that nodes write."""

    claims: Claims
    devices: Mapping[str, Device]
    pinned: Mapping[str, tuple[str, str]]
    rates: Mapping[str, Rates]
    made: frozenset[str]

    def choice(self, node: Node) -> Choice | None:
        """Choose who runs a node; None where nobody claims it."""
        claims, pin = self.claims, self.pinned.get(node.name)
        if CORE in claims.answers[node.name]:
            refuse_pin(node, pin)
            return _core_choice(claims, node)
        open_yet = _open_yet(claims, node, self.made)
        if open_yet and not claims.offers(node.name):
            return _later(self.devices, open_yet, pin)
        if pin is not None:
            return _keep_pin(claims, self.devices, node, *pin)
        return _choose(claims, node, self.devices, self.rates)


def _open_yet(claims: Claims, node: Node, made: Container[str]) -> str:
    """Name an input whose type will be known only when another node has run, or ''."""
    for name in node.inputs:
        if name in made and claims.types.get(name) is None:
            return name
    return ""


def _later(
    devices: Mapping[str, Device], value: str, pinned: tuple[str, str] | None
) -> Choice:
    """Leave a node to the plan that is made when what it reads has been found."""
    when = f"when the type of {value!r} is known, which its node's run tells"
    if pinned is None:
        return Choice(LATER, HOST, _LATER, f"chosen {when}")
    provider, pin = pinned
    reason = f"pinned by {pin!r}, asked {when}"
    return Choice(provider, devices[provider], _LATER, reason, pinned=True)


def _core_choice(claims: Claims, node: Node) -> Choice:
    claim = claims.offers(node.name)[CORE]
    return Choice(CORE, HOST, claim, claim.because)


def _choose(
    claims: Claims,
    node: Node,
    devices: Mapping[str, Device],
    rates: Mapping[str, Rates],
) -> Choice | None:
    answers = claims.answers[node.name]
    first: Choice | None = None
    for position, (name, device) in enumerate(devices.items()):
        claim = answers.get(name)
        if not isinstance(claim, Claim):
            continue
        if first is None:
            reason = (
                f"{name} is first in order"
                if not position
                else _order_reason(answers, name)
            )
            first = Choice(name, device, claim, reason)
            if not rates or claim.cost is None:
                return first
        else:
            first = _cheaper(first, Choice(name, device, claim, ""), rates)
    return first


def _order_reason(answers: Mapping[str, object], name: str) -> str:
    before = [who for who, said in answers.items() if not isinstance(said, Claim)]
    return f"{name} is the first that claims it; refused by {', '.join(before)}"


def _cheaper(now: Choice, other: Choice, rates: Mapping[str, Rates]) -> Choice:
    """Move a node only if every rate says that it is faster elsewhere, moves included."""
    mine, its = rates.get(now.provider), rates.get(other.provider)
    if (
        mine is None
        or its is None
        or now.claim.cost is None
        or other.claim.cost is None
    ):
        return now
    here, there = mine.seconds(now.claim.cost), its.seconds(other.claim.cost)
    if here is None or there is None:
        return now
    if now.device != other.device:
        links = [
            r.link for r, d in ((mine, now.device), (its, other.device)) if d != HOST
        ]
        crossing = other.claim.cost.bytes_read + other.claim.cost.bytes_written
        for link in links:
            if link is None:
                return now
            there += crossing / link
    if there >= here:
        return now
    reason = (
        f"measured rates predict {there * 1e6:.1f} us on {other.provider}, moves included, "
        f"and {here * 1e6:.1f} us on {now.provider}"
    )
    return attrs.evolve(other, reason=reason)


def _keep_pin(
    claims: Claims, devices: Mapping[str, Device], node: Node, provider: str, pin: str
) -> Choice:
    answer = claims.answers[node.name][provider]
    if isinstance(answer, Claim):
        return Choice(
            provider, devices[provider], answer, f"pinned by {pin!r}", pinned=True
        )
    others = ", ".join(claims.offers(node.name)) or "no provider"
    raise PinError(
        f"pin {pin!r} puts node {node.name!r} ({node.qualified_op}) on {provider!r}, which "
        f"refuses it: {answer}. It is claimed by {others}"
    )
