"""An explanation as text for people: the short answer first, then who, why and what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["as_text", "bytes_text"]

_SHOWN = 12  # lines of a list before it is cut short
_MEMORY = ("arena", "peak", "resident")


def bytes_text(nbytes: int | None) -> str:
    """
    Give bytes with a unit that leaves a readable number.

    >>> bytes_text(1536), bytes_text(None)
    ('1.5 KiB', '? B')
    """
    if nbytes is None:
        return "? B"
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def as_text(data: Mapping[str, Any]) -> str:
    """Write an explanation, as made by :func:`seamline.explain.explain`."""
    lines = [f"model      {data['model']}"]
    providers = ", ".join(f"{p['name']} on {p['device']}" for p in data["providers"])
    lines.append(f"providers  {providers}")
    for one in data["providers"]:
        if one["kept_nbytes"]:
            size = bytes_text(one["kept_nbytes"])
            lines.append(f"kept       {size} that {one['name']} made of constants")
        if one.get("facts"):
            said = ", ".join(f"{name} {value}" for name, value in one["facts"].items())
            lines.append(f"           {one['name']}: {said}")
    signature = ", ".join(f"{name}: {kind}" for name, kind in data["signature"].items())
    lines.append(f"signature  {signature or '(no inputs)'}")
    lines += _states(data.get("states", {}))
    lines += _optimized(data["optimized"])
    folded = data["folded"]
    if folded["nodes"]:
        size = bytes_text(folded["nbytes"])
        lines.append(
            f"folded     {len(folded['nodes'])} nodes once at open, {size} kept"
        )
    if folded["left"]:
        lines.append(f"           {folded['left']}")
    lines += [f"note       {note}" for note in data["notes"]]
    lines += _plan(data["plan"], "")
    if data["advice"]:
        lines += ["", "what would help most"]
        lines += [f"  {advice['text']}" for advice in data["advice"][:5]]
    return "\n".join(lines) + "\n"


def _states(states: Mapping[str, Any]) -> Iterator[str]:
    """Give each state's place and how much of its room is live and has pages."""
    for name, one in states.items():
        yield f"state      {name} -> {one['output']}: {one['type']}, {_held(one)}"
        if one.get("whole"):
            yield f"           all of it has pages: {one['whole']}"


def _held(state: Mapping[str, Any]) -> str:
    """Say what a state holds; before any run it has no place."""
    room = f"room {state['room']} ({bytes_text(state['room_nbytes'])})"
    if state["place"] is None:
        return f"{room}, no place yet"
    live = (
        f"live {max(state['lengths'], default=0)} ({bytes_text(state['live_nbytes'])})"
    )
    held = f"{bytes_text(state['committed_nbytes'])} committed"
    if state["granules"] is not None:
        size = bytes_text(state["granule"])
        held += f" in {state['granules']} granules of {size}"
    return f"{room}, {live}, {held}, on {state['place']}"


def _optimized(optimized: Mapping[str, Any]) -> Iterator[str]:
    """Give rewrites by rule, and what was left by reason."""
    made, left = Counter[str](), Counter[tuple[str, str]]()
    for rewrite in optimized["rewrites"]:
        made[rewrite["id"].split()[0]] += 1
    for one in optimized["left"]:
        left[one["id"].split()[0], one["why"]] += 1
    if made:
        rules = ", ".join(f"{count} {rule}" for rule, count in made.most_common())
        yield f"rewritten  {rules} ({optimized['level']})"
    for (rule, why), count in left.most_common(_SHOWN):
        yield f"left       {count} {rule}: {why}"


