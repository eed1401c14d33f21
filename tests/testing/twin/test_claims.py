"""What the twin claims and refuses, and that it says why."""

from __future__ import annotations

import re

import pytest
from tests.testing.twin.rig import read

from seamline.errors import ProviderOptionError, UnknownProviderError
from seamline.provider import Claim, Refusal
from seamline_cpu.kernels import TABLE
from seamline_testing.twin.kernels import DTYPES, OPERATORS
from seamline_testing.twin.provider import Twin

PLACE = "g (float[2,3] x, int64[k] s) => (y) { y = "


@pytest.fixture(scope="module")
def twin():
    made = Twin()
    yield made
    made.close()


def asked(twin, text):
    spec, _, _ = read(text, twin)
    return twin.claim(spec.nodes[-1])


@pytest.mark.parametrize(
    ("op", "index"),
    [("Reshape", 1), ("Expand", 1), ("Tile", 1), ("Unsqueeze", 1), ("ReduceSum", 1)],
)
def test_shapes_axes_and_repeats_are_read_on_the_host(twin, op, index):
    assert asked(twin, f"{PLACE}{op}(x, s) }}").host_inputs == {index}


def test_starts_ends_axes_and_steps_of_a_slice_are_read_on_the_host(twin):
    assert asked(twin, f"{PLACE}Slice(x, s, s, s, s) }}").host_inputs == {1, 2, 3, 4}


def test_elementwise_kernels_offer_to_write_in_place_and_reshapes_to_be_views(twin):
    assert (0, 0) in asked(twin, f"{PLACE}Relu(x) }}").aliases
    assert set(asked(twin, f"{PLACE}Add(x, x) }}").aliases) == {(0, 0), (0, 1)}
    assert asked(twin, f"{PLACE}Reshape(x, s) }}").views == ((0, 0),)


def test_a_convolution_asks_for_workspace_once_its_sizes_are_known(twin):
    text = "g (float[1,4,9,9] x, float[4,4,3,3] w) => (y) { y = Conv(x, w) }"
    assert asked(twin, text).workspace_nbytes > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{PLACE}Celu(x) }}", "the twin has no kernel for Celu.*operators of ai.onnx"),
        (
            "g (double[2] x) => (y) { y = Neg(x) }",
            "input 0 is float64.*accepts float32",
        ),
        ("g (bfloat16[2] x) => (y) { y = Neg(x) }", "input 0 is bfloat16"),
        ("g (string[2] x) => (y) { y = Identity(x) }", "input 0 is string"),
        ("g (float[2] x) => (y) { y = Cast <to = 11> (x) }", "output 0 is float64"),
        (
            'g (float[2] x) => (y) { y = twin.Rude <act = "kill"> (x) }',
            "none of allocate",
        ),
        ("g (float[2] x) => (y) { y = twin.Odd(x) }", "no kernel for twin::Odd"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_what_would_be_right(twin, text, said):
    answer = asked(twin, text)
    assert isinstance(answer, Refusal)
    assert re.search(said, str(answer))


@pytest.mark.parametrize(
    "text", ["(y) { y = CumSum(x, s)", "(y, i) { y, i = TopK(x, s)"]
)
def test_a_kernel_whose_launch_waits_is_claimed_and_says_that_it_cannot_be_recorded(
    twin, text
):
    answer = asked(twin, f"g (float[2,3] x, int64[1] s) => {text} }}")
    assert isinstance(answer, Claim)
    assert answer.not_capturable.startswith("it waits for the device")


def test_a_kernel_that_finds_sizes_says_so_and_cannot_be_recorded(twin):
    answer = asked(twin, f"{PLACE}NonZero(x) }}")
    assert answer.sizes_at_run
    assert answer.not_capturable == "its output's size is found by running it"


def test_a_twin_of_what_has_no_table_of_kernels_is_refused():
    with pytest.raises(
        ProviderOptionError, match="'onnxruntime' has no table of kernels"
    ):
        Twin({"kernels": "onnxruntime"})
    with pytest.raises(UnknownProviderError, match="did you mean 'cpu'"):
        Twin({"kernels": "cp"})


def test_most_kernels_can_be_recorded_and_every_one_is_known_to_the_table(twin):
    assert {op for op in TABLE.operators() if "::" not in op} >= OPERATORS
    assert len(OPERATORS) >= 90
    assert asked(twin, f"{PLACE}Relu(x) }}").not_capturable is None
    assert "float64" not in DTYPES
