"""
What excursions to the host are thought to cost, for a plan to choose by.

Taken from one NVIDIA H200 and its host, from runs with ten excursions each: the fixed parts
from 4 KiB each way, whose copies are in the recordings, the rates from what 1 MiB each way
takes more. Both forms without a call of the host by the driver are bound by the host's own
copying there.
"""

from __future__ import annotations

from seamline.forms import FormPrice, SeamForm

__all__ = ["PRICES"]

_FROM = "defaults, measured on an NVIDIA H200"
PRICES = (
    FormPrice(SeamForm.EAGER, 16.0, 41.0, 41.0, _FROM),
    FormPrice(SeamForm.MAILBOX, 8.0, 41.0, 41.0, _FROM),
    FormPrice(SeamForm.HOST_NODE, 130.0, 91.0, 91.0, _FROM),
)
