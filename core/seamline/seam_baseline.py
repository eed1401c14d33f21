"""
The seams that a model is known to have, kept in a file: a new one is found in a review.

A seam is told by its id, which is made of the names that a model keeps: its cause, and the
providers and first nodes of the segments at its ends. Those of bodies of control flow, and
of what is planned once a size is known, have the region's name before it. Bytes, times and
forms may change; they are in the file to be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from seamline.errors import SeamlineError

__all__ = ["FORMAT", "Held", "baseline_of", "held", "read_baseline"]

FORMAT = 1  #: version of the file


@attrs.frozen
class Held:
    """
    An explanation held to a baseline.

    Attributes
    ----------
    new
        A line for each seam that the baseline has not.
    gone
        Ids of seams that only the baseline has.
    """

    new: tuple[str, ...]
    gone: tuple[str, ...]


def baseline_of(data: Mapping[str, Any]) -> str:
    """
    Give the text of a baseline for an explanation.

    Examples
    --------
    >>> print(baseline_of({"model": "m.onnx", "plan": {"region": "g", "seams": []}}))
    {
      "format": 1,
      "model": "m.onnx",
      "seams": []
    }
    <BLANKLINE>
    """
    seams = [
        {
            "id": name,
            "cause": seam["cause"],
            "why": seam["why"],
            "values": list(seam["values"]),
            "form": seam.get("form"),
        }
        for name, seam in _seams(data["plan"], "")
    ]
    model = Path(str(data["model"])).name
    kept = {"format": FORMAT, "model": model, "seams": seams}
    return json.dumps(kept, indent=2, ensure_ascii=False) + "\n"


def read_baseline(path: Path) -> frozenset[str]:
    """
    Read the ids of a baseline.

    Raises
    ------
    SeamlineError
        It cannot be read, or is no baseline of this format; says how to make one.
    """
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SeamlineError(f"--baseline {path}: {error}") from error
    seams = kept.get("seams") if isinstance(kept, dict) else None
    is_ours = isinstance(seams, list) and kept.get("format") == FORMAT
    if not is_ours or not all(isinstance(s, dict) and "id" in s for s in seams or ()):
        raise SeamlineError(
            f"--baseline {path}: it is no baseline of format {FORMAT}; make one with "
            "seamline explain --write-baseline"
        )
    return frozenset(str(seam["id"]) for seam in seams or ())


def held(baseline: frozenset[str], data: Mapping[str, Any]) -> Held:
    """Hold an explanation to a baseline."""
    now = dict(_seams(data["plan"], ""))
    new = [
        f"new seam {name} [{', '.join(seam['values'])}]: {seam['why']}"
        for name, seam in now.items()
        if name not in baseline
    ]
    return Held(tuple(new), tuple(sorted(baseline - now.keys())))


def _seams(
    plan: Mapping[str, Any], before: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Give seams by id, those of bodies and of the rest too."""
    for seam in plan["seams"]:
        yield f"{before}{seam['id']}", seam
    for name, body in plan.get("bodies", {}).items():
        yield from _seams(body, f"{before}{name}/")
    rest = plan.get("rest")
    if rest and rest["planned"]:
        yield from _seams(rest, f"{before}rest/")
