"""Formulas on a device: powers, bits, activations, doubles, and words of four halves."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cuda.held import Case, hold
from tests.cuda.test_compiling_moves import FORMULAS

GIVEN = {
    "whole_powers": lambda spread: {
        "x": spread.integers(1, 9, 64),
        "p": spread.integers(1, 7, 64),
    },
    "bits": lambda spread: {
        "x": spread.integers(0, 1 << 32, 64, dtype=np.uint32),
        "z": spread.integers(0, 40, 64, dtype=np.uint32),
    },
    "powers": lambda spread: {
        "x": spread.uniform(0.5, 3, 64).astype(np.float32),
        "p": spread.uniform(0.5, 2, 64).astype(np.float32),
    },
    "doubles_by_functions": lambda spread: {"x": spread.uniform(-2, 2, 64)},
}
LOOSE = {"doubles_by_functions": 1e-7, "words": 2e-2, "powers": 1e-4}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_on_the_device_is_what_the_standard_says(name):
    given = GIVEN.get(name, lambda spread: {})
    hold(Case(FORMULAS[name], given, rtol=LOOSE.get(name, 2e-5)))


def test_words_of_four_halves_give_the_bits_of_numpy_over_many_blocks():
    text = """g (float16[300,2048] x, float16[2048] b) => (float16[300,2048] y)
        { t = Mul(x, b)  y = Add(t, x) }"""

    def want(feeds):
        return {"y": (feeds["x"] * feeds["b"]).astype(np.float16) + feeds["x"]}

    launched, _ = hold(Case(text, want=want), verify_capture=1)
    assert launched == ["elementwise_mul_add"]