def _plan(plan: Mapping[str, Any], indent: str) -> Iterator[str]:
    kinds = Counter(seam["cause"] for seam in plan["seams"])
    causes = ", ".join(f"{count} {cause}" for cause, count in kinds.most_common())
    moved = sum(t["nbytes"] for t in plan["transfers"])
    yield ""
    yield (
        f"{indent}{len(plan['segments'])} segments, {len(plan['seams'])} seams"
        f"{f' ({causes})' if causes else ''}, {len(plan['transfers'])} transfers "
        f"({bytes_text(moved)}); {len(plan['nodes'])} nodes run, "
        f"{len(plan['resolved'])} resolved from sizes alone, {len(plan['unused'])} unused"
    )
    for device, memory in plan["memory"].items():
        sizes = {what: bytes_text(memory[f"{what}_nbytes"]) for what in _MEMORY}
        kept = f", kept by kernels {sizes['resident']}"
        yield (
            f"{indent}memory on {device}: arena {sizes['arena']}, alive at most "
            f"{sizes['peak']}{kept if memory['resident_nbytes'] else ''}"
        )
    yield from _who(plan, indent)
    yield from _refused(plan, indent)
    yield from _segments(plan, indent)
    yield from _seams(plan, indent)
    yield from _excursions(plan, indent)
    yield from _edges(plan, indent)
    for name, body in plan["bodies"].items():
        yield f"{indent}body {name}"
        yield from _plan(body, indent + "  ")
    rest = plan["rest"]
    if rest and rest["planned"]:
        yield f"{indent}then, once sizes are known"
        yield from _plan(rest, indent + "  ")
    elif rest:
        waits = ", ".join(rest["waits_for"])
        yield f"{indent}then {len(rest['nodes'])} nodes, planned once {waits} is sized"


def _who(plan: Mapping[str, Any], indent: str) -> Iterator[str]:
    reasons: Counter[tuple[str, str, str]] = Counter()
    for node in plan["nodes"].values():
        reasons[node["provider"], node["variant"], node["reason"]] += 1
    yield f"{indent}placement"
    for (provider, variant, reason), count in reasons.most_common(_SHOWN):
        yield f"{indent}  {count:5} on {provider} ({variant}): {reason}"
    yield from _variants(plan, indent)


