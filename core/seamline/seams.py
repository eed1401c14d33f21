"""Name what lies between the steps of a plan: one seam for each pair that passes values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from seamline.layout import Reading
from seamline.planned import HostStep, Seam, SeamCause, Segment, Step, Transfer
from seamline.provider import HOST
from seamline.tensors import TensorType, ValueType, nbytes_of

__all__ = ["name_seams"]


def name_seams(
    steps: Sequence[Step],
    readings: Mapping[str, Reading],
    types: Mapping[str, ValueType | None],
    capturing: Collection[str],
    failed: Collection[str] = (),
) -> tuple[Seam, ...]:
    """
    Give the seams in the order of the steps that they lead to.

    Parameters
    ----------
    capturing
        Providers whose segments are recorded: only they are cut at what cannot be.
    failed
        Nodes that made recording fail.
    """
    writer: dict[str, Segment | HostStep] = {}
    copied = {(t.value, str(t.target)) for t in steps if isinstance(t, Transfer)}
    seams: list[Seam] = []
    for step in steps:
        if isinstance(step, Transfer):
            continue
        crossing: dict[str, tuple[Segment | HostStep, list[str]]] = {}
        for name in _reads(step, readings):
            source = writer.get(name)
            if source is not None:
                crossing.setdefault(source.id, (source, []))[1].append(name)
        for source, values in crossing.values():
            cause, why = _cause(source, step, readings, capturing, failed)
            seams.append(_seam(cause, why, source, step, values, types, copied))
        if isinstance(step, HostStep) or step.sizes_at_run:
            seams.append(_leaving(step, readings, types))
        for name in _writes(step, readings):
            writer[name] = step
    return tuple(seams)


def _reads(
    step: Segment | HostStep, readings: Mapping[str, Reading]
) -> tuple[str, ...]:
    if isinstance(step, Segment):
        return step.inputs
    return tuple(dict.fromkeys(readings[step.node].node.reads))


def _writes(
    step: Segment | HostStep, readings: Mapping[str, Reading]
) -> tuple[str, ...]:
    return (
        step.outputs if isinstance(step, Segment) else readings[step.node].node.writes
    )


def _seam(
    cause: SeamCause,
    why: str,
    source: Segment | HostStep,
    target: Segment | HostStep,
    values: list[str],
    types: Mapping[str, ValueType | None],
    copied: set[tuple[str, str]],
) -> Seam:
    device = str(target.device) if isinstance(target, Segment) else str(HOST)
    moved = [name for name in values if (name, device) in copied]
    return Seam(
        cause,
        source.id,
        target.id,
        tuple(values),
        _size(values, types),
        _size(moved, types) or 0,
        why,
    )


def _cause(
    source: Segment | HostStep,
    target: Segment | HostStep,
    readings: Mapping[str, Reading],
    capturing: Collection[str],
    failed: Collection[str],
) -> tuple[SeamCause, str]:
    if isinstance(target, HostStep):
        op = readings[target.node].node.qualified_op
        return SeamCause.CONTROL_FLOW, f"{op} {target.node!r} is decided on the host"
    if isinstance(source, HostStep):
        op = readings[source.node].node.qualified_op
        return SeamCause.CONTROL_FLOW, f"{op} {source.node!r} is decided on the host"
    if target.sizes_at_run:
        return SeamCause.DYNAMIC_SHAPE, f"{target.nodes[0]!r} finds its outputs' sizes"
    if source.provider == target.provider:
        return _parted(source, target, readings, source.provider in capturing, failed)
    if source.device != target.device and HOST in (source.device, target.device):
        host = target if target.device == HOST else source
        return SeamCause.HOST_NODE, f"{host.nodes[0]!r} is placed on {host.provider}"
    reason = readings[target.nodes[0]].choice.reason
    return SeamCause.TRANSFER, f"{target.nodes[0]!r} is on {target.provider}: {reason}"


def _parted(
    source: Segment,
    target: Segment,
    readings: Mapping[str, Reading],
    captures: bool,
    failed: Collection[str],
) -> tuple[SeamCause, str]:
    """Say why two segments of one provider that share a value are not one."""
    for node in (*target.nodes, *source.nodes):
        if node in failed:
            why = f"{node!r}: {readings[node].choice.claim.not_capturable}"
            return SeamCause.RECORDING_FAILED, why
    for end, other in ((target, source), (source, target)):
        said = end.not_capturable
        if captures and said and not other.not_capturable:
            node = next(n for n in end.nodes if readings[n].choice.claim.not_capturable)
            return SeamCause.NOT_CAPTURABLE, f"{node!r}: {said}"
    first = readings[target.nodes[0]]
    made = {name for reading in readings.values() for name in reading.node.writes}
    waits = {first.node.inputs[i] for i in first.choice.claim.host_inputs} & made
    if target.device != HOST and waits:
        why = f"{target.nodes[0]!r} reads {', '.join(sorted(waits))} on the host"
        return SeamCause.HOST_NODE, why
    return SeamCause.TRANSFER, f"another segment lies before {target.nodes[0]!r}"


def _leaving(
    step: Segment | HostStep,
    readings: Mapping[str, Reading],
    types: Mapping[str, ValueType | None],
) -> Seam:
    """Give the seam after a step whose results' sizes nobody knew."""
    writes = _writes(step, readings)
    if isinstance(step, HostStep):
        op = readings[step.node].node.qualified_op
        cause, why = (
            SeamCause.CONTROL_FLOW,
            f"{op} {step.node!r} is decided on the host",
        )
    else:
        cause = SeamCause.DYNAMIC_SHAPE
        why = f"{step.nodes[0]!r} finds its outputs' sizes"
    return Seam(cause, step.id, "", writes, None, 0, why)


def _size(values: Sequence[str], types: Mapping[str, ValueType | None]) -> int | None:
    total = 0
    for name in values:
        kind = types.get(name)
        if not isinstance(kind, TensorType) or not kind.is_sized:
            return None
        total += nbytes_of(kind)
    return total
