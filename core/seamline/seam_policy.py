"""How many seams a session may have, and what happens when there are more."""

from __future__ import annotations

import warnings
from typing import Literal

import attrs

from seamline.errors import SeamError
from seamline.planned import Plan

__all__ = ["SeamPolicy", "SeamWarning"]


class SeamWarning(UserWarning):
    """A plan has seams, and the session asked to be told."""


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
    """

    seams: Literal["allow", "warn", "error"] = "allow"
    limit: int | None = None

    def hold(self, plan: Plan) -> None:
        """
        Hold a plan to the policy.

        Raises
        ------
        SeamError
            Lists every seam of the plan.
        """
        count = len(plan.seams)
        if not count:
            return
        lines = [f"  {seam} ({seam.why})" for seam in plan.seams]
        text = f"the plan has {count} seam{'s' if count > 1 else ''}:\n" + "\n".join(
            lines
        )
        if self.seams == "error":
            raise SeamError(f"{text}\nseams='error' allows none")
        if self.limit is not None and count > self.limit:
            raise SeamError(f"{text}\nmax_seams={self.limit} is exceeded")
        if self.seams == "warn":
            warnings.warn(text, SeamWarning, stacklevel=5)
