"""RotaryEmbedding, of ONNX's own domain (23), of Seamline's before, and of onnxruntime's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seamline.attention_fitting import unfit_rotary
from seamline.attention_forms import refused_rotary, refused_rotary_contrib
from seamline.fitting import all_of
from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import NodeView, View
from seamline.tensors import INDICES
from seamline_cuda.attention_places import operand
from seamline_cuda.attention_rows import Rotation, RowsForm, rows_work
from seamline_cuda.elements import FLOATS
from seamline_cuda.works import Complaint, Work

__all__ = ["add_to"]

_CONTRIB = "com.microsoft"
_OWN = "seamline"


def _unfit_width(cos: int) -> Callable[[NodeView], str | None]:
    """Give the check of the tables' width and type; a width unknown yet fits."""

    def check(node: NodeView) -> str | None:
        x, table = node.tensor(0), node.tensor(cos)
        if x is None or table is None:
            return None
        if table.dtype not in FLOATS:
            return f"its tables are {table.dtype}, not {', '.join(FLOATS)}"
        if not x.is_sized or not table.is_sized:
            return None
        size, half = _size(node, x.sizes, table.sizes[-1]), table.sizes[-1]
        dim = int(node.attributes.get("rotary_embedding_dim", 0)) or size
        if 2 * half != dim or dim > size:
            return f"caches {half} wide do not rotate {dim} values of a head of {size}"
        return None

    return check


def _size(node: NodeView, shape: Sequence[int], half: int) -> int:
    if len(shape) == 4:
        return shape[3]
    heads = int(node.attributes.get("num_heads", 0))
    if heads:
        return shape[2] // heads
    return int(node.attributes.get("rotary_embedding_dim", 0)) or 2 * half


def _rotated(call: Call, cos: View, sin: View, positions: View) -> Sequence[Work]:
    x, y = call.inputs[0], call.outputs[0]
    half = cos.shape[-1]
    size = _size(call.view, x.shape, half)
    if len(x.shape) == 4:
        batch, heads, rows, _ = x.shape
    else:
        batch, rows, heads = x.shape[0], x.shape[1], x.shape[2] // max(size, 1)
    if not batch * heads * rows * size:
        return []
    tables = cos.shape[0] if positions is not None else cos.shape[0] * rows
    values: dict[str, float | Complaint] = {
        "cos": cos.address, "sin": sin.address, "half": half, "tables": tables,
        "interleaved": int(call.attr("interleaved", 0)),
        "outside": Complaint(f"a position is outside [0, {tables}) of the rotary tables"),
        "before": 0, "limit": 0,
    }  # fmt: skip
    kind, starts = "", "each"
    if positions is not None:
        kind = positions.kind.dtype
        one = positions.shape in ((1,), ()) and (batch, rows) != (1, 1)
        starts = "one" if one else "each"
        values |= {"positions": positions.address, "places": batch * rows}
    form = RowsForm(
        x.kind.dtype, y.kind.dtype, rotation=Rotation(cos.kind.dtype, kind, starts)
    )
    sizes = (batch, heads, rows, size)
    return [rows_work(form, operand(x, size), operand(y, size), sizes, values)]


def rotary_embedding(call: Call) -> Sequence[Work]:
    """Rotate by RotaryEmbedding-23; without positions every row has a line of its own."""
    return _rotated(call, call.inputs[1], call.inputs[2], call.input(3))


def contrib_rotary_embedding(call: Call) -> Sequence[Work]:
    """Rotate by onnxruntime's form: positions second, one number being where rows start."""
    return _rotated(call, call.inputs[2], call.inputs[3], call.inputs[1])


def add_to(table: KernelTable) -> None:
    """Add RotaryEmbedding of all domains."""
    because = "positions are read on the device, so one recording serves every step"
    for domain, since in (("", 23), (_OWN, 1)):
        table.kernel(
            "RotaryEmbedding", domain=domain, since=since, dtypes={0: FLOATS, 3: INDICES},
            when=all_of(refused_rotary, unfit_rotary(1, 2, 3), _unfit_width(1)),
            variant="rows", because=because, not_capturable=None,
        )(rotary_embedding)  # fmt: skip
    table.infer("RotaryEmbedding", domain=_OWN)(lambda node: [node.tensor(0)])
    table.kernel(
        "RotaryEmbedding", domain=_CONTRIB, dtypes={0: FLOATS, 1: INDICES},
        when=all_of(refused_rotary_contrib, unfit_rotary(2, 3, 1), _unfit_width(2)),
        variant="rows", because=because, not_capturable=None,
    )(contrib_rotary_embedding)  # fmt: skip
