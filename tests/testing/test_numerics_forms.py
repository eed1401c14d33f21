"""Made inputs reach what small and usual ones do not: ends of types, axes, elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.testing.liars.asking import LIARS

from seamline_testing.comparing import difference
from seamline_testing.drawing import Drawer, Form
from seamline_testing.drawn_forms import FORMS
from seamline_testing.numerics_generated import generated_checks
from seamline_testing.results import Outcome
from seamline_testing.samples import far_from
from seamline_testing.subject import Subject
from seamline_testing.values import false_bytes


def found(name, check, *, quick=True):
    subject = Subject(name, plugins=(f"{LIARS}.narrow",))
    wanted = f"numerics/generated/{check}"
    (asked,) = [one for one in generated_checks(subject, quick) if one.id == wanted]
    return asked.run(subject)


@pytest.mark.parametrize(
    ("name", "check", "said"),
    [
        ("adds_as_float64", "Add/int64", "int64/bits"),
        ("bools_of_255", "Greater/float32", "neither byte 0 nor 1"),
        ("four_axes", "Relu/float32", "float32[3, 3, 5, 11, 11]"),
        ("first_4096", "Relu/float32", "float32[3, 3, 5, 11, 11]"),
        ("loses_minus_zero", "Identity/float32", "0.0, want -0.0"),
        ("last_of_equals", "TopK/float32", "output 1"),
        ("moves_by_size", "Transpose/float32", "'perm': [4, 3, 2, 1, 0]"),
    ],
)  # fmt: skip
def test_who_is_right_for_small_and_usual_values_alone_is_caught_in_the_quick_form(
    name, check, said
):
    finding = found(name, check)
    assert finding.outcome is Outcome.MISMATCH, finding
    assert said in finding.said


@pytest.mark.parametrize(
    ("name", "check", "said"),
    [
        ("first_65536", "Relu/float32", "float32[5, 13, 1097]"),
        ("four_axes", "Relu/float32", "float32[2, 3, 1, 3, 2, 3]"),
        ("sums_in_16_bits", "ReduceSum/float16", "float16/sum"),
    ],
)
def test_the_full_form_has_more_elements_more_axes_and_narrow_types(name, check, said):
    finding = found(name, check, quick=False)
    assert finding.outcome is Outcome.MISMATCH, finding
    assert said in finding.said


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint64"])
def test_integers_meet_the_ends_of_their_type_and_what_floats_lack(dtype):
    seen: set[int] = set()

    @settings(max_examples=1, derandomize=True, database=None)
    @given(st.data())
    def ask(data):
        drawer = Drawer.of(data.draw, "Add", dtype, 14, Form.LONG)
        seen.update(drawer.values(drawer.shape()).ravel().tolist())

    ask()
    limits = np.iinfo(dtype)
    assert {limits.min, limits.max} <= seen
    for lacking in (2**24 + 1, 2**53 + 1):
        assert (lacking in seen) == (lacking <= limits.max)


def test_floats_meet_halves_and_equals_where_an_operator_decides_by_them():
    @settings(max_examples=1, derandomize=True, database=None)
    @given(st.data())
    def ask(data):
        for operator, steps in (("Round", True), ("TopK", True), ("Sin", False)):
            drawer = Drawer.of(data.draw, operator, "float32", 11, Form.LONG)
            x = drawer.values((2000,))
            halves = np.isin(x, np.arange(-2.5, 4))
            assert (halves.sum() > 100) == steps, operator

    ask()


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_a_dividend_may_be_negative_and_a_divisor_neither_0_nor_minus_1(operator):
    seen = []

    @settings(max_examples=3, derandomize=True, database=None)
    @given(st.data())
    def ask(data):
        drawer = Drawer.of(data.draw, operator, "int64", 14, Form.LONG)
        seen.append(FORMS[operator](drawer)[0])

    ask()
    assert all((x < 0).any() and not np.isin(z, (0, -1)).any() for x, z in seen)
    assert any((z < 0).any() for _, z in seen)


@pytest.mark.parametrize("form", list(Form)[1:], ids=str)
def test_every_operator_is_drawn_in_every_form_with_elements_and_no_surfeit(form):
    @settings(max_examples=1, derandomize=True, database=None, deadline=None)
    @given(st.data())
    def ask(data):
        for name, drawn in FORMS.items():
            dtype = "bool" if name in ("And", "Or", "Xor", "Not") else "int32"
            inputs, _ = drawn(Drawer.of(data.draw, name, dtype, 18, form))
            sizes = [x.size for x in inputs if x is not None]
            assert 0 < max(sizes) <= 2 * np.prod(form.value) + 70_000, name

    ask()


def test_a_bool_whose_byte_is_neither_0_nor_1_is_no_bool():
    odd = np.array([0, 1, 255], np.uint8).view(np.bool_)
    right = np.array([False, True, True])
    assert (odd == right).all()  # which is why bytes are looked at
    assert "the first at [2]: 255" in false_bytes(odd)
    assert not false_bytes(right)
    assert not false_bytes(np.array([2], np.uint8))
    assert "neither byte 0 nor 1" in difference(odd, right, "exact")
    assert "neither byte 0 nor 1" in far_from(odd, right)
