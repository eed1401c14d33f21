"""
Choose a provider for every node: pins, then the order of the providers, then cost.

Cost decides only where every rate it needs was measured. A node moves away from the
provider that comes first when another is predicted to be faster even after its inputs and
outputs have crossed, all of it from measured rates; a rate that is not known moves
nothing.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence

import attrs

from seamline.claims import CORE, Claims
from seamline.collector import collector_paused
from seamline.errors import PinError, UnclaimedNodeError, near
from seamline.graph import Node
from seamline.provider import HOST, Claim, Cost, Device

__all__ = ["Choice", "Placement", "Rates", "place"]


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
    """Who runs a node, on which device, under which claim, and why."""

    provider: str
    device: Device
    claim: Claim
    reason: str
    pinned: bool = False


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
    pinned = _pinned(nodes, pins or {}, devices)
    choices: dict[str, Choice] = {}
    unclaimed: dict[str, str] = {}
    fallbacks: dict[str, Mapping[str, str]] = {}
    for node in nodes:
        offers = claims.answers[node.name]
        if CORE in offers:
            _refuse_pin(node, pinned.get(node.name))
            choices[node.name] = _core_choice(claims, node)
            continue
        if node.name in pinned:
            choices[node.name] = _keep_pin(claims, devices, node, *pinned[node.name])
            continue
        choice = _choose(claims, node, devices, rates or {})
        if choice is None:
            unclaimed[node.name] = node.qualified_op
            continue
        choices[node.name] = choice
        if named and choice.provider not in named:
            fallbacks[node.name] = claims.refusals(node.name)
    if unclaimed:
        raise UnclaimedNodeError(
            unclaimed, {name: claims.refusals(name) for name in unclaimed}
        )
    return Placement(claims, tuple(devices), choices, fallbacks)


def _refuse_pin(node: Node, pinned: tuple[str, str] | None) -> None:
    """Refuse a pin that names a node of the core's; a pattern may sweep over it."""
    if pinned is not None and pinned[1] in (node.name, *_operator_names(node)):
        raise PinError(
            f"pin {pinned[1]!r} puts node {node.name!r} ({node.qualified_op}) on "
            f"{pinned[0]!r}, and the core itself runs that operator on the host; pin the "
            "nodes of its bodies"
        )


def _operator_names(node: Node) -> tuple[str, ...]:
    own = () if node.domain else (f"ai.onnx::{node.op_type}",)
    return (node.op_type, node.qualified_op, *own)


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


def _pinned(
    nodes: Sequence[Node], pins: Mapping[str, str], devices: Mapping[str, Device]
) -> dict[str, tuple[str, str]]:
    """Give for each pinned node its provider and the pin; every pin must match."""
    names = {node.name: node for node in nodes}
    ranked: list[tuple[int, str, list[str]]] = []
    for pin, provider in pins.items():
        if not isinstance(provider, str):
            raise PinError(
                f"pin {pin!r} -> {provider!r}: a provider is given by its name"
            )
        if provider not in devices:
            raise PinError(
                f"pin {pin!r} -> {provider!r}: the session has no such provider"
                f"{near(provider, devices)} (it has: {', '.join(devices)})"
            )
        ranked.append(_matches(pin, nodes, names))
    found: dict[str, tuple[str, str]] = {}
    for _, pin, matched in sorted(ranked, key=lambda item: item[0]):
        for name in matched:
            found.setdefault(name, (pins[pin], pin))
    return found


def _matches(
    pin: str, nodes: Sequence[Node], names: Mapping[str, Node]
) -> tuple[int, str, list[str]]:
    if pin in names:
        return 0, pin, [pin]
    by_pattern = [name for name in names if fnmatch.fnmatchcase(name, pin)]
    if by_pattern:
        return 1, pin, by_pattern
    by_op = [n.name for n in nodes if pin in _operator_names(n)]
    if by_op:
        return 2, pin, by_op
    candidates = [*names, *{n.op_type for n in nodes}]
    raise PinError(
        f"pin {pin!r} matches no node name, pattern or operator of the model"
        f"{near(pin, candidates)}"
    )


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
