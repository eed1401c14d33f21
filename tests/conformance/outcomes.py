"""
Runs a model of ONNX's own suite over ``cpu`` and says what came of it.

An outcome is one of PASS, DECLINED (no provider claims some node), MISMATCH (another
value, type or shape than the suite expects) and ERROR (anything raised).
"""

from __future__ import annotations

import logging
import re

import attrs
import ml_dtypes
import numpy as np
import onnx

from seamline.errors import UnclaimedNodeError
from seamline.feeds import FeedCheck
from seamline.pipeline import Pipeline

logging.getLogger("onnx_ir").setLevel(logging.ERROR)

PASS, DECLINED, MISMATCH, ERROR = "PASS", "DECLINED", "MISMATCH", "ERROR"
PROVIDERS = [("cpu", {"num_threads": 2})]

#: Relative and absolute tolerance by element type; every other type is exact.
TOLERANCES = {
    "float64": (1e-6, 1e-7),
    "float32": (1e-4, 1e-5),
    "float16": (2e-3, 1e-3),
    "bfloat16": (1.6e-2, 1e-2),
    "complex64": (1e-3, 1e-5),
    "complex128": (1e-6, 1e-7),
}
#: Operators whose stored values were written down to four digits.
ROUNDED = frozenset({"AveragePool", "GridSample", "RoiAlign"})
FOUR_DIGITS = (1e-3, 1e-4)
#: Operators that move elements: the expected bits, whatever the type.
MOVES = frozenset(
    {
        "BatchToSpace", "BitCast", "Compress", "Concat", "ConcatFromSequence", "Constant",
        "ConstantOfShape", "DepthToSpace", "Expand", "EyeLike", "Flatten", "Gather",
        "GatherElements", "GatherND", "Identity", "Max", "MaxPool", "Min", "Neg",
        "OneHot", "Pad", "Reshape", "ReverseSequence", "Scatter", "ScatterElements",
        "ScatterND", "Sign", "Slice", "SpaceToDepth", "Split", "Squeeze", "TensorScatter",
        "Tile", "TopK", "Transpose", "Trilu", "Unique", "Unsqueeze", "Where",
    }
)  # fmt: skip


@attrs.frozen
class Outcome:
    """What came of one case; ``operators`` are those that were declined."""

    kind: str
    said: str = ""
    operators: tuple[str, ...] = ()


def plain(value):
    """Turn a value of the suite into what a session takes and gives."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if value is None else np.asarray(value)


def run_case(model, inputs, outputs, *, check=None, providers=PROVIDERS) -> Outcome:
    """Run once; ``check(got, want)`` says what is wrong, or None."""
    feeds = {
        one.name: plain(value)
        for one, value in zip(model.graph.input, inputs, strict=False)
    }
    try:
        with pipeline_of(model, providers) as pipeline:
            checked = FeedCheck(
                {
                    name: pipeline.graph.types.get(name)
                    for name in pipeline.graph.inputs
                },
                overridable=pipeline.graph.overridable,
            )
            got = pipeline.run(checked(feeds))
    except UnclaimedNodeError as error:
        operators = re.findall(r"^  node .* \(([^()]+)\)$", str(error), re.MULTILINE)
        return Outcome(DECLINED, str(error), tuple(sorted(set(operators))))
    except Exception as error:
        return Outcome(ERROR, f"{type(error).__name__}: {error}")
    operators = {node.op_type for node in model.graph.node}
    exact, rounded = operators <= MOVES, bool(operators & ROUNDED)
    want = [plain(value) for value in outputs]
    wrong = (
        check(got, want)
        if check
        else differences(got, want, exact=exact, rounded=rounded)
    )
    return Outcome(MISMATCH, wrong) if wrong else Outcome(PASS)


class pipeline_of:  # noqa: N801 - reads as a function
    """Open a pipeline for the length of a block."""

    def __init__(self, model, providers):
        self.model, self.providers = model, providers

    def __enter__(self):
        self.pipeline = Pipeline.open(self.model, providers=self.providers)
        return self.pipeline

    def __exit__(self, *_):
        self.pipeline.close()


def differences(got, want, *, exact=False, rounded=False):
    """Say how values differ from the expected ones, or give None."""
    if len(got) != len(want):
        return f"{len(got)} outputs, want {len(want)}"
    for index, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        wrong = _difference(ours, theirs, exact, rounded)
        if wrong:
            return f"output {index}: {wrong}"
    return None


def _difference(got, want, exact, rounded):
    if isinstance(want, list) or isinstance(got, list):
        if not isinstance(got, list) or not isinstance(want, list):
            return f"{type(got).__name__}, want {type(want).__name__}"
        return differences(got, want, exact=exact, rounded=rounded)
    if want is None or got is None:
        return None if want is got else f"{got!r}, want {want!r}"
    if want.dtype.kind in "OUS":
        want = want.astype(object)
        want = np.array(
            [s.decode() if isinstance(s, bytes) else s for s in want.ravel()] + [None]
        )[:-1].reshape(want.shape)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape}, want {want.dtype}{want.shape}"
    tolerance = TOLERANCES.get(want.dtype.name)
    if rounded and want.dtype == np.float32:
        tolerance = FOUR_DIGITS
    if tolerance is None or exact:
        same = _bits_equal(got, want)
    else:
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        same = np.allclose(
            got.astype(wide), want.astype(wide), *tolerance, equal_nan=True
        )
    return None if same else f"{_few(got)}, want {_few(want)}"


def _bits_equal(got, want):
    """Tell whether all elements are equal; NaN equals NaN, and 0.0 is -0.0."""
    if got.dtype.kind == "V" or got.dtype.type.__module__ == ml_dtypes.__name__:
        got, want = got.astype(np.float32), want.astype(np.float32)
    return np.array_equal(got, want, equal_nan=got.dtype.kind in "fc")


def _few(array):
    return f"{array.ravel()[:6].tolist()}"
