"""What a table says of an operator that it has no kernel for."""

from __future__ import annotations

import pytest
from tests.core.toys import model

from seamline.constants import Constants
from seamline.graph import load
from seamline.kernel_table import KernelTable
from seamline.provider import Refusal, view_of

TABLE = KernelTable("mine")
TABLE.refuse("NonZero", "its size follows from data", "a size that is known")
TABLE.refuse("Relu", "never said: there is a kernel")


@TABLE.simple("Relu", dtypes=("float32",))
def relu(x):
    return x * (x > 0)


def answer(op, dtype="float"):
    graph = load(model(f"g ({dtype}[2] x) => (y) {{ y = {op}(x) }}"))
    return TABLE.find(view_of(graph.nodes[0], dict(graph.types), Constants(graph).get))


@pytest.mark.parametrize(
    ("op", "dtype", "said"),
    [
        ("NonZero", "float", "its size follows from data (accepts a size that is known)"),
        ("Abs", "float", "no kernel for Abs"),
        ("Relu", "int64", "input 0 is int64 (accepts float32)"),
    ],
)  # fmt: skip
def test_the_nearest_reason_is_given(op, dtype, said):
    found = answer(op, dtype)
    assert isinstance(found, Refusal)
    assert str(found) == said


def test_a_kernel_comes_before_what_would_be_said_without_one():
    assert answer("Relu").op_type == "Relu"
    assert TABLE.operators() == {"Relu"}
