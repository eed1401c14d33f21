"""
Shapes and attributes that misfit one another: refused, or computed as they are defined.

Each operator starts from one valid node, of which every input is made larger, smaller,
empty or of another rank, every attribute one more or less, and every index absurd, one at
a time. A node that is run all the same must agree with onnxruntime or onnx.reference, and
may touch nothing outside of its values; see :mod:`tests.cpu.misfit_driving`.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator

import attrs
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tests.cpu.misfit_cases import CASES, Case
from tests.cpu.misfit_driving import Fenced, RefusedError, driven, each_in_a_fork
from tests.node_cases import check

from seamline.errors import SeamlineError
from seamline.pipeline import Pipeline

ort.set_default_logger_severity(4)


_FLAGS = (
    "ceil_mode", "count_include_pad", "do_rotary", "interleaved", "is_causal", "keepdims",
    "layout", "linear_before_reset", "training_mode", "transA", "transB",
)  # fmt: skip


@attrs.frozen(eq=False)
class Mutation:
    """A case with one thing changed."""

    label: str
    inputs: tuple[np.ndarray | None, ...]
    attributes: dict


def resized(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Give an array in neighbouring shapes."""
    yield "with an axis in front", x[None]
    yield "with an axis behind", x[..., None]
    if x.ndim:
        yield "without its first axis", x[0]
        yield "flat", x.reshape(-1)
    for axis, size in enumerate(x.shape):
        for new in sorted({0, max(size - 1, 0), size + 1} - {size}):
            shape = (*x.shape[:axis], new, *x.shape[axis + 1 :])
            picked = (
                np.take(x, np.arange(new) % size, axis)
                if size
                else np.ones(shape, x.dtype)
            )
            yield f"with {new} instead of {size} along axis {axis}", picked


def revalued(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Give an array of integers with one element that lies far off."""
    info = np.iinfo(x.dtype)
    for value in (-1, -1000, 1000, info.min, info.max):
        if info.min <= value <= info.max and x.size:
            changed = x.copy()
            changed.reshape(-1)[-1] = value
            yield f"that ends with {value}", changed


def neighbours(value) -> Iterator:
    """Give attributes near to one."""
    if isinstance(value, int):
        yield from {value - 1, value + 1, 0, -1} - {value}
    elif isinstance(value, list) and value and not isinstance(value[0], str):
        yield value[1:]
        yield [*value, value[-1]]
        for i, step in itertools.product(range(len(value)), (-1, 1)):
            yield [n + step if j == i else n for j, n in enumerate(value)]


def mutations(case: Case) -> list[Mutation]:
    """Give the case as it is, and then with one thing changed at a time."""
    found = [Mutation("as it is", case.inputs, case.attributes)]
    for index, x in enumerate(case.inputs):
        for what, changed in () if x is None else changes(case, index, x):
            inputs = (*case.inputs[:index], changed, *case.inputs[index + 1 :])
            found.append(Mutation(f"input {index} {what}", inputs, case.attributes))
    for name, value in case.attributes.items():
        others = [1 - value] if name in _FLAGS else neighbours(value)
        for other in case.choices.get(name, others):
            changed = {**case.attributes, name: other}
            found.append(Mutation(f"{name}={other}", case.inputs, changed))
    return found


def changes(case: Case, index: int, x: np.ndarray) -> Iterator:
    """Give what an input may become; None where it is left out."""
    for what, changed in resized(x):
        yield what, np.ascontiguousarray(changed).reshape(changed.shape)
    if index in case.indices:
        yield from revalued(x)
    if index:
        yield "left out", None


def model_of(case: Case, made: Mutation, fixed: bool, symbols: bool = False):
    """Make a model of one node; what is fixed are initializers."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(made.inputs)]
    while names and not names[-1]:
        names.pop()
    outputs = [
        f"y{i}" if i in case.outputs else "" for i in range(max(case.outputs) + 1)
    ]
    node = helper.make_node(
        case.op, names, outputs, name="node", domain=case.domain, **_written(made)
    )
    inputs, initializers = [], []
    for i, x in enumerate(made.inputs):
        if x is None:
            continue
        if i in case.host or (fixed and i):
            initializers.append(numpy_helper.from_array(x, f"x{i}"))
        else:
            dims = [f"d{i}_{k}" for k in range(x.ndim)] if symbols else x.shape
            kind = helper.np_dtype_to_tensor_dtype(x.dtype)
            inputs.append(helper.make_tensor_value_info(f"x{i}", kind, dims))
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_empty_tensor_value_info(n) for n in outputs if n],
        initializers,
    )  # fmt: skip
    imports = [helper.make_opsetid("", case.opset)]
    if case.domain:
        imports.append(helper.make_opsetid(case.domain, case.version))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _written(made: Mutation) -> dict:
    """Give attributes as ONNX writes them."""
    return {
        name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in made.attributes.items()
    }


def values_of(made: Mutation) -> dict[str, np.ndarray]:
    return {f"x{i}": x for i, x in enumerate(made.inputs) if x is not None}


def by_pipeline(case: Case, made: Mutation) -> list[np.ndarray]:
    """Run it with sizes that are known only when it is fed."""
    model = model_of(case, made, fixed=False, symbols=True)
    feeds = {i.name: values_of(made)[i.name] for i in model.graph.input}
    try:
        pipeline = Pipeline.open(model)
        try:
            return pipeline.run(feeds)
        finally:
            pipeline.close()
    except SeamlineError as error:
        raise RefusedError(str(error)) from error


