"""
What excursions to the host are thought to cost, for a plan to choose by.

Taken from one NVIDIA H200 and its host: the fixed parts from single excursions of 4 KiB, the
rates from pinned copies of 1 MiB and from what the host needs to copy the same bytes in
memory once more. Eager is what a session's read, write and second launch cost together.
"""

from __future__ import annotations

from seamline.forms import FormPrice, SeamForm

__all__ = ["PRICES"]

_FROM = "defaults, measured on an NVIDIA H200"
PRICES = (
    FormPrice(SeamForm.EAGER, 80.0, 124.0, 187.0, _FROM),
    FormPrice(SeamForm.MAILBOX, 9.4, 128.0, 128.0, _FROM),
    FormPrice(SeamForm.HOST_NODE, 54.0, 128.0, 128.0, _FROM),
)
