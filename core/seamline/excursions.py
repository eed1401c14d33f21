"""
Which excursions to the host a recording can hold, and by which form each is made.

Between two segments of a device that records chains lies an excursion: copies, and
segments on the host. It can be part of a recording if all of that is known before the run.
Of the forms that are left the cheapest is taken, by the provider's prices for the bytes
that move; what was left out keeps its reason. Segments with no eager excursion between them
are one *chain*. Everything here follows from the plan's steps; nothing is allocated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from seamline.forms import FormPrice, SeamForm, prices_of
from seamline.planned import HostStep, Segment, Step, Transfer
from seamline.provider import HOST, Device, Provider

__all__ = ["AUTO", "Chain", "Chains", "Excursion", "chained"]

AUTO = "auto"  #: the form that is cheapest by its price


@attrs.frozen
class Excursion:
    """
    What lies between two segments of one device: copies, and work of the host.

    Attributes
    ----------
    after, before
        Ids of the device's segments.
    steps
        Copies and host segments between them, in order.
    out_nbytes, in_nbytes
        Bytes that are copied from the device, and to it.
    form, reason
        How it is made, and why so.
    prices
        Predicted microseconds of each form that was possible.
    refused
        Why the others were not.
    source
        Where the price of ``form`` comes from.
    """

    after: str
    before: str
    steps: tuple[Step, ...]
    out_nbytes: int
    in_nbytes: int
    form: SeamForm
    reason: str
    prices: Mapping[SeamForm, float]
    refused: Mapping[SeamForm, str]
    source: str

    @property
    def id(self) -> str:
        """Give an id that two plans with this excursion share."""
        return f"{self.after}|{self.before}"

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Give the host's segments, in order."""
        return tuple([step for step in self.steps if isinstance(step, Segment)])


@attrs.frozen
class Chain:
    """
    Segments of one provider that are recorded as one, with the excursions between them.

    Attributes
    ----------
    steps
        All of the plan's steps from the first segment to the last.
    """

    provider: str
    device: Device
    steps: tuple[Step, ...]
    excursions: tuple[Excursion, ...]

    @property
    def id(self) -> str:
        """Give an id: its first and last segment's."""
        return f"chain:{self.steps[0].id}..{self.steps[-1].id}"

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Give the provider's own segments, in order."""
        mine = [s for s in self.steps if isinstance(s, Segment)]
        return tuple([s for s in mine if s.provider == self.provider])


@attrs.frozen
class Chains:
    """What was found in a plan's steps."""

    excursions: tuple[Excursion, ...] = ()
    chains: tuple[Chain, ...] = ()


def chained(
    steps: Sequence[Step],
    providers: Mapping[str, Provider],
    waiting: Collection[str],
    form: str,
    never: str = "",
) -> Chains:
    """
    Find excursions and chains in a plan's steps.

    Parameters
    ----------
    waiting
        Nodes of a device that read on the host what this plan computes.
    form
        The form to take wherever it is possible, or ``auto``.
    never
        Why nothing is recorded at all; empty where segments are.
    """
    excursions: list[Excursion] = []
    chains: list[Chain] = []
    for name, provider in providers.items():
        if provider.captures and provider.device != HOST:
            prices = prices_of(provider)
            if prices:
                finding = _Finding(name, provider, prices, waiting, form, never)
                finding.walk(steps)
                excursions += finding.excursions
                chains += finding.chains
    return Chains(tuple(excursions), tuple(chains))


