"""The kit's own questions about memory and recordings, asked of the twin."""

from __future__ import annotations

import pytest

from seamline_testing import capture_checks, transfers_checks
from seamline_testing.results import Outcome
from seamline_testing.subject import Subject

TWIN = Subject("twin", {"copy_delay": 0.0001}, ("seamline_testing.twin.plugin",))
QUESTIONS = {
    check.id: check
    for module in (transfers_checks, capture_checks)
    for check in module.checks(TWIN, True)
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_twin_passes_what_the_kit_asks_of_devices(name):
    found = QUESTIONS[name].run(TWIN)
    if name == "capture/refusal":
        # Its samples are of operators that the twin can record; test_capture asks others.
        assert found.outcome is Outcome.NOT_RUN
        assert found.said == "everything that it claims can be recorded"
    else:
        assert found.outcome is Outcome.PASS, found.said
