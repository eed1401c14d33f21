"""
What is right, and who says so.

First the operator's definition in float64 or exact integers
(:mod:`seamline_testing.definitions`). Where there is none, what two of {onnxruntime,
onnx.reference, the stored outputs} agree on; none of the three is trusted alone while
another can be asked, since each is wrong somewhere. ``WRONG`` lists where that is known,
and there they are not asked.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import onnx

from seamline.provider import Array
from seamline.tensors import dtype_name
from seamline_testing.comparing import differences
from seamline_testing.definitions import NotDefinedError, defined
from seamline_testing.tolerances import class_of
from seamline_testing.values import plain, widened

__all__ = ["WRITTEN_ROUNDED", "WRONG", "Judgement", "judge"]

#: Oracle -> operator -> where it is known to depart from the standard (onnx 1.23,
#: onnxruntime 1.32), and how.
WRONG: dict[str, dict[str, str]] = {
    "onnx.reference": {
        "Softmax": "applies the rule of opset 13 to older models",
        "LogSoftmax": "applies the rule of opset 13 to older models",
        "Hardmax": "applies the rule of opset 13 to older models",
        "GatherElements": "wraps an index that is too large",
        "LayerNormalization": "sums in float16, against stash_type",
        "BatchNormalization": "takes opset 9 with one output for training",
    },
    "onnxruntime": {
        "MaxUnpool": "counts indices in the shape before output_shape",
    },
}
#: Operators whose stored values were written down to four digits.
WRITTEN_ROUNDED = frozenset({"AveragePool", "GridSample", "RoiAlign"})


@attrs.frozen(eq=False)
class Judgement:
    """
    What is right for one set of inputs.

    Attributes
    ----------
    judge
        ``definition``; the two that agreed, as in ``onnxruntime+stored``; or one, where
        the others cannot run the case.
    wanted
        The right outputs; empty where the oracles disagree.
    why_not
        Why nothing can be said, where nothing can.
    """

    judge: str
    wanted: Sequence[Any] = ()
    why_not: str = ""


def judge(
    model: onnx.ModelProto, feeds: Mapping[str, Any], stored: Sequence[Any] = ()
) -> Judgement:
    """
    Find the right outputs of a model.

    Parameters
    ----------
    stored
        What the case's author stored; empty for a case that is made here.
    """
    try:
        return Judgement("definition", defined(model, feeds, stored))
    except NotDefinedError:
        return _agreed(model, feeds, stored)


def _agreed(
    model: onnx.ModelProto, feeds: Mapping[str, Any], stored: Sequence[Any]
) -> Judgement:
    said: dict[str, Sequence[Any]] = {}
    refused: dict[str, str] = {}
    kind = class_of(node.op_type for node in model.graph.node)
    for name, ask in _oracles(model, stored):
        try:
            said[name] = [plain(value) for value in ask(model, feeds)]
        except Exception as error:  # three runtimes, each with errors of its own
            refused[name] = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
            continue
        for other, name_again in itertools.product(tuple(said)[:-1], (name,)):
            if _agree(said[other], said[name_again], kind):
                best = _finer(other, name_again, model)
                pair = "+".join(sorted((other, name_again)))
                return Judgement(pair, said[best])
    if len(said) == 1:
        ((name, wanted),) = said.items()
        return Judgement(name, wanted)
    if not said:
        return Judgement("", (), f"no oracle runs it: {refused}")
    return Judgement("", (), f"{' and '.join(sorted(said))} disagree")


def _oracles(
    model: onnx.ModelProto, stored: Sequence[Any]
) -> Iterator[tuple[str, Callable[..., Sequence[Any]]]]:
    operators = {node.op_type for node in model.graph.node}
    if stored:
        yield "stored", lambda model, feeds: stored
    for name, ask in (
        ("onnxruntime", by_onnxruntime),
        ("onnx.reference", by_reference),
    ):
        if not operators & WRONG[name].keys():
            yield name, ask


def _agree(one: Sequence[Any], other: Sequence[Any], kind: str) -> bool:
    """Tell whether two oracles say the same; to four digits where either rounded."""
    if not differences(one, other, kind):
        return True
    return not differences(one, other, "composed") or _near(one, other)


def _near(one: Any, other: Any) -> bool:
    """Tell whether floats agree to three digits, and all else exactly."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return _arrays_near(one, other)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_near(a, b) for a, b in pairs)
    return one is other


def _arrays_near(one: Array, other: Array) -> bool:
    if one.shape != other.shape or dtype_name(one.dtype) != dtype_name(other.dtype):
        return False
    if one.dtype.kind in "biuO":
        return bool(np.array_equal(one, other))
    close = np.allclose(widened(one), widened(other), 1e-3, 1e-4, equal_nan=True)
    return bool(close)


def _finer(one: str, other: str, model: onnx.ModelProto) -> str:
    """Prefer the stored values, except where they were written down to four digits."""
    rounded = {node.op_type for node in model.graph.node} & WRITTEN_ROUNDED
    names = sorted((one, other), key=lambda name: (name == "stored") == bool(rounded))
    return names[0]


def by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Sequence[Any]:
    """Run a model by onnxruntime on one thread, with nothing fused."""
    import onnxruntime

    if any(_is_foreign(value) for value in feeds.values()):
        raise TypeError("onnxruntime does not take NumPy's extension types")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    outputs: Sequence[Any] = session.run(None, dict(feeds))
    return outputs


def _is_foreign(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "V"


def by_reference(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Sequence[Any]:
    """Run a model by onnx.reference; its outputs get the types that the model declares."""
    from onnx.reference import ReferenceEvaluator

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        outputs = ReferenceEvaluator(model).run(None, dict(feeds))
    return [
        _declared(value, proto)
        for value, proto in zip(outputs, model.graph.output, strict=True)
    ]


def _declared(value: Any, proto: onnx.ValueInfoProto) -> Any:
    """Cast where the reference let NumPy widen a type."""
    kind = proto.type.tensor_type.elem_type
    if not isinstance(value, np.ndarray) or not kind or value.dtype.kind not in "iuf":
        return value
    return value.astype(onnx.helper.tensor_dtype_to_np_dtype(kind))
