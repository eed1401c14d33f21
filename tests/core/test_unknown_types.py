"""What follows an operator whose type nobody tells is placed when that type is found."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from tests.core.toys import Toy, model, open_over

from seamline.errors import UnclaimedNodeError
from seamline.kernels import KernelTable
from seamline.verify import verify

f32 = np.float32
TEXT = """g (float[N] x) => (y, z) {
    [c] a = zz.Twice(x)
    [n] b = Neg(a)
    [m] y = Mul(b, b)
    [k] z = Neg(x)
}"""
X = np.array([1, -2, 3], f32)


def custom(dtype=f32):
    """Give a provider of one operator whose output's type it does not tell."""
    table = KernelTable("mine")
    table.simple("Twice", domain="zz")(lambda x: np.concatenate([x, x]).astype(dtype))
    return Toy(table)


def typed(name):
    """Give a provider of kernels that take float32 alone."""
    table = KernelTable(name)
    table.simple("Neg", dtypes=("float32",))(np.negative)
    table.simple("Mul", dtypes=("float32",))(np.multiply)
    return Toy(table)


def opened(*providers, **chosen):
    return closing(open_over(model(TEXT, more=', "zz" : 1'), *providers, **chosen))


def test_nodes_behind_it_run_on_whoever_takes_them_once_the_type_is_found():
    with opened(custom(), typed("a")) as pipeline:
        for _ in range(3):
            y, z = pipeline.run({"x": X})
            np.testing.assert_array_equal(y, np.tile(X * X, 2))
            np.testing.assert_array_equal(z, -X)
        program = pipeline.runner.latest()
        rest = program.rest.latest().plan
        assert verify(program.plan, pipeline.claims) == ()
        assert verify(rest, pipeline.claims) == ()
        assert [rest.choices[name].provider for name in ("n", "m")] == ["a", "a"]
        assert pipeline.assignments()["n"] == "later"
        assert pipeline.assignments()["k"] == "a"


def test_a_pin_on_such_a_node_is_kept():
    tables = typed("a"), typed("b")
    with opened(custom(), *tables, pins={"n": "b"}) as pipeline:
        np.testing.assert_array_equal(pipeline.run({"x": X})[0], np.tile(X * X, 2))
        rest = pipeline.runner.latest().rest.latest().plan
        assert rest.choices["n"].provider == "b"
        assert rest.choices["m"].provider == "a"


def test_a_type_that_nobody_takes_is_an_error_that_says_what_each_answered():
    said = pytest.raises(UnclaimedNodeError, match="input 0 is complex64")
    with opened(custom(np.complex64), typed("a")) as pipeline, said:
        pipeline.run({"x": X})


def test_the_explanation_says_that_the_node_waits_for_a_type():
    with opened(custom(), typed("a")) as pipeline:
        choice = pipeline.placement.choices["n"]
        assert choice.is_open
        assert "the type of 'a' is known" in choice.reason
        pipeline.run({"x": X})
        assert "DYNAMIC_SHAPE" in str(pipeline.explain())
