"""Scan: over slices of its inputs, in either direction, by batch at opset 8."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import model, ran

from seamline.errors import KernelError

f32 = np.float32


def check(got, *wanted):
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(one, other)


def vector(*values):
    return np.array(values, f32)


def run(text, **feeds):
    return ran(text, feeds, {"Add": "far"})


SCAN = """g (float[2] start, float[a, 2] x) => (last, sums) {
    last, sums = Scan<num_scan_inputs = 1 ATTRIBUTES, body = b (float[2] s, float[2] v) => (t, r) {
        t = Add(s, v) r = Identity(t) }>(start, x)
}"""
ROWS = np.array([[1, 10], [2, 20], [3, 30]], f32)


def scan(attributes, **feeds):
    return run(SCAN.replace(" ATTRIBUTES", attributes), start=vector(0, 0), **feeds)


def sums(rows):
    return np.cumsum(rows, axis=0, dtype=f32)


def test_a_scan_goes_along_the_first_axis():
    check(scan("", x=ROWS), vector(6, 60), sums(ROWS))


def test_a_scan_over_nothing_gives_its_start_and_no_rows():
    check(scan("", x=ROWS[:0]), vector(0, 0), np.zeros((0, 2), f32))


def test_a_scan_may_go_backwards():
    check(
        scan(", scan_input_directions = [1]", x=ROWS), vector(6, 60), sums(ROWS[::-1])
    )


def test_a_scans_rows_may_be_stacked_backwards():
    got = scan(", scan_output_directions = [1]", x=ROWS)
    check(got, vector(6, 60), sums(ROWS)[::-1])


@pytest.mark.parametrize("axis", [1, -1])
def test_a_scan_may_go_along_another_axis(axis):
    text = f", scan_input_axes = [{axis}], scan_output_axes = [{axis}]"
    source = SCAN.replace("float[a, 2] x", "float[2, a] x").replace(" ATTRIBUTES", text)
    got = run(source, start=vector(0, 0), x=ROWS.T.copy())
    check(got, vector(6, 60), sums(ROWS).T)


def test_a_scan_over_a_vector_hands_its_body_arrays_of_no_axes():
    text = """g (float start, float[a] x) => (last, sums) {
        last, sums = Scan<num_scan_inputs = 1, body = b (float s, float v) => (t, r) {
            t = Add(s, v) r = Neg(t) }>(start, x)
    }"""
    got = run(text, start=np.array(1, f32), x=vector(1, 2, 3))
    check(got, np.array(7, f32), vector(-2, -4, -7))


def test_scans_of_different_lengths_are_refused_by_name():
    text = """g (float[a] x, float[b] z) => (sums) {
        [pair] sums = Scan<num_scan_inputs = 2, body = b (float u, float v) => (r) {
            r = Add(u, v) }>(x, z)
    }"""
    with pytest.raises(KernelError, match=r"node 'pair'.*\[2, 3\]"):
        run(text, x=vector(1, 2, 3), z=vector(1, 2))


SCAN_8 = """g (int64[2] lengths, float[2, 2] start, float[2, 3, 2] x) => (last, sums) {
    last, sums = Scan<num_scan_inputs = 1 DIRECTION, body = b (float[2] s, float[2] v) => (t, r) {
        t = Add(s, v) r = Identity(t) }>(LENGTHS, start, x)
}"""
BATCH = np.stack([ROWS, -ROWS])


def scan_8(direction="", name="lengths", **feeds):
    text = SCAN_8.replace(" DIRECTION", direction).replace("LENGTHS", name)
    feeds.setdefault("lengths", np.array([3, 3]))
    return ran(
        model(text, opset=8), {"start": np.zeros((2, 2), f32), "x": BATCH, **feeds}
    )


def test_scan_8_goes_over_every_entry_of_the_batch():
    for name in ("lengths", '""'):
        got = scan_8(name=name)
        check(
            got,
            np.stack([vector(6, 60), vector(-6, -60)]),
            np.stack([sums(ROWS), -sums(ROWS)]),
        )


def test_scan_8_stops_at_each_entrys_length_and_fills_with_zeros():
    got = scan_8(lengths=np.array([1, 3]))
    first = np.vstack([sums(ROWS[:1]), np.zeros((2, 2), f32)])
    check(
        got, np.stack([vector(1, 10), vector(-6, -60)]), np.stack([first, -sums(ROWS)])
    )


def test_scan_8_may_go_backwards():
    got = scan_8(", directions = [1]")
    check(
        got,
        np.stack([vector(6, 60), vector(-6, -60)]),
        np.stack([sums(ROWS[::-1]), -sums(ROWS[::-1])]),
    )
