"""Sequences and optionals: lists and absences, held by the host."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import ran

from seamline.errors import KernelError, PlanError

f32 = np.float32
A, B, C = (np.array(v, f32) for v in ([1, 2], [3, 4], [5, 6]))


def run(
    body, outputs="y", inputs="float[2] a, float[2] b, float[2] c, int64 at", **feeds
):
    given = (
        {"a": A, "b": B, "c": C, "at": np.array(0)} if "float[2] a" in inputs else {}
    )
    return ran(f"g ({inputs}) => ({outputs}) {{ {body} }}", {**given, **feeds})


def check(got, wanted):
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_a_sequence_of_inputs_is_a_list_of_arrays_that_the_caller_owns():
    (y,) = run("y = SequenceConstruct(a, b, a)")
    assert isinstance(y, list)
    check(y, [A, B, A])
    y[0][...] = 0
    assert A[0] == 1


def test_values_that_providers_computed_go_into_sequences():
    (y,) = run("n = Neg(a) y = SequenceConstruct(n, b)")
    check(y, [-A, B])


@pytest.mark.parametrize(("at", "wanted"), [(0, A), (2, C), (-1, C), (-3, A)])
def test_a_position_counts_from_either_end(at, wanted):
    check(
        run("s = SequenceConstruct(a, b, c) y = SequenceAt(s, at)", at=np.array(at)),
        [wanted],
    )


@pytest.mark.parametrize("at", [3, -4])
def test_a_position_outside_is_refused_and_names_the_node(at):
    with pytest.raises(
        KernelError, match=rf"node 'look'.*position {at}.*sequence of 3"
    ):
        run(
            "s = SequenceConstruct(a, b, c) [look] y = SequenceAt(s, at)",
            at=np.array(at),
        )


@pytest.mark.parametrize(
    ("at", "wanted"), [(0, [C, A, B]), (2, [A, B, C]), (-1, [A, C, B]), (-2, [C, A, B])]
)
def test_inserting_puts_an_element_before_a_position(at, wanted):
    (y,) = run(
        "s = SequenceConstruct(a, b) y = SequenceInsert(s, c, at)", at=np.array(at)
    )
    check(y, wanted)


def test_inserting_without_a_position_appends_and_leaves_the_first_sequence_alone():
    s, y = run("s = SequenceConstruct(a) y = SequenceInsert(s, b)", "s, y")
    check(s, [A])
    check(y, [A, B])


def test_inserting_past_the_end_is_refused():
    with pytest.raises(KernelError, match="position 2"):
        run("s = SequenceConstruct(a) y = SequenceInsert(s, c, at)", at=np.array(2))


@pytest.mark.parametrize(("at", "wanted"), [(0, [B, C]), (1, [A, C]), (-1, [A, B])])
def test_erasing_leaves_out_an_element(at, wanted):
    (y,) = run(
        "s = SequenceConstruct(a, b, c) y = SequenceErase(s, at)", at=np.array(at)
    )
    check(y, wanted)


def test_erasing_without_a_position_leaves_out_the_last():
    check(run("s = SequenceConstruct(a, b) y = SequenceErase(s)")[0], [A])


def test_nothing_can_be_erased_from_an_empty_sequence():
    with pytest.raises(KernelError, match="the sequence is empty"):
        run("s = SequenceEmpty() y = SequenceErase(s)")


def test_an_empty_sequence_has_no_elements():
    y, n = run("y = SequenceEmpty() n = SequenceLength(y)", "y, n")
    assert y == []
    assert n.dtype == np.int64
    assert n == 0


def test_elements_are_joined_along_an_axis_or_stacked_along_a_new_one():
    s = "s = SequenceConstruct(a, b) "
    check(run(s + "y = ConcatFromSequence<axis = 0>(s)"), [np.concatenate([A, B])])
    check(
        run(s + "y = ConcatFromSequence<axis = 1, new_axis = 1>(s)"),
        [np.stack([A, B], 1)],
    )
    check(
        run(s + "y = ConcatFromSequence<axis = -1, new_axis = 1>(s)"),
        [np.stack([A, B], 1)],
    )


def test_joining_nothing_is_refused():
    with pytest.raises(KernelError, match="nothing to concatenate"):
        run("s = SequenceEmpty() y = ConcatFromSequence<axis = 0>(s)")


X = np.arange(10, dtype=f32).reshape(5, 2)


def split(attributes="", sizes=None, kind="int64[k]"):
    inputs = "float[5, 2] x" + (f", {kind} n" if sizes is not None else "")
    given = {"x": X} if sizes is None else {"x": X, "n": np.array(sizes)}
    names = "x" if sizes is None else "x, n"
    return run(f"y = SplitToSequence<{attributes}>({names})", inputs=inputs, **given)[0]


def test_a_split_without_sizes_gives_single_rows_that_keep_their_axis_or_not():
    check(split("axis = 0"), [X[i : i + 1] for i in range(5)])
    check(split("axis = 0, keepdims = 0"), list(X))
    check(split("axis = 1, keepdims = 0"), [X[:, 0], X[:, 1]])


def test_a_split_by_one_size_leaves_a_smaller_last_part():
    check(split("axis = 0", 2, "int64"), [X[:2], X[2:4], X[4:]])


def test_a_split_by_sizes_gives_those_and_none_is_a_part_too():
    check(split("axis = 0", [1, 0, 4]), [X[:1], X[1:1], X[1:]])


def test_keepdims_counts_for_nothing_where_sizes_are_given():
    check(split("axis = 0, keepdims = 0", [2, 3]), [X[:2], X[2:]])


@pytest.mark.parametrize(("sizes", "kind"), [([2, 2], "int64[k]"), (0, "int64")])
def test_sizes_that_cannot_be_are_refused(sizes, kind):
    with pytest.raises(KernelError, match="SplitToSequence"):
        split("axis = 0", sizes, kind)


ABSENT = "Optional<type: type_proto = float[2]>()"


def test_an_optional_holds_a_value_or_none():
    y, has = run("y = Optional(a) has = OptionalHasElement(y)", "y, has")
    check([y], [A])
    assert has
    y, has = run(f"y = {ABSENT} has = OptionalHasElement(y)", "y, has")
    assert y is None
    assert not has


def test_an_optional_is_unwrapped():
    check(run("o = Optional(a) y = OptionalGetElement(o)"), [A])


def test_an_empty_optional_cannot_be_unwrapped():
    with pytest.raises(KernelError, match=r"node 'open'.*the optional is empty"):
        run(f"o = {ABSENT} [open] y = OptionalGetElement(o)")


def test_an_optional_may_be_fed_as_none():
    text = "y = OptionalHasElement(o)"
    for value, wanted in ((None, False), (A, True)):
        (y,) = run(text, inputs="optional(float[2]) o", o=value)
        assert y == wanted


def test_a_sequence_may_be_fed_and_comes_back_as_a_copy():
    given = [A.copy(), B.copy()]
    (y,) = run("y = Identity(s)", inputs="seq(float[2]) s", s=given)
    check(y, given)
    assert not np.may_share_memory(y[0], given[0])


def test_a_map_runs_its_body_on_elements_in_step():
    y, n = run(
        """s = SequenceConstruct(a, b)
        y, n = SequenceMap<body = m (float[2] e, float[2] t) => (u, v) {
            u = Add(e, t) v = Neg(e) }>(s, c)""",
        "y, n",
    )
    check(y, [A + C, B + C])
    check(n, [-A, -B])


def test_an_absence_of_no_type_is_refused():
    with pytest.raises(PlanError, match="Missing required attribute 'type'"):
        run("y = Optional()")
