"""Providers that lie are caught, each by the line that says how."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from tests.testing.liars.asking import LIARS, found, liar, outcomes

from seamline_testing.results import Outcome
from seamline_testing.subject import Subject
from seamline_testing.workers import Workers

VIOLATION, MISMATCH = Outcome.CONTRACT_VIOLATION, Outcome.MISMATCH


def device(name):
    return Subject(name, plugins=(f"{LIARS}.devices",))


def caught(subject, check, outcome, *parts):
    finding = found(subject, check)
    assert finding.outcome is outcome, finding
    for part in parts:
        assert part in finding.said
    assert "\n" not in finding.said


# --- values ---------------------------------------------------------------------------


def test_claiming_everything_and_returning_zeros_is_a_wrong_value_and_a_false_claim():
    zeros = liar("zeros")
    caught(
        zeros, "contract/changed-inputs", MISMATCH, "elements are wrong", ": 0.0, not"
    )
    caught(zeros, "partition/float32", MISMATCH, "is 0.0 at", "by definition")
    caught(
        zeros,
        "claims/nobody's-operator",
        VIOLATION,
        "it claims NoSuchOperator, which nobody defines",
    )


def test_a_thousandth_too_much_in_one_type_is_found_in_that_type_alone():
    subject = liar("slightly_wrong")
    caught(
        subject, "partition/float16", MISMATCH, "float16 graph", "Add(", "by definition"
    )
    assert found(subject, "partition/float32").outcome is Outcome.PASS


def test_an_output_that_is_not_wholly_written_shows_the_poison():
    caught(
        liar("leaves_bytes"),
        "contract/fully-written",
        MISMATCH,
        "with every byte of its output 0xFF before",
        "33 of 561 elements are wrong, the first at [16, 0]: nan",
    )


def test_a_wrong_shape_is_named_beside_the_right_one():
    caught(
        liar("wrong_shape"),
        "contract/memory-respected",
        VIOLATION,
        "it gave float32[33, 17] for 'y', whose type is float32[17, 33]",
    )


def test_a_wrong_element_type_is_named_beside_the_right_one():
    caught(
        liar("wrong_dtype"),
        "contract/memory-respected",
        VIOLATION,
        "output 0 is float64[17, 33], the plan says float32[17, 33]",
    )


# --- memory ---------------------------------------------------------------------------


def test_a_write_past_an_output_is_found_with_its_distance():
    caught(
        liar("writes_outside"),
        "contract/memory-respected",
        VIOLATION,
        "it wrote outside 'y': 4 bytes after it, the nearest at distance 1",
    )


def test_a_written_input_is_named():
    caught(
        liar("mutates_input"),
        "contract/memory-respected",
        VIOLATION,
        "it wrote to its input 'x'",
    )


def test_an_output_kept_from_an_earlier_binding_is_seen_being_written():
    caught(
        liar("keeps_buffer"),
        "contract/reused-buffers",
        VIOLATION,
        "bound anew, it wrote to the old",
    )


def test_an_input_kept_from_an_earlier_binding_gives_the_poison_that_is_there_now():
    caught(
        liar("keeps_input"),
        "contract/reused-buffers",
        VIOLATION,
        "right alone, and wrong after it was bound to other buffers",
    )


def test_an_alias_that_does_not_hold_is_a_false_claim():
    caught(
        liar("false_alias"),
        "contract/declared-aliases",
        VIOLATION,
        "wrong with 'y' in the bytes of 'x', as it claims",
    )


def test_what_a_closed_segment_holds_on_to_is_named():
    caught(
        liar("holds_on"),
        "contract/arrays-let-go",
        VIOLATION,
        "a closed segment still holds what was bound to x, z",
    )


# --- company --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["one-provider", "two-providers"])
def test_being_right_alone_and_wrong_on_two_threads_is_found(how):
    caught(
        liar("two_threads"),
        f"contract/threads-{how}",
        VIOLATION,
        "Neg/float32: right alone, and wrong while another thread runs it",
    )


def test_depending_on_what_ran_before_is_found_with_what_that_was():
    caught(
        liar("call_order"),
        "contract/call-order",
        VIOLATION,
        "MatMul_other/float32: right alone, and wrong after MatMul/float32 ran",
    )


# --- the process ----------------------------------------------------------------------


def narrow(name):
    return Subject(name, plugins=(f"{LIARS}.narrow",))


def test_a_run_that_changes_the_environment_is_found_with_what_it_set(monkeypatch):
    monkeypatch.delenv("SEAMLINE_LIAR", raising=False)
    caught(
        narrow("changes_the_process"),
        "contract/process-left-alone",
        VIOLATION,
        "a run changed the environment in SEAMLINE_LIAR",
    )
    monkeypatch.delenv("SEAMLINE_LIAR")


def test_a_run_that_changes_how_numpy_meets_errors_is_found():
    with np.errstate(all="warn"):
        caught(
            narrow("silences_numpy"),
            "contract/process-left-alone",
            VIOLATION,
            "a run changed NumPy's error handling in divide, invalid, over, under",
        )


# --- errors and claims ----------------------------------------------------------------


def test_an_exception_that_the_contract_does_not_name_is_a_violation():
    caught(
        liar("raises"),
        "contract/memory-respected",
        VIOLATION,
        "run() raised an undeclared OddError: the driver is upset",
    )


def test_a_declared_error_has_to_name_its_node():
    caught(
        liar("raises_nameless"),
        "contract/memory-respected",
        VIOLATION,
        "run() raised KernelError without a node",
    )


def test_a_claim_that_cannot_be_built_is_a_violation():
    caught(
        liar("unbuildable"),
        "claims/builds",
        VIOLATION,
        "build() failed on a node that it claims",
        "its compiler has no such kernel",
    )


def test_a_claim_that_changes_between_two_asks_is_a_violation():
    caught(
        liar("changing_claim"),
        "claims/same-answer",
        VIOLATION,
        "Add(float32[17, 33], float32[17, 33])",
        "when it is asked a second time",
        "it is busy",
    )


def test_a_claim_that_depends_on_a_node_s_name_is_a_violation():
    caught(
        narrow("by_name"),
        "claims/same-answer",
        VIOLATION,
        "under the name 'the_Relu', and under 'Sphinx",
        "names with q are kept",
    )


def test_a_refusal_without_a_reason_is_a_violation():
    caught(
        liar("no_reason"),
        "claims/reasons",
        VIOLATION,
        "gave a refusal without a reason",
    )


def test_claiming_nothing_scores_nothing():
    nothing = liar("claims_nothing")
    findings = outcomes(nothing, "contract", "claims", "transfers", "capture")
    findings |= outcomes(nothing, "partition", only="float32")
    assert not [name for name, one in findings.items() if one.outcome is Outcome.PASS]
    assert not [name for name, one in findings.items() if one.outcome.is_failure]
    assert findings["contract/plugin"].outcome is Outcome.PASS_NOT_CLAIMED
    assert all(one.said for one in findings.values())


def test_a_provider_that_nobody_offers_is_not_passed():
    caught(
        Subject("nobody-offers-it"), "contract/plugin", VIOLATION, "it cannot be found"
    )


# --- one operator ---------------------------------------------------------------------


def one_operator(name):
    return Subject(name, plugins=(f"{LIARS}.one_operator",))


def test_who_claims_no_sample_is_asked_over_cases_of_what_it_does_claim():
    findings = outcomes(one_operator("max_right"), "contract", "claims")
    assert findings.pop("contract/bad-data").outcome is Outcome.DECLINED  # no Gather
    for name in ("contract/memory-given-back", "contract/declared-aliases"):
        assert findings.pop(name).outcome is Outcome.NOT_RUN
    wrong = {name: f for name, f in findings.items() if f.outcome is not Outcome.PASS}
    assert not wrong


def test_one_operator_that_is_wrong_on_two_threads_is_found():
    caught(
        one_operator("max_shared"),
        "contract/threads-one-provider",
        VIOLATION,
        "Max/",
        "right alone, and wrong while another thread runs it",
    )


def test_one_operator_that_remembers_its_first_run_is_found():
    caught(
        one_operator("max_first"),
        "contract/changed-inputs",
        VIOLATION,
        "Max/",
        "wrong when it runs again with other inputs",
    )


# --- native code ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said", "deadline"),
    [
        ("aborts", "SIGABRT", 60.0),
        ("segfaults", "SIGSEGV", 60.0),
        ("hangs", "within 4 s", 4.0),
    ],
)
def test_native_code_that_dies_or_hangs_is_one_crash_and_the_next_check_runs(
    name, said, deadline
):
    ids = ["contract/memory-respected", "contract/plugin"]
    opened = Workers.open(
        liar(name), quick=True, groups=["contract"], deadline=deadline
    )
    with closing(opened) as workers:
        results = {one.id: one.finding for one in workers.run(ids)}
    assert results[ids[0]].outcome is Outcome.CRASH
    assert said in results[ids[0]].said
    assert results[ids[1]].outcome is Outcome.PASS


# --- devices --------------------------------------------------------------------------


def test_a_replay_of_baked_values_is_found_by_changing_the_inputs():
    caught(
        device("bakes"),
        "capture/replay-equals-eager",
        VIOLATION,
        "right when it runs, and wrong when it is replayed with other inputs",
    )


def test_a_recording_that_also_runs_has_advanced_the_state_once_too_often():
    caught(
        device("runs_to_record"),
        "capture/state-advances-once",
        VIOLATION,
        "its state is wrong after record(), which is no run",
    )


def test_a_replay_at_the_places_of_an_earlier_binding_is_seen_writing_there():
    caught(
        device("replays_there"),
        "capture/moved",
        VIOLATION,
        "bound elsewhere, its replay wrote to the old",
    )


def test_a_copy_that_loses_the_odd_element_is_found_to_the_byte():
    caught(
        device("lossy"),
        "transfers/float16",
        MISMATCH,
        "came back with",
        "bytes changed, the first at",
    )


def test_memory_that_is_never_given_back_shows_in_the_gauges():
    leaky = device("leaky")
    caught(leaky, "transfers/gauges", VIOLATION, "all buffers are closed, and content")
    caught(leaky, "contract/memory-given-back", VIOLATION, "bytes of content")
