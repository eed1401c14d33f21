"""
Hold performance claims in the documentation to measured records.

A claim is a number with a unit of time, a rate, a percentage or a factor, in the prose or a
table of a page of Markdown. It cites a record, that is, links to a file under
``docs/performance`` which exists and has that number in that unit; or it is marked as no
measurement of ours. CONTRIBUTING.md has the rule in full.

    python -m scripts.documentation_claims [ROOT]

prints each claim that stands alone, and fails if there is one. The rule has to see what a
reader sees, so a page goes through four steps: ``lines`` and ``blocks`` split it, ``plain``
takes the Markdown away, ``numbers``, ``units``, ``quantities`` and ``tables`` find numbers with
units, ``claims`` leaves out the marked ones. ``records`` reads measured records by the same steps.
"""

from __future__ import annotations

from .rule import problems

__all__ = ["problems"]
