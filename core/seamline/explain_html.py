"""
An explanation as one page of HTML: it needs no network, no script, and no other file.

Text is escaped wherever it comes from: names in a model may be anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from seamline.explain_page import PAGE
from seamline.explain_text import bytes_text

__all__ = ["as_html"]

_WIDTH = 1000.0  # of the band, in the picture's own units
_COLOURS = 8  # the page's style has that many


def as_html(data: Mapping[str, Any]) -> str:
    """
    Write an explanation, as made by :func:`seamline.explain.explain`.

    Raises
    ------
    ModuleNotFoundError
        jinja2 is missing: ``pip install 'seamline[reports]'``.
    """
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a page of HTML needs jinja2: pip install 'seamline[reports]'",
            name=error.name,
        ) from error

    page = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page.filters.update(bytes=bytes_text, us=_us)
    page.globals.update(band=band, summary=_summary)
    colours = {p["name"]: i % _COLOURS for i, p in enumerate(data["providers"])}
    return page.from_string(PAGE).render(data=data, colours=colours)


def _us(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


@attrs.frozen
class Piece:
    """One segment of the band: where it lies, and what it shows."""

    x: float
    width: float
    segment: Mapping[str, Any]


@attrs.frozen
class Mark:
    """Seams that lie at one place of the band."""

    x: float
    seams: tuple[Mapping[str, Any], ...]


@attrs.frozen
class Band:
    """
    The segments of a plan in order, as wide as they have nodes, and the seams between.

    Every segment has at least a sliver; all together are ``_WIDTH`` wide.
    """

    pieces: tuple[Piece, ...]
    marks: tuple[Mark, ...]
    width: float = _WIDTH


def band(plan: Mapping[str, Any]) -> Band:
    """Lay a plan's segments out side by side."""
    segments: Sequence[Mapping[str, Any]] = plan["segments"]
    # Half of the band is shared out equally, so that one node beside a thousand is seen.
    nodes = sum(len(s["nodes"]) for s in segments) or 1
    even = _WIDTH / 2 / (len(segments) or 1)
    pieces, x = [], 0.0
    for segment in segments:
        width = even + len(segment["nodes"]) / nodes * _WIDTH / 2
        pieces.append(Piece(round(x, 2), round(width, 2), segment))
        x += width
    places = {piece.segment["id"]: piece.x for piece in pieces}
    at: dict[float, list[Mapping[str, Any]]] = {}
    for seam in plan["seams"]:
        # What a host step or the rest waits for has no segment behind it.
        after = places.get(seam["before"])
        at.setdefault(_WIDTH if after is None else after, []).append(seam)
    return Band(tuple(pieces), tuple(Mark(x, tuple(at[x])) for x in sorted(at)))


def _summary(plan: Mapping[str, Any]) -> str:
    counts = (
        (len(plan["segments"]), "segments"),
        (len(plan["seams"]), "seams"),
        (len(plan["transfers"]), "transfers"),
        (len(plan["nodes"]), "nodes run"),
        (len(plan["resolved"]), "resolved from sizes alone"),
        (len(plan["unused"]), "unused"),
    )
    return ", ".join(f"{count} {what}" for count, what in counts)
