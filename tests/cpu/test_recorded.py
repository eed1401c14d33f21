"""What kernels of the CPU provider say of their recording, where they are registered."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from tests.core.toys import model

from seamline.kernels import KernelTable
from seamline.pipeline import Pipeline
from seamline_cpu.kernels import TABLE
from seamline_cpu.table import IN_PYTHON


def said(text, name):
    with contextlib.closing(Pipeline.open(model(text))) as pipeline:
        return pipeline.claims.offers(name)["cpu"].not_capturable


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("Add(x, x)", None),
        ("Tan(x)", IN_PYTHON),
        ("Identity(x)", None),
        ("Pow(x, x)", f"{IN_PYTHON}: input 1 is not known before it runs"),
        ("Cast<to=11>(x)", f"{IN_PYTHON}: it casts to float64"),
        ("Cast<to=7>(x)", None),
        ("Cast<to=1>(x)", None),
        ("ReduceProd(x)", IN_PYTHON),
        ("ReduceMax(x)", None),
    ],
)
def test_a_kernel_says_whether_it_is_made_of_commands(node, why):
    assert said(f"g (float[2,3] x) => (y) {{ [n] y = {node} }}", "n") == why


def test_the_reason_names_the_types_that_have_commands():
    text = "g (double[2,3] x) => (y) { [n] y = Mul(x, x) }"
    reason = f"{IN_PYTHON}: only float32, int32, int64 has compiled commands"
    assert said(text, "n") == reason


def test_kernels_of_one_operator_say_so_each_for_itself():
    kernels = TABLE.kernels("", "Dropout")
    assert [k.not_capturable == IN_PYTHON for k in kernels] == [False, False, True]


def test_a_table_says_it_for_kernels_that_say_nothing():
    table = KernelTable("mine", not_capturable="it waits")
    table.kernel("Neg")(lambda call: None)
    table.kernel("Abs", not_capturable=None)(lambda call: None)
    table.simple("Exp")(np.exp)
    found = {op: table.kernels("", op)[0].not_capturable for op in table.operators()}
    assert found == {"Neg": "it waits", "Abs": None, "Exp": "it waits"}
