"""A provider that does what it says passes every question that can be asked of it."""

from __future__ import annotations

import logging

import pytest
from tests.testing.liars.asking import MODULES, found, liar, outcomes

from seamline_testing.results import Outcome
from seamline_testing.subject import Subject

TWIN = Subject("twin", plugins=("seamline_testing.twin.plugin",))


@pytest.mark.parametrize(
    ("group", "only"),
    [
        ("contract", ""),
        ("claims", ""),
        ("partition", "bfloat16"),
        ("partition", "int64"),
    ],
)
def test_an_honest_provider_passes_every_question_that_can_be_asked_of_it(group, only):
    for name, finding in outcomes(liar("honest"), group, only=only).items():
        if finding.outcome is Outcome.NOT_RUN:
            assert name == "contract/memory-given-back"
            continue
        assert finding.outcome is Outcome.PASS, (name, finding)


@pytest.mark.parametrize("group", ["transfers", "capture"])
def test_on_the_host_nothing_is_transferred_or_recorded_and_nothing_is_passed(group):
    findings = outcomes(liar("honest"), group)
    refusal = findings.pop("capture/refusal", None)
    assert refusal is None or refusal.outcome is Outcome.PASS
    for finding in findings.values():
        assert finding.outcome is Outcome.NOT_RUN
        assert "host's memory" in finding.said or "cannot be recorded" in finding.said


@pytest.mark.parametrize("group", ["contract", "transfers", "capture"])
def test_an_honest_device_passes_what_only_a_device_can_be_asked(group):
    for name, finding in outcomes(TWIN, group).items():
        if finding.outcome is Outcome.NOT_RUN:
            assert name in ("contract/arrays-let-go", "capture/refusal")
            continue
        assert finding.outcome is Outcome.PASS, (name, finding)


def test_every_question_has_an_id_of_its_own_and_needs_no_device_to_be_listed():
    ids = [
        check.id
        for module in MODULES.values()
        for check in module.checks(Subject("nobody-offers-it"), True)
    ]
    assert len(ids) == len(set(ids)) > 50


def test_logging_is_left_as_it_was():
    logger = logging.getLogger("onnx_ir")
    level = logger.level
    found(liar("claims_nothing"), "partition/float32")
    assert logger.level == level