class _Finding:
    def __init__(
        self,
        name: str,
        provider: Provider,
        prices: Mapping[SeamForm, FormPrice],
        waiting: Collection[str],
        form: str,
        never: str,
    ) -> None:
        self.name, self.device, self.prices = name, provider.device, prices
        self.waiting, self.form, self.never = waiting, form, never
        self.excursions: list[Excursion] = []
        self.chains: list[Chain] = []
        self.run: list[Step] = []
        self.made: list[Excursion] = []

    def walk(self, steps: Sequence[Step]) -> None:
        """Go from segment to segment of the provider; what lies between is judged."""
        last: Segment | None = None
        between: list[Step] = []
        for step in steps:
            if not isinstance(step, Segment) or step.provider != self.name:
                between.append(step)
                continue
            if last is not None and self._goes_on(last, tuple(between), step):
                self.run += [*between, step]
            else:
                self._end()
                self.run = [step]
            last, between = step, []
        self._end()

    def _end(self) -> None:
        if self.made:
            chain = Chain(self.name, self.device, tuple(self.run), tuple(self.made))
            self.chains.append(chain)
        self.run, self.made = [], []

    def _goes_on(self, last: Segment, between: tuple[Step, ...], step: Segment) -> bool:
        """Judge what lies between two segments; tell whether one recording has both."""
        why = next(self._obstacles(last, between, step), "")
        if not between:
            return not why
        moved = [s for s in between if isinstance(s, Transfer)]
        found = self._judged(
            last.id,
            step.id,
            between,
            sum(t.nbytes for t in moved if t.source == self.device),
            sum(t.nbytes for t in moved if t.target == self.device),
            why,
        )
        self.excursions.append(found)
        if found.form is SeamForm.EAGER:
            return False
        self.made.append(found)
        return True

    def _obstacles(
        self, last: Segment, between: Sequence[Step], step: Segment
    ) -> Iterator[str]:
        """Give what keeps an excursion out of any recording."""
        if self.never:
            yield self.never
        for own in (last, step):
            yield from self._of_own(own)
        for one in between:
            if isinstance(one, HostStep):
                yield f"the core decides {one.node!r} on the host"
            elif isinstance(one, Transfer):
                if {one.source, one.target} != {HOST, self.device}:
                    yield f"{one.value!r} goes from {one.source} to {one.target}"
            elif one.sizes_at_run:
                yield f"{one.nodes[0]!r} finds its outputs' sizes by running"
            elif one.device != HOST:
                yield f"{one.nodes[0]!r} between them runs on {one.device}"

    def _of_own(self, own: Segment) -> Iterator[str]:
        if own.sizes_at_run:
            yield f"{own.nodes[0]!r} finds its outputs' sizes by running"
        elif own.not_capturable:
            yield f"the segment of {own.nodes[0]!r} cannot be recorded: {own.not_capturable}"
        for node in own.nodes:
            if node in self.waiting:
                yield f"{node!r} reads on the host what this plan computes"

    def _judged(
        self,
        after: str,
        before: str,
        between: tuple[Step, ...],
        out_nbytes: int,
        in_nbytes: int,
        why: str,
    ) -> Excursion:
        prices: dict[SeamForm, float] = {}
        refused: dict[SeamForm, str] = {}
        for form, price in self.prices.items():
            said = price.impossible or (why if form is not SeamForm.EAGER else "")
            if said:
                refused[form] = said
            else:
                prices[form] = price.us(out_nbytes, in_nbytes)
        form, reason = self._chosen(prices, refused)
        return Excursion(
            after, before, between, out_nbytes, in_nbytes, form, reason, prices, refused,
            self.prices[form].source,
        )  # fmt: skip

    def _chosen(
        self, prices: Mapping[SeamForm, float], refused: Mapping[SeamForm, str]
    ) -> tuple[SeamForm, str]:
        if self.form != AUTO:
            asked = SeamForm(self.form)
            if asked in prices:
                return asked, "asked for"
            said = refused.get(asked, f"{self.name} has no such form")
            return SeamForm.EAGER, f"{asked} was asked for, and cannot be: {said}"
        cheapest = min(prices, key=lambda form: prices[form], default=SeamForm.EAGER)
        if len(prices) < 2:
            return SeamForm.EAGER, next(
                iter(refused.values()), "no other form is known"
            )
        return cheapest, f"the cheapest of {', '.join(prices)}"
