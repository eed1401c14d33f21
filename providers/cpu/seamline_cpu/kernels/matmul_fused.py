"""Seamline's FusedMatMul: a product, a bias, a residual, and an activation of the sum."""

from __future__ import annotations

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.product_types import sum_of_product, unfit_sum_of_product
from seamline_cpu.kernels.epilogues import epilogue_of, unknown_activation
from seamline_cpu.kernels.matmul import bind_fused
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.table import TABLE

__all__: list[str] = []

OWN = "seamline"


@TABLE.kernel(
    "FusedMatMul", domain=OWN, dtypes={0: ("float32",), 1: ("float32",)},
    when=all_of(unfit_sum_of_product, unknown_activation), variant="tiles",
    because="a product's tiles, added to and activated while they are in the cache",
    not_capturable=OF_FLOAT32,
)  # fmt: skip
def fused_matmul(call: Call) -> Run:
    """
    Bind ``activation(A @ B + bias + residual)``.

    ``A`` has two axes or more and ``B`` two, swapped where ``transB`` is 1; ``bias`` is as
    long as a row of the output, ``residual`` of its shape, and both may be left out.
    ``activation`` and ``activation_params`` are those of Seamline's FusedConv.
    """
    b, out = call.inputs[1], call.outputs[0]
    b = b.T if call.attr("transB", 0) else b
    return bind_fused(call, call.inputs[0], b, out, epilogue_of(call, 3, call.input(2)))


TABLE.infer("FusedMatMul", domain=OWN)(sum_of_product)
