"""Every check of the kit, by group."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from pathlib import Path

from seamline_testing.results import Check
from seamline_testing.subject import Subject

__all__ = ["GROUPS", "all_checks"]

#: Group -> the module whose ``checks(subject, quick)`` gives its checks.
GROUPS = {
    "contract": "seamline_testing.contract_checks",
    "claims": "seamline_testing.claims_checks",
    "numerics": "seamline_testing.numerics",
    "int4": "seamline_testing.int4_checks",
    "partition": "seamline_testing.partition_checks",
    "transfers": "seamline_testing.transfers_checks",
    "capture": "seamline_testing.capture_checks",
}


def all_checks(
    subject: Subject,
    quick: bool = False,
    groups: Collection[str] = (),
    model: Path | None = None,
) -> tuple[Check, ...]:
    """
    Give the checks of a provider; making them opens no device.

    Parameters
    ----------
    groups
        Names of groups; empty for all.
    model
        A user's model, whose nodes are the cases instead of the kit's own.

    Raises
    ------
    ValueError
        There is no such group, or two checks share an id.
    """
    unknown = set(groups) - GROUPS.keys()
    if unknown:
        known = ", ".join(GROUPS)
        raise ValueError(f"no group {', '.join(sorted(unknown))} (there are: {known})")
    found: list[Check] = []
    if model is not None:
        from seamline_testing.from_model import model_checks

        found += model_checks(model)
    else:
        for name in groups or GROUPS:
            found += importlib.import_module(GROUPS[name]).checks(subject, quick)
    ids = [check.id for check in found]
    twice = sorted({one for one in ids if ids.count(one) > 1}) if _repeats(ids) else []
    if twice:
        raise ValueError(f"two checks of one id: {', '.join(twice)}")
    return tuple(found)


def _repeats(ids: list[str]) -> bool:
    return len(set(ids)) != len(ids)