def defined(case: Case, made: Mutation) -> list[np.ndarray] | None:
    """Give what onnxruntime makes of it, or onnx.reference, or None."""
    model = model_of(case, made, fixed=False)
    feeds = {i.name: values_of(made)[i.name] for i in model.graph.input}
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        return session.run(None, feeds)
    except Exception:
        pass
    if case.domain:
        return None
    try:
        onnx.checker.check_model(model)
        return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, feeds)]
    except Exception:
        return None


def _far(got: list[np.ndarray], want: list[np.ndarray], case: Case) -> str | None:
    """Say how outputs differ; codes may be one off where roundings differ."""
    if case.codes and got[0].shape == want[0].shape and got[0].dtype == want[0].dtype:
        return (
            None
            if np.abs(got[0].astype(int) - want[0]).max(initial=0) < 2
            else "codes differ"
        )
    return check(got, want, case.rtol, case.rtol)


def judged(case: Case, made: Mutation, where, skipped=()) -> str:
    """Run a mutation in all ways but some; say what is wrong, or nothing."""
    ways = {
        "fed": lambda: driven(model_of(case, made, False), values_of(made), at_end=True),
        "fixed": lambda: driven(model_of(case, made, True), values_of(made), at_end=True),
        "behind": lambda: driven(model_of(case, made, False), values_of(made), at_end=False),
        "sized at run": lambda: by_pipeline(case, made),
    }  # fmt: skip
    given, refusals = {}, []
    for name, way in ways.items():
        if (refusals and name != "sized at run") or name in skipped:
            continue
        where(name)
        try:
            given[name] = way()
        except RefusedError as refused:
            refusals.append(f"{name}: {refused}")
        except MemoryError as error:
            refusals.append(f"{name}: {error}")
        except Exception as error:
            return f"{name}: {type(error).__name__}: {error}"
    if not given:
        return (
            f"the node itself is refused: {refusals[0]}"
            if made.label == "as it is"
            else ""
        )
    where("oracle")
    want = defined(case, made)
    if want is None:
        shapes = [np.shape(y) for y in next(iter(given.values()))]
        harmless = all(0 in shape for shape in shapes) or case.lawful(made)
        return "" if harmless else f"{[*given]}: no oracle runs it, gave {shapes}"
    where("comparing")
    for name, got in given.items():
        if wrong := _far([np.asarray(y) for y in got], want, case):
            return f"{name}: {wrong}"
    return ""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_misfits_is_refused_or_computed_as_defined(case):
    every = mutations(case)

    def judge(index: int, where) -> str:
        # Opening a pipeline takes longest; every third node says enough of it.
        return judged(case, every[index], where, ("sized at run",) if index % 3 else ())

    said = each_in_a_fork(judge, len(every))
    wrong = [f"{every[i].label}: {why}" for i, why in said if why]
    assert not wrong, f"{len(wrong)} of {len(every)}:\n" + "\n".join(wrong)


def changed_case(name: str, label: str) -> tuple[Case, Mutation]:
    (case,) = (case for case in CASES if case.name == name)
    (made,) = (made for made in mutations(case) if made.label == label)
    return case, made


@pytest.mark.parametrize(
    ("name", "label", "says"),
    [
        ("LSTM", "input 4 that ends with 1000", r"sequence_lens of entry 1 is 1000, outside \[0, 3\]"),
        ("GRU/bidirectional", "input 4 that ends with -1", r"sequence_lens of entry 1 is -1, outside"),
        ("MaxUnpool", "input 1 that ends with 1000", "index 1000 is outside"),
        ("Gather", "input 1 that ends with 1000", "index 1000 is out of bounds"),
        ("RotaryEmbedding", "input 3 that ends with 1000", "position 1000 is outside"),
        ("GroupQueryAttention", "input 5 that ends with 1000", "seqlens_k of entry 1 is 1000"),
        ("LSTM", "input 1 with 15 instead of 16 along axis 1", r"its W is \[1, 15, 5\], not \[1, 16, 5\]"),
        ("TreeEnsemble", "leaf_targetids=[-1, 1, 0, 1]", "a leaf adds to target -1 of 2"),
        ("TreeEnsemble", "leaf_targetids=[1, 0, 1]", "leaf_targetids has 3 entries, not 4"),
        ("InstanceNormalization", "input 1 with 4 instead of 5 along axis 0", r"its input 1 is \[4\], not \[5\]"),
    ],
)  # fmt: skip
def test_a_refusal_names_what_does_not_fit(name, label, says):
    with pytest.raises(RefusedError, match=says):
        by_pipeline(*changed_case(name, label))


def test_what_touches_a_byte_behind_a_value_is_found_and_the_rest_still_judged():
    def judge(index: int, where) -> str:
        where("reading")
        fenced = Fenced(100, at_end=index < 2)
        if index < 2:
            ctypes.string_at(fenced.bytes.ctypes.data, 100 + index)
            return "read"
        fenced.rest[1][0] = 0
        return "broken" if fenced.broken() else "whole"

    said = dict(each_in_a_fork(judge, 3))
    assert (said[0], said[2]) == ("read", "broken")
    assert said[1].startswith("SIGSEGV while reading")
