"""
Models of one ``MatMulNBits`` each, with weights of every form and rows of activations.

A form is bits by block by zero points, some with ``g_idx`` or a bias. Each is met with two
shapes: K a multiple of the block with an odd number of blocks, so that packed zero points
end within a byte; and K that ends within a block. N leaves every kind of remainder, and M
is each of those that kernels tell apart, among them none.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import attrs
import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from seamline.provider import Array
from seamline_testing.int4_limits import Product

__all__ = ["FORMS", "QUICK_FORMS", "Form", "Model", "models_of"]

_BLOCKS = (16, 32, 64, 128, 256, 512)
_ZEROS = ("none", "packed", "float")
_NUMPY = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
#: Columns of the two shapes: whole vectors and none, and remainders of all sizes.
_WIDTHS = ((64, 33), (16, 70), (48, 1), (129, 31), (80, 15), (32, 100))
_ROWS = ((1, 5, 64, 0), (2, 17, 1))


@attrs.frozen
class Form:
    """
    How weights are given.

    Attributes
    ----------
    zero
        ``none``, ``packed`` or ``float``.
    more
        ``""``, ``g_idx`` or ``bias``.
    """

    bits: int
    block: int
    zero: str
    more: str = ""

    def __str__(self) -> str:
        parts = [f"{self.bits} bits", f"block {self.block}", f"zero {self.zero}"]
        return ", ".join([*parts, *filter(None, [self.more])])

    @property
    def id(self) -> str:
        """Give it as a part of a check's id."""
        parts = (f"{self.bits}-bits", f"block-{self.block}", f"zero-{self.zero}")
        return "-".join(filter(None, [*parts, self.more]))


def _forms() -> Iterator[Form]:
    for bits in (4, 8, 2):
        for block in _BLOCKS:
            for zero in _ZEROS:
                yield Form(bits, block, zero)
        for zero in ("none", "packed"):
            yield Form(bits, 32, zero, "g_idx")
        yield Form(bits, 64, "packed", "bias")


FORMS = tuple(_forms())
QUICK_FORMS = (
    Form(4, 32, "none"), Form(4, 128, "packed"), Form(4, 32, "packed", "g_idx"),
    Form(8, 64, "packed", "bias"), Form(2, 16, "float"),
)  # fmt: skip


@attrs.frozen(eq=False)
class Model:
    """A model, and the products that it is asked for."""

    proto: onnx.ModelProto
    products: tuple[Product, ...]


def models_of(form: Form, level: int, dtype: str) -> tuple[Model, ...]:
    """Give the two models of a form; the same in every run."""
    number = zlib.crc32(form.id.encode())
    n_whole, n_rest = _WIDTHS[number % len(_WIDTHS)]
    shapes = (
        (n_whole, 3 * form.block, _ROWS[0]),
        (n_rest, 2 * form.block - form.block // 4 - 1, _ROWS[1]),
    )
    random = np.random.default_rng(number)
    return tuple(
        _model(form, level, _NUMPY[dtype], n, k, rows, random) for n, k, rows in shapes
    )


def _model(
    form: Form,
    level: int,
    kind: np.dtype[np.generic],
    n: int,
    k: int,
    rows: tuple[int, ...],
    random: np.random.Generator,
) -> Model:
    blocks, top = -(-k // form.block), 1 << form.bits
    codes = random.integers(0, top, (n, blocks * form.block))
    scales = random.uniform(0.01, 0.03, (n, blocks)).astype(kind)
    zeros, given = _zeros(form, n, blocks, kind, random)
    owners = np.arange(k) // form.block
    inputs = {"b": packed(codes, form.bits).reshape(n, blocks, -1), "s": scales}
    if given is not None:
        inputs["z"] = given
    if form.more == "g_idx":
        owners = inputs["g"] = random.permutation(owners).astype(np.int32)
    bias = np.zeros(n)
    if form.more == "bias":
        inputs["c"] = random.uniform(-0.5, 0.5, n).astype(kind)
        bias = inputs["c"].astype(np.float64)
    w = (codes[:, :k] - zeros[:, owners]) * scales.astype(np.float64)[:, owners]
    products = tuple(
        Product(random.standard_normal((m, k)).astype(kind), w.T, bias, form.block)
        for m in rows
    )
    return Model(_proto(form, level, kind, (n, k), inputs), products)


def _zeros(
    form: Form,
    n: int,
    blocks: int,
    kind: np.dtype[np.generic],
    random: np.random.Generator,
) -> tuple[Array, Array | None]:
    """Give zero points for the definition, and as the model has them."""
    top = 1 << form.bits
    if form.zero == "none":
        return np.full((n, blocks), top / 2), None
    if form.zero == "packed":
        each = 8 // form.bits
        every = random.integers(0, top, (n, -(-blocks // each) * each))
        return every[:, :blocks].astype(np.float64), packed(every, form.bits)
    # Eighths of at most half a code's range are exact in every type.
    given = (random.integers(0, 4 * top, (n, blocks)) / 8).astype(kind)
    return given.astype(np.float64), given


def packed(codes: Array, bits: int) -> Array:
    """Pack the last axis into bytes, low bits first."""
    each = 8 // bits
    made = np.zeros((*codes.shape[:-1], codes.shape[-1] // each), np.uint8)
    for place in range(each):
        made |= (codes[..., place::each] << (bits * place)).astype(np.uint8)
    return made


def _proto(
    form: Form,
    level: int,
    kind: np.dtype[np.generic],
    sizes: tuple[int, int],
    inputs: dict[str, Array],
) -> onnx.ModelProto:
    n, k = sizes
    element = helper.np_dtype_to_tensor_dtype(kind)
    names = [name if name in inputs else "" for name in ("b", "s", "z", "g", "c")]
    while not names[-1]:
        names.pop()
    node = helper.make_node(
        "MatMulNBits", ["x", *names], ["y"], "product", domain="com.microsoft", K=k, N=n,
        bits=form.bits, block_size=form.block, accuracy_level=level,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "one",
        [helper.make_tensor_value_info("x", element, ["rows", k])],
        [helper.make_tensor_value_info("y", element, ["rows", n])],
        [numpy_helper.from_array(array, name) for name, array in inputs.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)
