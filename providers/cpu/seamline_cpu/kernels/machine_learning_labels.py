"""LabelEncoder and CategoryMapper: from one kind of label to another, by a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import dtype_name
from seamline_cpu.kernels.machine_learning import ML, lookup
from seamline_cpu.table import TABLE

__all__: list[str] = []

_DTYPES = ("string", "int64", "float32", "int32", "int16", "float64")
#: Attributes' ending -> element type, and what stands for a value that has no label.
_KINDS: dict[str, tuple[Any, Any]] = {
    "strings": (object, "_Unused"),
    "int64s": (np.int64, -1),
    "floats": (np.float32, -0.0),
}


def _texts(values: Sequence[Any] | Array, dtype: Any) -> Array:
    found = np.empty(len(values), dtype)
    found[:] = values
    return found


def _listed(attributes: Mapping[str, Any], side: str) -> Array | None:
    """Give ``keys_*`` or ``values_*``, whichever of the kinds is given."""
    tensor = attributes.get(f"{side}_tensor")
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)
    for kind, (dtype, _) in _KINDS.items():
        if attributes.get(f"{side}_{kind}"):
            return _texts(attributes[f"{side}_{kind}"], dtype)
    return None


def _default(attributes: Mapping[str, Any], like: Array) -> Any:
    tensor = attributes.get("default_tensor")
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)[0]
    if like.dtype == object:
        return attributes.get("default_string", "_Unused")
    if like.dtype.kind == "i":
        return attributes.get("default_int64", -1)
    return attributes.get("default_float", -0.0)


def _ended(values: Array, default: Any) -> Array:
    """Give values with the default behind them."""
    found = np.empty(len(values) + 1, values.dtype)
    found[:-1], found[-1] = values, default
    return found


def _table(keys: Array) -> dict[Any, int]:
    """Give the index of each key; the last of equal ones, all NaN being one."""
    numbers = keys if keys.dtype == object else keys.tolist()
    return {"nan" if key != key else key: i for i, key in enumerate(numbers)}


@TABLE.simple("LabelEncoder", domain=ML, since=(1, 1), dtypes=("string", "int64"))
def label_encoder_of_classes(
    x: Array,
    *,
    classes_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Array:
    """Give the index of each text in a list, or the text at each index."""
    classes = _texts(classes_strings, object)
    if x.dtype == object:
        at = lookup(x, _table(classes))
        return np.where(at < 0, default_int64, at)
    known = (x >= 0) & (x < len(classes))
    return _ended(classes, default_string)[np.where(known, x, -1)]


def _refuse_lists(node: NodeView) -> str | None:
    keys = _listed(node.attributes, "keys")
    values = _listed(node.attributes, "values")
    if keys is None or values is None:
        return "it has no keys" if keys is None else "it has no values"
    if len(values) not in ({len(keys), 1} if node.since_version >= 4 else {len(keys)}):
        return f"it has {len(keys)} keys and {len(values)} values"
    kind = node.tensor(0)
    if kind is not None and kind.dtype != dtype_name(keys.dtype):
        return f"its input is {kind.dtype}, its keys are {dtype_name(keys.dtype)}"
    return None


@TABLE.kernel(
    "LabelEncoder", domain=ML, since=2, dtypes=_DTYPES, when=_refuse_lists,
)  # fmt: skip
def label_encoder(call: Call) -> Run:
    """Give each element's label, or the default; NaN may be a key."""
    attributes = call.view.attributes
    keys, values = _listed(attributes, "keys"), _listed(attributes, "values")
    if keys is None or values is None:
        raise ValueError("it has no keys or no values")
    table = _table(keys)
    if len(values) == 1:
        values = np.repeat(values, len(keys))
    return _relabel(call, table, values, _default(attributes, values))


def _relabel(call: Call, table: dict[Any, int], values: Array, default: Any) -> Run:
    x, out = call.inputs[0], call.outputs[0]
    labels = _ended(values, default)

    def run() -> None:
        out[...] = labels[lookup(x, table)]  # -1, for what has no label, is the last

    return run


def _refuse_pairs(node: NodeView) -> str | None:
    texts = node.attributes.get("cats_strings", ())
    numbers = node.attributes.get("cats_int64s", ())
    if len(texts) == len(numbers) > 0:
        return None
    return f"it has {len(texts)} cats_strings and {len(numbers)} cats_int64s"


@TABLE.kernel(
    "CategoryMapper", domain=ML, dtypes=("string", "int64"), when=_refuse_pairs
)
def category_mapper(call: Call) -> Run:
    """Give the number of each text, or the text of each number."""
    texts = _texts(call.attr("cats_strings"), object)
    return _two_ways(call, texts, np.array(call.attr("cats_int64s"), np.int64))


def _two_ways(call: Call, texts: Array, numbers: Array) -> Run:
    if call.inputs[0].dtype == object:
        return _relabel(call, _table(texts), numbers, call.attr("default_int64", -1))
    default = call.attr("default_string", "_Unused")
    return _relabel(call, _table(numbers), texts, default)
