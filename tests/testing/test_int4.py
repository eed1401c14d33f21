"""The kit's table of products by packed weights: what each limit lets pass, and what not."""

from __future__ import annotations

import numpy as np
import pytest
from tests.testing.liars.asking import LIARS

from seamline_testing import int4_checks
from seamline_testing.int4_cases import FORMS, Form, models_of
from seamline_testing.int4_limits import (
    ARITHMETICS,
    allowed,
    answer_of,
    limit_of,
    rooted,
)
from seamline_testing.int4_table import int4_table
from seamline_testing.report import Report
from seamline_testing.report_markdown import to_markdown
from seamline_testing.results import Finding, Outcome, Result
from seamline_testing.subject import Subject

CPU = Subject("cpu", {"num_threads": 1})
PLAIN, ZEROS = "4-bits-block-32-zero-none", "4-bits-block-32-zero-packed"


def found(subject, row, level, dtype="float32"):
    wanted = f"int4/{row}/level-{level}/{dtype}"
    (asked,) = [one for one in int4_checks.checks(subject) if one.id == wanted]
    return asked.run(subject)


def of(arithmetic):
    return Subject(arithmetic.replace(" ", "_"), plugins=(f"{LIARS}.narrower",))


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize(
    ("level", "dtype"), [(0, "float32"), (2, "float32"), (3, "float32"), (4, "float32"),
                         (0, "bfloat16"), (4, "float16")]
)  # fmt: skip
def test_an_arithmetic_passes_where_it_is_allowed_or_finer_and_nowhere_else(
    arithmetic, level, dtype
):
    finding = found(of(arithmetic), ZEROS, level, dtype)
    fine = ARITHMETICS.index(arithmetic) <= ARITHMETICS.index(allowed(level, dtype))
    wanted = Outcome.PASS if fine else Outcome.MISMATCH
    assert finding.outcome is wanted, finding
    assert finding.said.startswith("7 of 7, " if fine else ""), finding
    assert allowed(level, dtype) in finding.tolerance


def test_a_remainder_of_n_that_is_not_written_is_found_and_named():
    finding = found(of("no_remainder"), PLAIN, 4)
    assert finding.outcome is Outcome.MISMATCH
    assert "elements are off, the first at [0, " in finding.said


def test_a_provider_without_the_operator_declines():
    finding = found(Subject("reference"), PLAIN, 0)
    assert finding.outcome is Outcome.DECLINED
    assert "MatMulNBits" in finding.said


@pytest.mark.parametrize("column", [(0, "float32"), (4, "bfloat16")])
def test_cpu_passes(column):
    finding = found(CPU, PLAIN, *column)
    assert finding.outcome is Outcome.PASS, finding
    assert finding.judge == "definition"


def test_every_case_tells_the_allowed_arithmetic_from_the_next_coarser_one():
    for form in FORMS:
        for level, dtype in int4_checks.COLUMNS[3:]:
            products = [p for m in models_of(form, level, dtype) for p in m.products]
            limit = limit_of(products, level, dtype)
            assert limit.separates, (form, level, dtype, str(limit))
            # Nearer than a tenth would be a matter of luck.
            assert limit.coarse > 1.1 * limit.whole, (form, level, dtype, str(limit))


def test_the_forms_cover_what_the_operator_says():
    assert {(f.bits, f.block, f.zero) for f in FORMS} >= {
        (bits, block, zero)
        for bits in (2, 4, 8)
        for block in (16, 32, 64, 128, 256, 512)
        for zero in ("none", "packed", "float")
    }
    shapes = [
        (len(p.x), p.w.shape[1], p.x.shape[1] % form.block)
        for form in FORMS
        for model in models_of(form, 0, "float32")
        for p in model.products
    ]
    assert {m for m, _, _ in shapes} == {0, 1, 2, 5, 17, 64}
    assert len({n % 16 for _, n, _ in shapes}) > 4
    assert {bool(rest) for _, _, rest in shapes} == {True, False}


def test_packed_zero_points_of_an_odd_number_of_blocks_end_within_a_byte():
    first, _ = models_of(Form(4, 32, "packed"), 0, "float32")
    (zeros,) = [t for t in first.proto.graph.initializer if t.name == "z"]
    assert list(zeros.dims)[1] == 2
    assert first.products[0].x.shape[1] == 96


def test_errors_of_quantised_activations_halve_with_each_bit():
    (product, *_) = models_of(Form(4, 64, "none"), 4, "float32")[0].products[1:]
    eight, seven = (
        rooted([product.errors(answer_of(product, name))])
        for name in ("8 bits", "7 bits")
    )
    assert 1.8 < seven / eight < 2.3
    assert np.array_equal(answer_of(product, "float32"), product.wanted.astype("f4"))


def test_the_report_has_the_table_with_counts_errors_and_refusals():
    def cell(row, level, outcome, said):
        name = f"int4/{row}/level-{level}/float32"
        return Result(name, "int4", Finding(outcome, said), "MatMulNBits", 1, "float32")

    results = (
        cell(PLAIN, 0, Outcome.PASS, "7 of 7, 2.0e-07"),
        cell(PLAIN, 4, Outcome.MISMATCH, "6 of 7, 8.0e-01: M=1: off"),
        cell(ZEROS, 0, Outcome.DECLINED, "no kernel"),
    )
    head, rows = int4_table(results)
    assert head == ["weights", "0 fp32", "4 fp32"]
    assert rows == [
        ["4 bits, block 32, zero none", "7 of 7, 2.0e-07", "**6 of 7, 8.0e-01**"],
        ["4 bits, block 32, zero packed", "declined", ""],
    ]
    text = to_markdown(Report("mine", {}, "full", results))
    assert "| 4 bits, block 32, zero none | 7 of 7, 2.0e-07 | **6 of 7" in text
    assert "Products by packed weights" not in to_markdown(Report("mine", {}, "f", ()))
