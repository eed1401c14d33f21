"""
com.microsoft MatMulBnb4: rows times weights of bitsandbytes' 4-bit types, NF4 and FP4.

The N by K matrix is flattened, and then cut into blocks of ``block_size`` elements, each with
the greatest magnitude for its scale. Of the two codes in a byte the first has the high
bits. Blocks have to lie within rows, or rows within blocks, for a row to be packed.
"""

from __future__ import annotations

import attrs
import numpy as np

from seamline.fitting import all_of, dims, unlike
from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import TensorType, ValueType
from seamline_cpu.binding import nothing
from seamline_cpu.kernels.matmul_nbits import bind_packed
from seamline_cpu.kernels.nbits_choice import choice, forced_by
from seamline_cpu.kernels.nbits_layout import Packed, Source, pack, packed_nbytes
from seamline_cpu.kernels.nbits_product import Product
from seamline_cpu.kernels.recorded import OF_FLOATS, constant, converted
from seamline_cpu.kernels.rows import threads_of
from seamline_cpu.table import TABLE

__all__: list[str] = []

_DOMAIN = "com.microsoft"
_DTYPES = ("float32", "float16", "bfloat16")
_TABLES = ("fp4", "nf4")  # by the attribute quant_type


def _form(view: NodeView) -> tuple[int, int, int]:
    """Give K, N and the block size."""
    k, n, block = (
        int(view.attributes.get(name, 0)) for name in ("K", "N", "block_size")
    )
    return k, n, block


def _refused(view: NodeView) -> str | None:
    k, n, block = _form(view)
    kind = view.attributes.get("quant_type", -1)
    if kind not in (0, 1):
        return f"quant_type is {kind}, not 0 (FP4) or 1 (NF4)"
    if not view.attributes.get("transB", 1):
        return "transB 0 is not implemented: codes lie along K"
    if min(k, n) < 1 or block < 1:
        return f"its weights are {n} rows of {k} in blocks of {block}"
    within = k % block == 0 and block % 16 == 0
    if not within and (block % k or k % 2):
        return f"blocks of {block} do not lie within rows of {k}, nor rows within them"
    return None


def _unfit(view: NodeView) -> str | None:
    (k, n, block), a = _form(view), dims(view, 0)
    if a is not None and (not a or (isinstance(a[-1], int) and a[-1] != k)):
        return f"its input is {list(a)}, and K is {k}"
    return unlike(view, 1, "weights", (n * k // 2,), (n * k // 2, 1)) or unlike(
        view, 2, "absmax", (-(-n * k // block),)
    )


@attrs.frozen(eq=False)
class _Rows:
    """Rows of codes, low bits first, each filled up to whole blocks."""

    codes: Array  # (N, K / 2)
    blocks: int
    width: int  # bytes of a block

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.codes), self.blocks, self.width

    def __getitem__(self, rows: slice, /) -> Array:
        some = self.codes[rows]
        made = np.zeros((len(some), self.blocks * self.width), np.uint8)
        made[:, : some.shape[1]] = (some >> 4) | (some << 4)
        return made.reshape(len(some), self.blocks, self.width)


def _source(view: NodeView, codes: Array, scales: Array) -> Source:
    k, n, block = _form(view)
    rows = codes.reshape(n, k // 2)
    if k % block == 0:
        whole, of_rows = k // block, scales.reshape(n, k // block)
        packed = _Rows(rows, whole, block // 2)
    else:
        of_rows = scales.reshape(-1)[np.arange(n) * k // block, None]
        packed = _Rows(rows, 1, -(-k // 32) * 16)
    table = _TABLES[view.attributes["quant_type"]]
    return Source(packed, of_rows, None, k, 4, table=table)


def _resident(view: NodeView) -> int:
    codes, scales = view.constant(1), view.constant(2)
    if codes is None or scales is None:
        return 0
    made = _source(view, codes, scales)
    n, blocks, width = made.codes.shape
    return packed_nbytes(n, blocks, 2 * width, 4, made.scales, None, made.table)


_PACKED = {1: "weight", 2: "scale", 3: "zero point", 4: "bias"}


@TABLE.kernel(
    "MatMulBnb4", domain=_DOMAIN, dtypes={0: _DTYPES, 1: ("uint8",), 2: _DTYPES},
    when=all_of(_refused, _unfit), resident=_resident,
    not_capturable=all_of(OF_FLOATS, constant(_PACKED), converted()),
)  # fmt: skip
def matmul_bnb4(call: Call) -> Run:
    """Bind MatMulBnb4: packed once where the weights are constant, else at every run."""
    if call.outputs[0].size == 0:
        return nothing
    variant = choice(0, forced_by(call.options), tiles=False).variant
    threads = threads_of(call.options)

    def make() -> Packed:
        return pack(_source(call.view, call.inputs[1], call.inputs[2]))

    def bound(packed: Packed) -> Run:
        return bind_packed(call, Product(packed, variant, False, threads), 3)

    if call.constant(1) is not None and call.constant(2) is not None:
        kind = call.attr("quant_type")
        return bound(call.resident(f"bnb4 {kind} {_form(call.view)}", (1, 2), make))
    return lambda: bound(make())()


@TABLE.infer("MatMulBnb4", domain=_DOMAIN)
def infer_matmul_bnb4(node: NodeView) -> list[ValueType | None]:
    """Give ``A``'s type with rows of N."""
    a = node.tensor(0)
    if a is None or not a.shape:
        return [None if a is None else TensorType(a.dtype, None)]
    return [TensorType(a.dtype, (*a.shape[:-1], node.attributes.get("N")))]
