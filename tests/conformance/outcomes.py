"""
Runs a model of ONNX's own suite over ``cpu`` by the kit, and says what came of it.

Outcomes, tolerances and the comparison are the conformance kit's.
"""

from __future__ import annotations

import attrs

from seamline_testing.comparing import differences
from seamline_testing.results import Finding, Outcome
from seamline_testing.running import run_model
from seamline_testing.subject import Subject
from seamline_testing.tolerances import class_of
from seamline_testing.values import plain

PASS, DECLINED = Outcome.PASS, Outcome.DECLINED
RIGHT = (Outcome.PASS, Outcome.PASS_NOT_CLAIMED)
PROVIDERS = [("cpu", {"num_threads": 2})]
SUBJECT = Subject("cpu", {"num_threads": 2})

__all__ = [
    "DECLINED", "PASS", "PROVIDERS", "RIGHT", "SUBJECT", "Finding", "differences", "plain",
    "run_case",
]  # fmt: skip


def run_case(model, inputs, outputs) -> Finding:
    """Run once, and hold the outputs to the ones given."""
    feeds = {
        one.name: plain(value)
        for one, value in zip(model.graph.input, inputs, strict=False)
    }
    answer = run_model(SUBJECT, model, feeds)
    if isinstance(answer, Finding):
        return answer
    want = [plain(value) for value in outputs]
    kind = class_of(node.op_type for node in model.graph.node)
    wrong = differences(answer.outputs, want, kind)
    finding = Finding(Outcome.MISMATCH if wrong else Outcome.PASS, wrong)
    return attrs.evolve(finding, tolerance=kind)
