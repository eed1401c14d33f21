"""Kernels of products and convolutions compile everywhere, within their listed registers."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.cuda.test_compiling import ARCHITECTURES, own_cache
from tests.cuda.test_compiling_rows import works_of

pytest.importorskip("numba_cuda", reason="the extra 'cuda' is not installed")

from seamline_cuda.addends import spread_kernel
from seamline_cuda.columns import folding_kernel, gathering_kernel
from seamline_cuda.compiler import compiled, ptx_of
from seamline_cuda.direct_convolution import direct_kernel, integer_kernel
from seamline_cuda.integer_texts import product_kernel
from seamline_cuda.local_response import response_kernel
from seamline_cuda.quantized_products import codes_kernel
from seamline_cuda.vector_texts import adding_kernel, columns_kernel, rows_kernel

__all__ = ["own_cache"]

RANGE, CODES = works_of(
    """g (float[3,70000] x) => (uint8[3,70000] y, float s, uint8 z)
    { y, s, z = DynamicQuantizeLinear(x) }"""
)[1:]
KERNELS = {
    "spread": spread_kernel("float16"),
    "gathered": gathering_kernel(2),
    "folded": folding_kernel("float16"),
    "direct_convolution": direct_kernel("float32", (1, 3, 3)),
    "direct_convolution_of_halves": direct_kernel("float16", (1, 3, 3)),
    "vector_rows": rows_kernel("float16", wide=True),
    "vector_rows_of_floats": rows_kernel("float32", wide=True),
    "vector_rows_one_by_one": rows_kernel("bfloat16", wide=False),
    "vector_columns": columns_kernel("float16", wide=True, cut=True),
    "vector_columns_of_floats": columns_kernel("float32", wide=True, cut=False),
    "vector_columns_one_by_one": columns_kernel("bfloat16", wide=False, cut=False),
    "vector_parts": adding_kernel("float16"),
    "integer_product": product_kernel(
        "int32", "int32", "int32", a_swapped=False, b_swapped=True, zeros=""
    ),
    "integer_product_of_long_ones": product_kernel(
        "uint64", "uint64", "uint64", a_swapped=True, b_swapped=False, zeros=""
    ),
    "integer_product_of_bytes": product_kernel(
        "uint8", "int8", "int32", a_swapped=False, b_swapped=False, zeros="ab"
    ),
    "direct_integers": integer_kernel("uint8", "int8", (1, 3, 3)),
    "direct_transposed": direct_kernel("float32", (1, 3, 3), transposed=True),
    "linear_codes": codes_kernel("uint8", has_bias=True),
    "quantized_range": RANGE.kernel,
    "dynamic_codes": CODES.kernel,
    "local_response": response_kernel("float16"),
}
LISTED = tomllib.loads(Path(__file__).with_name("registers_products.toml").read_text())


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_compiles_everywhere_within_its_listed_registers_and_spills_nothing(
    name,
):
    for major, minor in ARCHITECTURES:
        made = compiled(KERNELS[name], (major, minor))
        listed = LISTED[name][f"sm_{major}{minor}"]
        assert made.registers is not None
        assert made.spilled == 0
        assert listed - 8 <= made.registers <= listed


def test_the_table_lists_these_kernels_and_no_other():
    assert set(LISTED) == set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_none_of_them_computes_in_64_bits_by_accident(name):
    text = ptx_of(KERNELS[name], (9, 0)).decode()
    assert [line for line in text.splitlines() if ".f64" in line] == []
