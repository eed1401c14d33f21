"""A report: counts, score, what it excuses, its forms, and what two of them differ in."""

import attrs
import pytest

from seamline_testing.known_gaps import Gaps, read_gaps
from seamline_testing.report import Report, ReportError, load_report
from seamline_testing.report_diff import compare_reports
from seamline_testing.report_markdown import to_markdown
from seamline_testing.results import Finding, Outcome, Result
from seamline_testing.subject import Subject
from seamline_testing.workers import FAULT


def result(name, outcome, said="", **about):
    judged = outcome in (Outcome.PASS, Outcome.MISMATCH)
    finding = Finding(outcome, said, "definition" if judged else "", "float32/sum")
    return Result(f"numerics/node/{name}", "numerics", finding, **about)


def report(*results, gaps=Gaps(), complaints=()):  # noqa: B008 - it is frozen
    return Report.of(Subject("mine"), "full", results, gaps, complaints, 1.0)


ADD = result("add", Outcome.PASS, operator="Add", opset=14, dtype="float32")
SUB = result("sub", Outcome.MISMATCH, "off | by one", operator="Sub", opset=14)
IF = result("if", Outcome.DECLINED, "mine: no kernel for If")


def test_only_a_pass_counts():
    made = report(ADD, SUB, IF, result("id", Outcome.PASS_NOT_CLAIMED))
    assert made.score == 0.25
    assert sum(made.counts.values()) == 4
    assert list(made.counts) == list(Outcome)


def test_a_provider_that_claims_nothing_scores_zero_and_does_not_hold():
    made = report(IF, result("id", Outcome.PASS_NOT_CLAIMED))
    assert made.score == 0
    assert not made.failures
    assert not made.holds
    assert not report().holds


def test_a_known_gap_excuses_a_failure_but_not_the_score(tmp_path):
    path = tmp_path / "known_gaps.toml"
    path.write_text(
        '[[gap]]\nchecks = "*/sub"\nreason = "slow to mend"\nlink = "docs/x.md"\n'
        "expires = 2100-01-01\n"
    )
    made = report(ADD, SUB, gaps=read_gaps(path))
    assert made.holds
    assert made.score == 0.5
    assert "(known gap: slow to mend)" in to_markdown(made)
    assert not report(ADD, SUB).holds


def test_a_complaint_or_a_fault_of_the_kit_makes_a_report_not_hold():
    assert report(ADD).holds
    assert not report(ADD, complaints=("an entry expired",)).holds
    assert not report(ADD, result("x", Outcome.NOT_RUN, FAULT + "KeyError")).holds
    assert report(ADD, result("x", Outcome.NOT_RUN, "no such device")).holds


def test_json_gives_back_the_same_report(tmp_path):
    made = report(SUB, ADD, IF)
    path = tmp_path / "report.json"
    path.write_text(made.to_json())
    assert load_report(path) == made
    assert [r.id for r in made.results] == sorted(r.id for r in (ADD, SUB, IF))
    assert {"python", "numpy", "onnx"} <= made.versions.keys()


def test_another_file_is_no_report(tmp_path):
    path = tmp_path / "report.json"
    for text in ("{}", "[]", "nothing"):
        path.write_text(text)
        with pytest.raises(ReportError, match=r"report\.json"):
            load_report(path)


def test_markdown_has_a_row_for_operator_opset_and_dtype():
    text = to_markdown(report(ADD, SUB))
    assert "| Add | 14 | float32 | 1 | 0 | 0 | 0 | 0 | 0 | 0 |" in text
    assert "off | by one" in text  # in a list, not in a table
    assert "| all | 1 | 0 | 0 | 1 | 0 | 0 | 0 |" in text
    assert "1 of 2 checks pass" in text


def test_a_declared_looser_tolerance_is_shown():
    finding = Finding(Outcome.PASS, "", "definition", "float16/sum (declared: short)")
    assert "float16/sum (declared: short)" in to_markdown(
        report(Result("numerics/node/exp", "numerics", finding))
    )


def test_a_difference_names_what_is_worse_better_new_and_gone():
    mended = attrs.evolve(SUB, finding=Finding(Outcome.PASS, "", "definition"))
    broken = attrs.evolve(ADD, finding=Finding(Outcome.CRASH, "signal SIGSEGV"))
    found = compare_reports(report(ADD, SUB, IF), report(broken, mended, result("new", Outcome.PASS)))  # fmt: skip
    assert (found.worse, found.better) == (1, 1)
    assert found.lines == (
        "worse    numerics/node/add: PASS -> CRASH: signal SIGSEGV",
        "gone     numerics/node/if: was DECLINED",
        "new      numerics/node/new: PASS",
        "better   numerics/node/sub: MISMATCH -> PASS",
    )


def test_the_same_report_has_no_difference_whatever_it_took():
    slower = attrs.evolve(ADD, seconds=9.0)
    assert compare_reports(report(ADD), report(slower)).lines == ()


def test_another_judge_or_version_is_a_difference_that_is_not_worse():
    other = attrs.evolve(ADD, finding=attrs.evolve(ADD.finding, judge="stored"))
    made = attrs.evolve(report(other), versions={"onnx": "9"})
    found = compare_reports(report(ADD), made)
    assert found.worse == found.better == 0
    assert "judge    numerics/node/add: definition -> stored" in found.lines
    assert any(line.endswith("-> 9") for line in found.lines)
