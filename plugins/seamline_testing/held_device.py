"""
A device that a runner holds open while its checks open and close the provider.

The last to close a device gives its context back, and making one again takes longer than
most checks. After a failure the held one also says whether the device still works: some
errors end it for the whole process, and would be found again by every later check.
"""

from __future__ import annotations

import contextlib

import attrs

from seamline.devices import HOST
from seamline.opened import Opened
from seamline_testing.subject import Subject

__all__ = ["HeldDevice"]


@attrs.define(eq=False)
class HeldDevice:
    """
    The subject's provider, opened once; nothing on the host, or where it cannot be opened.

    Examples
    --------
    ::

        held = HeldDevice.open(subject)
        if not held.works():
            ...  # end the process
    """

    _opened: Opened | None

    @classmethod
    def open(cls, subject: Subject) -> HeldDevice:
        """Open it; what keeps it from being opened is each check's to say."""
        with contextlib.suppress(Exception):
            opened = subject.opened()
            if next(iter(opened.providers.values())).device != HOST:
                return cls(opened)
            opened.close()
        return cls(None)

    def works(self) -> bool:
        """Tell whether the device still does what it is asked."""
        if self._opened is None:
            return True
        try:
            memory = next(iter(self._opened.providers.values())).memory()
            if memory is not None:
                memory.synchronize()
        except Exception:
            return False
        return True
