"""
What excursions to the host are thought to cost, for a plan to choose by.

Taken from one NVIDIA H200 and its host, with ten excursions a run, and the median of three
measurements: the fixed parts from 4 KiB each way, whose copies are in the recordings, the
rates from what 1 MiB each way takes more. There the host's own copying decides, of which
eager excursions have most.
"""

from __future__ import annotations

from seamline.forms import FormPrice, SeamForm

__all__ = ["PRICES"]

_FROM = "defaults, measured on an NVIDIA H200"
PRICES = (
    FormPrice(SeamForm.EAGER, 14.0, 53.0, 53.0, _FROM),
    FormPrice(SeamForm.MAILBOX, 8.0, 47.0, 47.0, _FROM),
    FormPrice(SeamForm.HOST_NODE, 113.0, 83.0, 83.0, _FROM),
)
