"""
The conformance kit: holds any provider to the contract and to ONNX's definitions.

``pytest --pyargs seamline_testing --provider NAME`` or ``seamline conform NAME`` runs it.
"""

from __future__ import annotations

from seamline_testing.results import Finding, Outcome, Result
from seamline_testing.subject import Subject

__all__ = ["Finding", "Outcome", "Result", "Subject"]
