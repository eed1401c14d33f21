"""Kernels of attention compile everywhere, within their listed registers, arrays in them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.cuda.test_compiling import ARCHITECTURES, own_cache

pytest.importorskip("numba_cuda", reason="the extra 'cuda' is not installed")

from seamline_cuda import attention_caches, attention_rows, attention_scores
from seamline_cuda.attention_few import few_kernel
from seamline_cuda.attention_floats import floats_kernel
from seamline_cuda.attention_matrices import matrices_kernel
from seamline_cuda.attention_parts import parts_kernel
from seamline_cuda.attention_rows import Rotation, RowsForm
from seamline_cuda.attention_spans import Span
from seamline_cuda.attention_tiles import tiles_kernel
from seamline_cuda.attention_tiling import Tiling
from seamline_cuda.compiler import compiled, ptx_of

__all__ = ["own_cache"]

HALVES = ("float16",) * 4
GROUPED = Span("grouped", "int32")
TURNED = Rotation("float16", "int64", "first", "int32")
KERNELS = {
    "decode": few_kernel(Tiling(HALVES, 128, 128, 8, GROUPED, (1, 4, 4), split=True)),
    "decode_wide": few_kernel(
        Tiling(HALVES, 256, 256, 4, wide=(1, 4, 4), biases=("float16", "bool"), sink="float16")
    ),
    "prompt": tiles_kernel(
        Tiling(("float32",) * 4, 64, 64, 64, biases=("bool",), threads=256)
    ),
    "floats": floats_kernel(Tiling(("float32",) * 4, 32, 32, 32, biases=("float32",))),
    "floats_wide": floats_kernel(Tiling(("float32",) * 4, 128, 128, 32, GROUPED, split=True)),
    "matrices": matrices_kernel(
        Tiling(HALVES, 64, 64, 64, wide=(2, 2, 2), biases=("float16",))
    ),
    "matrices_wide": matrices_kernel(
        Tiling(HALVES, 128, 128, 64, GROUPED, (2, 2, 2), split=True)
    ),
    "parts": parts_kernel("float16", "float16")[0],
    "rows": attention_rows._kernel(
        RowsForm("float16", "float16", GROUPED, TURNED, weight="float16", behind=True, told=True)
    ),
    "cache": attention_caches._kernel("uint64", GROUPED)[0],
    "scores": attention_scores._kernel(HALVES[:3], Span("filled", "int64"), ("bool",), True, 3)[0],
}  # fmt: skip
LISTED = tomllib.loads(Path(__file__).with_name("registers_attention.toml").read_text())


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles_everywhere_within_its_listed_registers_and_spills(
    name,
):
    for major, minor in ARCHITECTURES:
        made = compiled(KERNELS[name], (major, minor))
        listed = LISTED[name][f"sm_{major}{minor}"]
        assert made.registers is not None
        assert made.spilled <= LISTED[name].get(f"spilled_sm_{major}{minor}", 0)
        assert listed - 8 <= made.registers <= listed


def test_the_table_lists_these_kernels_and_no_other():
    assert set(LISTED) == set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_arrays_of_a_thread_are_registers_and_nothing_is_computed_in_64_bits(name):
    text = ptx_of(KERNELS[name], (9, 0)).decode()
    lines = text.splitlines()
    assert [line for line in lines if ".f64" in line or ".local" in line] == []
