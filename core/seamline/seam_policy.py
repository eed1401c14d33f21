"""How many seams a session may have, and what happens when there are more."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import attrs

from seamline.caller import caller_level
from seamline.errors import SeamError, near
from seamline.excursions import AUTO
from seamline.forms import SeamForm
from seamline.planned import Plan

__all__ = ["SeamPolicy", "SeamWarning", "check_form"]


class SeamWarning(UserWarning):
    """A plan has seams, and the session asked to be told."""


def _is_known(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    if value not in ("allow", "warn", "error"):
        raise ValueError(
            f"seams= takes 'allow', 'warn' or 'error'; it was given {value!r}"
        )


def _is_count(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"max_seams= is a count or None; it was given {value!r}")


def check_form(form: object) -> None:
    """
    Refuse what is no form of an excursion.

    Raises
    ------
    ValueError
        Names the forms that there are.
    """
    known = [AUTO, *map(str, SeamForm)]
    if form not in known:
        close = near(form, known) if isinstance(form, str) else ""
        said = " or ".join(map(repr, known))
        raise ValueError(f"seam_form= takes {said}; it was given {form!r}{close}")


def _is_form(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    check_form(value)


@attrs.frozen
class SeamPolicy:
    """
    What to do about seams.

    Attributes
    ----------
    seams
        ``allow`` them, ``warn`` of them, or make any an ``error``.
    limit
        More than this many are an error whatever ``seams`` says; None: no limit.
    form
        How recordings leave for the host; see :mod:`seamline.excursions`.
    """

    seams: Literal["allow", "warn", "error"] = attrs.field(
        default="allow", validator=_is_known
    )
    limit: int | None = attrs.field(default=None, validator=_is_count)
    form: str = attrs.field(default=AUTO, validator=_is_form)

    def hold(self, plan: Plan, around: Sequence[Plan] = ()) -> None:
        """
        Hold a plan to the policy.

        Parameters
        ----------
        around
            Plans that it is run from, if it is a body's or what was left after a dynamic
            size: their seams count with its own.

        Raises
        ------
        SeamError
            Lists every seam of the plan.
        """
        if not plan.seams:
            return
        seams = [seam for one in (*reversed(around), plan) for seam in one.seams]
        count = len(seams)
        lines = [f"  {seam} ({seam.why})" for seam in seams]
        many = f"{count} seam{'s' if count > 1 else ''}"
        text = "\n".join([f"the plan of {plan.region.name!r} has {many}:", *lines])
        if self.seams == "error":
            raise SeamError(f"{text}\nseams='error' allows none")
        if self.limit is not None and count > self.limit:
            raise SeamError(f"{text}\nmax_seams={self.limit} is exceeded")
        if self.seams == "warn":
            warnings.warn(text, SeamWarning, stacklevel=caller_level())
