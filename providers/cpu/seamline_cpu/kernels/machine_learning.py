"""
Operators of ``ai.onnx.ml`` that prepare features: pick, scale, fill in, encode.

Where the text leaves a choice, it is onnxruntime's, whose models these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline_cpu.table import TABLE

__all__ = ["ML", "NUMERIC", "lookup"]

ML = "ai.onnx.ml"
NUMERIC = ("float32", "float64", "int64", "int32")
_NORMS = ("MAX", "L1", "L2")


def _refuse_vector(node: NodeView) -> str | None:
    kind = node.tensor(0)
    if kind is None or kind.shape is None or len(kind.shape) != 1:
        return None
    return "its input is a vector, for which inference and runtimes give other shapes"


@TABLE.simple(
    "ArrayFeatureExtractor",
    domain=ML,
    dtypes={0: (*NUMERIC, "string"), 1: ("int64",)},
    when=_refuse_vector,
)
def array_feature_extractor(x: Array, at: Array) -> Array:
    """Take columns of the last axis."""
    where = at.reshape(-1)
    width = x.shape[-1]
    if where.size and not 0 <= where.min() <= where.max() < width:
        raise ValueError(f"indices {where.min()} to {where.max()} of {width} columns")
    return x[..., where]


@TABLE.simple("Binarizer", domain=ML, dtypes=NUMERIC)
def binarizer(x: Array, *, threshold: float = 0.0) -> Array:
    """Give 1 above the threshold, and 0 elsewhere, for NaN too."""
    return (x > threshold).astype(x.dtype)


def _refuse_norm(node: NodeView) -> str | None:
    norm = node.attributes.get("norm", "MAX")
    return None if norm in _NORMS else f"norm is {norm!r}, not {', '.join(_NORMS)}"


@TABLE.simple("Normalizer", domain=ML, dtypes=NUMERIC, when=_refuse_norm)
def normalizer(x: Array, *, norm: str = "MAX") -> Array:
    """
    Divide by the largest value, the sum of sizes, or the length, along axis 1.

    A vector is one row. Where the divisor is 0 the values stay.
    """
    axis = min(1, x.ndim - 1)
    wide = x.astype(np.float64)
    if norm == "MAX":
        by = wide.max(axis=axis, keepdims=True, initial=-np.inf)
    elif norm == "L1":
        by = np.abs(wide).sum(axis=axis, keepdims=True)
    else:
        by = np.sqrt(np.square(wide).sum(axis=axis, keepdims=True))
    return (wide / np.where(by == 0, 1, by)).astype(np.float32)


def _per_feature(values: Sequence[float], what: str, width: int) -> Array:
    """Give one value, or one for each feature, to be broadcast."""
    if len(values) not in (1, width):
        raise ValueError(f"{what} has {len(values)} values for {width} features")
    return np.array(values, np.float64)


@TABLE.simple("Scaler", domain=ML, dtypes=NUMERIC)
def scaler(
    x: Array, *, offset: Sequence[float] = (), scale: Sequence[float] = ()
) -> Array:
    """Give (x - offset) scale, each one for all or one for each feature."""
    less = _per_feature(offset or (0.0,), "offset", x.shape[-1])
    by = _per_feature(scale or (1.0,), "scale", x.shape[-1])
    return ((x - less) * by).astype(np.float32)


@TABLE.simple("Imputer", domain=ML, dtypes=NUMERIC)
def imputer(
    x: Array,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Array:
    """Put values in the place of one value, which may be NaN."""
    whole = x.dtype.kind == "i"
    values: Sequence[Any] = imputed_value_int64s if whole else imputed_value_floats
    if len(values) not in (1, x.shape[-1]):
        kind = "int64s" if whole else "floats"
        raise ValueError(
            f"imputed_value_{kind} has {len(values)} values for {x.shape[-1]} features"
        )
    old = replaced_value_int64 if whole else replaced_value_float
    found = np.isnan(x) if old != old else x == np.asarray(old).astype(x.dtype)
    return np.where(found, np.array(values, x.dtype), x)


@TABLE.simple("FeatureVectorizer", domain=ML, dtypes=NUMERIC)
def feature_vectorizer(*inputs: Array, inputdimensions: Sequence[int] = ()) -> Array:
    """Join rows of features; each is cut, or filled up with zeros, to its size."""
    rows = [np.atleast_2d(x) for x in inputs]
    rows = [x.reshape(len(x), -1).astype(np.float32) for x in rows]
    if inputdimensions and len(inputdimensions) != len(rows):
        raise ValueError(
            f"{len(inputdimensions)} inputdimensions for {len(rows)} inputs"
        )
    for index, size in enumerate(inputdimensions):
        cut = rows[index][:, :size]
        rows[index] = np.pad(cut, [(0, 0), (0, size - cut.shape[1])])
    return np.concatenate(rows, axis=1)


def lookup(x: Array, table: dict[Any, int]) -> Array:
    """Give the index of each element in a table, or -1; all NaN are one key."""
    flat = x.reshape(-1)
    texts = flat.dtype == object
    keys = flat if texts else flat.tolist()
    nan = table.get("nan", -1) if not texts else -1
    # NaN equals nothing, itself neither: in a table of numbers it stands as a text.
    found = [nan if key != key else table.get(key, -1) for key in keys]
    return np.array(found, np.int64).reshape(x.shape)


def _refuse_categories(node: NodeView) -> str | None:
    given = [
        name for name in ("cats_int64s", "cats_strings") if name in node.attributes
    ]
    kind = node.tensor(0)
    if len(given) != 1:
        return f"it has {' and '.join(given) or 'no categories'}; one kind is needed"
    if kind is not None and (kind.dtype == "string") != (given[0] == "cats_strings"):
        return f"its input is {kind.dtype}, its categories {given[0]}"
    return None


@TABLE.kernel(
    "OneHotEncoder", domain=ML, dtypes=(*NUMERIC, "string"), when=_refuse_categories
)
def one_hot_encoder(call: Call) -> Run:
    """Mark each element's category along a new last axis; floats are cut to integers."""
    categories = call.attr("cats_int64s", ()) or call.attr("cats_strings", ())
    table = {key: index for index, key in enumerate(categories)}
    x, out = call.inputs[0], call.outputs[0]
    lenient = bool(call.attr("zeros", 1))

    def run() -> None:
        keys = x.astype(np.int64) if x.dtype.kind == "f" else x
        at = lookup(keys, table)
        if not lenient and at.size and at.min() < 0:
            raise ValueError("a value is no category, and zeros is 0")
        np.equal(at[..., None], np.arange(len(categories)), out=out, casting="unsafe")

    return run