def _variants(plan: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Give why variants were chosen, where a claim says it."""
    chosen: Counter[tuple[str, str, str]] = Counter()
    for node in plan["nodes"].values():
        if node["because"]:
            chosen[node["op"], node["variant"], node["because"]] += 1
    if chosen:
        yield f"{indent}variants"
    for (op, variant, because), count in chosen.most_common(_SHOWN):
        yield f"{indent}  {count:5} {op} by {variant}: {because}"


def _refused(plan: Mapping[str, Any], indent: str) -> Iterator[str]:
    said: Counter[tuple[str, str, str]] = Counter()
    for node in plan["nodes"].values():
        for provider, reason in node["refusals"].items():
            said[provider, node["op"], reason] += 1
    if said:
        yield f"{indent}refusals"
    for (provider, op, reason), count in said.most_common(_SHOWN):
        yield f"{indent}  {count:5} {op} by {provider}: {reason}"
    if len(said) > _SHOWN:
        yield f"{indent}  ... and {len(said) - _SHOWN} other reasons (--json has all)"


def _us(value: float | None) -> str:
    return "" if value is None else f", {value:.1f} us"


def _segments(plan: Mapping[str, Any], indent: str) -> Iterator[str]:
    if plan["segments"]:
        yield f"{indent}segments"
    for segment in plan["segments"][:_SHOWN]:
        first, last = segment["nodes"][0], segment["nodes"][-1]
        span = first if first == last else f"{first} .. {last}"
        late = ", sizes found by running" if segment["sizes_at_run"] else ""
        yield (
            f"{indent}  {segment['provider']:12} {len(segment['nodes']):5} nodes  {span}"
            f"{late}{_recorded(segment)}{_us(segment['us'])}"
        )
        yield from _capture(segment, indent)
    if len(plan["segments"]) > _SHOWN:
        yield f"{indent}  ... and {len(plan['segments']) - _SHOWN} more (--json has all)"


def _recorded(segment: Mapping[str, Any]) -> str:
    capture = segment["capture"]
    if capture is None or capture["state"] == "waiting":
        return ""
    if capture["state"] == "eager":
        return f", not recorded: {capture['why']}"
    left, count = len(capture["left"]), len(segment["nodes"])
    return f", recorded ({count - left} of {count} nodes)" if left else ", recorded"


def _capture(segment: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Give what happened beyond one recording, and why nodes were left out of it."""
    capture = segment["capture"]
    if capture is None:
        return
    for event, count in Counter(capture["events"]).items():
        if event not in ("recorded", f"not recorded: {capture['why']}"):
            yield f"{indent}{'':9}{event}{f', {count} times' if count > 1 else ''}"
    for reason, count in Counter(capture["left"].values()).most_common(_SHOWN):
        yield f"{indent}{'':9}{count} nodes not in the recording: {reason}"


def _seams(plan: Mapping[str, Any], indent: str) -> Iterator[str]:
    if plan["seams"]:
        yield f"{indent}seams"
    for seam in plan["seams"][:_SHOWN]:
        values = ", ".join(seam["values"][:3]) + (
            ", ..." if len(seam["values"]) > 3 else ""
        )
        copied = seam["copied_nbytes"]
        how = f"{bytes_text(copied)} copied" if copied else "read in place"
        how += f", {seam['form']}" if seam["form"] else ""
        yield (
            f"{indent}  {seam['cause']:14} {seam['after']} | {seam['before'] or 'the rest'}: "
            f"{values} ({bytes_text(seam['nbytes'])}, {how}{_us(seam['us'])})"
        )
        yield f"{indent}  {'':14} {seam['why']}"
    if len(plan["seams"]) > _SHOWN:
        yield f"{indent}  ... and {len(plan['seams']) - _SHOWN} more (--json has all)"


def _excursions(plan: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Give how each excursion from a device is made, what it costs, and what it cannot be."""
    if plan["excursions"]:
        yield f"{indent}excursions"
    for one in plan["excursions"][:_SHOWN]:
        predicted, took = one["predicted_us"], one["us"]
        price = "" if predicted is None else f", predicted {predicted:.1f} us"
        measured = "" if took is None else f", measured {took:.1f} us"
        work = (
            "" if one["host_us"] is None else f" beside {one['host_us']:.1f} us of work"
        )
        yield (
            f"{indent}  {one['form']:14} {one['id']}: {bytes_text(one['out_nbytes'])} out, "
            f"{bytes_text(one['in_nbytes'])} in{price}{measured}{work}"
        )
        yield f"{indent}  {'':14} {one['reason']} ({one['source']})"
        for form, why in one["refused"].items():
            yield f"{indent}  {'':14} no {form}: {why}"
    if len(plan["excursions"]) > _SHOWN:
        left = len(plan["excursions"]) - _SHOWN
        yield f"{indent}  ... and {left} more (--json has all)"
    for chain in plan["chains"]:
        capture = chain["capture"]
        if capture is not None and capture["state"] != "waiting":
            said = f": {capture['why']}" if capture["why"] else ""
            yield f"{indent}  {chain['id']} {capture['state']}{said}"


def _edges(plan: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Give copies that are part of recordings, by what is recorded."""
    units: dict[tuple[str, bool], list[str]] = {}
    for edge in plan["edges"]:
        said = f"{edge['value']} ({bytes_text(edge['nbytes'])})"
        units.setdefault((edge["unit"], edge["inward"]), []).append(said)
    if units:
        yield f"{indent}copies in recordings"
    for (unit, inward), all_said in list(units.items())[:_SHOWN]:
        values = ", ".join(all_said[:3]) + (", ..." if len(all_said) > 3 else "")
        way = "to the device" if inward else "to the host"
        yield f"{indent}  {values} {way}, in the recording of {unit}"
