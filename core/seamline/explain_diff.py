"""Two explanations compared: one line for each decision that changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["diff"]


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """
    Compare two explanations; give one line for each thing that changed.

    Examples
    --------
    >>> diff({"plan": {"seams": []}}, {"plan": {"seams": [{"id": "x", "us": 1.0}]}})
    ["+ plan.seams.x: {'id': 'x'}"]
    """
    return _diff("", _comparable(before), _comparable(after))


#: Differ from run to run, and say nothing of a plan: times, recordings, threads there are.
_NOISE = frozenset({"us", "host_us", "text", "capture", "facts"})


def _comparable(value: Any) -> Any:
    """Drop measurements, and key lists of things with ids by id."""
    if isinstance(value, Mapping):
        return {k: _comparable(v) for k, v in value.items() if k not in _NOISE}
    if isinstance(value, list):
        items = [_comparable(item) for item in value]
        if items and all(isinstance(item, dict) and "id" in item for item in items):
            return {item["id"]: item for item in items}
        return items
    return value.item() if isinstance(value, np.generic) else value


def _diff(path: str, one: Any, other: Any) -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        lines: list[str] = []
        for key in dict.fromkeys([*one, *other]):
            at = (
                f"{path}.{key}".lstrip(".")
                if str(key).isidentifier()
                else f"{path}[{key!r}]"
            )
            if key not in other:
                lines.append(f"- {at}: {one[key]}")
            elif key not in one:
                lines.append(f"+ {at}: {other[key]}")
            else:
                lines += _diff(at, one[key], other[key])
        return lines
    if isinstance(one, list) and isinstance(other, dict):
        one = {}
        return _diff(path, one, other)
    if isinstance(one, dict) and isinstance(other, list):
        return _diff(path, one, {})
    return [] if one == other else [f"~ {path}: {one} -> {other}"]
