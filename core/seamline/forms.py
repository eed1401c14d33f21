"""
The contract of excursions to the host inside one recording: forms, prices, chains.

A provider that records its segments may record several of them as one, with the host's
work between them: a *chain*. What leaves the device there is an *excursion*: values come to
the host, the host works on them, values go back. A form is how the device waits for the
host meanwhile. ``mailbox``: a kernel asks and waits, inside the recording. ``host_node``:
the device's driver calls a function of the host. ``eager``: no chain, but a recording that
ends before the excursion and another that begins after it.

A provider takes part by two methods beside those of
:class:`~seamline.provider.Provider`, which :class:`RecordsChains` describes. The thread that
replays a chain is the one that does the host's work, as it would eagerly: the same calls in
the same order, under the same deadlines, and an idle session has no thread that waits.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

import attrs

from seamline.errors import ContractError
from seamline.provider import Array, Executable, Provider, Recording, View

__all__ = [
    "ChainSpec",
    "EdgedRecording",
    "FormPrice",
    "HostWork",
    "RecordsChains",
    "SeamForm",
    "prices_of",
]

_MIB = 1 << 20


class SeamForm(enum.StrEnum):
    """How a device waits for the host; ``eager`` where a recording ends instead."""

    EAGER = "eager"
    MAILBOX = "mailbox"
    HOST_NODE = "host_node"


@attrs.frozen
class FormPrice:
    """
    What one excursion of a form costs beside the host's own work.

    Attributes
    ----------
    fixed_us
        Microseconds, whatever is moved.
    out_us, in_us
        Microseconds for each MiB to the host, and from it.
    source
        Where the numbers come from; shown by ``explain``.
    impossible
        Why this form cannot be had here; empty where it can.
    """

    form: SeamForm
    fixed_us: float
    out_us: float
    in_us: float
    source: str
    impossible: str = ""

    def us(self, out_nbytes: int, in_nbytes: int) -> float:
        """
        Predict the microseconds of one excursion.

        Examples
        --------
        >>> FormPrice(SeamForm.MAILBOX, 10.0, 100.0, 50.0, "an example").us(1 << 20, 0)
        110.0
        """
        moved = out_nbytes * self.out_us + in_nbytes * self.in_us
        return self.fixed_us + moved / _MIB


@attrs.frozen(eq=False)
class HostWork:
    """
    One excursion of a chain, over fixed places of the device.

    Attributes
    ----------
    name
        The excursion's id.
    provider, node
        Who works on the host, and its first node; for messages. The node is empty where
        values are only moved.
    outward, inward
        Places of the device that are read before the work, and written after it.
    prepare
        Given host arrays that stand for ``outward`` and ``inward``, fixed from then on,
        gives the work: it reads the former and fills the latter.
    """

    name: str
    form: SeamForm
    provider: str
    node: str
    outward: tuple[View, ...]
    inward: tuple[View, ...]
    prepare: Callable[[Sequence[Array], Sequence[Array]], Callable[[], object]]


@attrs.frozen(eq=False)
class ChainSpec:
    """
    What a provider is asked to record as one: its own segments, and work of the host.

    Attributes
    ----------
    parts
        In order; the first and the last are executables that the provider built.
    inward, outward
        Places of the device that the recording is to fill from the host's memory before
        anything else, and to copy to it at its end; see :class:`EdgedRecording`.
    """

    name: str
    parts: tuple[Executable | HostWork, ...]
    inward: tuple[View, ...] = ()
    outward: tuple[View, ...] = ()

    @property
    def works(self) -> tuple[HostWork, ...]:
        """Give the excursions, in order."""
        return tuple([part for part in self.parts if isinstance(part, HostWork)])


class EdgedRecording(Protocol):
    """
    A recording that begins with copies from the host's memory and ends with copies to it.

    Attributes
    ----------
    inward, outward
        Arrays that stand for the places of the chain: what a replay takes from the host,
        and what it leaves there. They stay where they are until it is closed.
    """

    inward: Sequence[Array]
    outward: Sequence[Array]

    def replay(self) -> None:
        """Do again what was recorded; see :class:`~seamline.provider.Recording`."""
        ...

    def taken(self) -> None:
        """
        Return once the last replay has read ``inward``, which may then be written.

        Raises
        ------
        RunError
            It never will: work before it failed.
        """
        ...

    def given(self) -> None:
        """
        Return once the last replay has filled ``outward``.

        Raises
        ------
        RunError
            It never will: its work, or some before it, failed.
        """
        ...


class RecordsChains(Protocol):
    """
    What a provider has that records chains.

    One whose recordings take copies in has ``edge_limit`` beside the methods: the bytes of
    the largest value that it is worth for. Its chains may then be a single segment.

    A recording of a chain may have ``spent()``, a mapping from the name of each excursion
    to two medians in microseconds: from asking the host to going on, and the host's work in
    it. ``explain`` shows them.
    """

    def forms(self) -> Sequence[FormPrice]:
        """Give the forms that it knows, ``eager`` among them, with their prices."""
        ...

    def record_chain(self, chain: ChainSpec) -> Recording:
        """
        Record a chain after its segments' warm-up; nothing runs.

        A replay returns when the host's last work is done. What the host's work raises
        is raised by the replay, the device usable.

        Raises
        ------
        RecordingError
            Names the node whose launch cannot be recorded, or no node.
        """
        ...


def prices_of(provider: Provider) -> Mapping[SeamForm, FormPrice]:
    """
    Ask a provider for its forms; empty where it records no chains.

    Raises
    ------
    ContractError
        It raised, or gave no prices, or none of ``eager``.
    """
    ask = getattr(provider, "forms", None)
    if ask is None:
        return {}
    try:
        given = tuple(cast("Callable[[], Sequence[FormPrice]]", ask)())
    except Exception as error:
        said = f"forms() raised {type(error).__name__}: {error}"
        raise ContractError(provider.name, said) from error
    for price in given:
        if not isinstance(price, FormPrice):
            said = f"forms() gave a {type(price).__name__}, which is no price of a form"
            raise ContractError(provider.name, said)
    prices = {price.form: price for price in given}
    if SeamForm.EAGER not in prices:
        raise ContractError(provider.name, "forms() gave no price of 'eager'")
    return prices
