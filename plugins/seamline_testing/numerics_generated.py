"""
Numerics over made inputs: one check for each operator and element type.

Hypothesis draws shapes, values, attributes and layouts from a fixed seed, so a check asks
the same in every run, and shrinks what fails. Then come a few examples in forms that small
draws do not reach, of many axes and of many elements, which are reported as they are. Only
operators with a definition are asked, and the definition alone judges.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import onnx
from onnx import helper

from seamline.provider import Array
from seamline.tensors import dtype_name, onnx_dtype
from seamline_testing.definitions import NotDefinedError, defined
from seamline_testing.holding import hold, settle_with
from seamline_testing.results import Check, Finding, Outcome
from seamline_testing.running import run_model
from seamline_testing.subject import Subject
from seamline_testing.tolerances import class_of
from seamline_testing.verdicts import Settled

__all__ = ["generated_checks", "model_of"]

_EXAMPLES, _QUICK = 20, 5
_DRAWN = "DRAWN"  #: the form whose shapes are drawn; see drawing.Form
_QUICK_TYPES = ("float32", "int64", "bool")
#: Types that are drawn; the operator's schema says which of them it takes.
_TYPES = (
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "bool", "string",
)  # fmt: skip
#: Operators whose result for integers the standard leaves to rounding.
_OF_FLOATS = frozenset(
    {"ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "Shrink"}
)
_LAYOUTS = ("plain", "plain", "transposed", "every other", "read-only", "backwards")


def generated_checks(subject: Subject, quick: bool) -> tuple[Check, ...]:
    """Give the checks; the quick form has three types and fewer examples."""
    from seamline_testing.drawn_forms import FORMS

    types = _QUICK_TYPES if quick else _TYPES
    found = []
    for operator in sorted(FORMS):
        schema = onnx.defs.get_schema(operator)
        accepted = _accepted(schema)
        for dtype in types:
            if dtype in accepted:
                forms = _forms(dtype, quick)
                run = functools.partial(_run, schema, dtype, forms)
                name = f"numerics/generated/{operator}/{dtype}"
                found.append(
                    Check(name, "numerics", run, operator, schema.since_version, dtype)
                )
    return tuple(found)


def _forms(dtype: str, quick: bool) -> dict[str, int]:
    """Give how many examples of each form a type is asked, by the form's name."""
    if quick:
        return {_DRAWN: _QUICK, "LONG": 2}
    examples = _EXAMPLES if dtype in _QUICK_TYPES else _EXAMPLES // 2
    # text is compared object by object
    return {_DRAWN: examples, "DEEP": 2, "LONG" if dtype == "string" else "LARGE": 2}


def _accepted(schema: onnx.defs.OpSchema) -> frozenset[str]:
    """Give the types that the schema takes and the definition covers."""
    # the condition of Where is its first input, its values the second
    given = schema.inputs[1 if schema.name == "Where" else 0]
    names = {said[len("tensor(") : -1] for said in given.types}
    spelt = {"float32": "float", "float64": "double"}
    taken = frozenset(name for name in _TYPES if spelt.get(name, name) in names)
    if schema.name in _OF_FLOATS:
        return taken & frozenset(_TYPES[:4])
    return taken - {"string"} if schema.name in ("NonZero", "Trilu") else taken


@attrs.define
class _Seen:
    """What became of a check's examples."""

    ran: int = 0
    alone: int = 0
    refused: str = ""
    tolerance: str = ""


def _run(
    schema: onnx.defs.OpSchema,
    dtype: str,
    forms: Mapping[str, int],
    subject: Subject,
) -> Finding:
    from hypothesis.errors import HypothesisException

    seen = _Seen()
    try:
        for form, examples in forms.items():
            _ask(schema, dtype, form, examples, subject, seen)
    except Settled as settled:
        return settled.finding
    except (HypothesisException, BaseExceptionGroup) as error:
        said = f"equal inputs give different results: {str(error).splitlines()[0]}"
        return Finding(Outcome.MISMATCH, said, "definition")
    return _whole(seen)


def _ask(
    schema: onnx.defs.OpSchema,
    dtype: str,
    form: str,
    examples: int,
    subject: Subject,
    seen: _Seen,
) -> None:
    """Ask a number of examples of one form; ends the check at what is wrong."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    all_of_them: Any = list(HealthCheck)
    # the shapes of a form stay what they are, so there is nothing to make smaller
    shrinking = (Phase.shrink,) if form == _DRAWN else ()

    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None,
        suppress_health_check=all_of_them, report_multiple_bugs=False,
        phases=(Phase.generate, *shrinking), print_blob=False,
    )  # fmt: skip
    @given(st.data())
    def ask(data: Any) -> None:
        _example(data.draw, schema, dtype, form, subject, seen)

    ask()


def _whole(seen: _Seen) -> Finding:
    if seen.ran:
        return Finding(Outcome.PASS, "", "definition", seen.tolerance)
    if seen.refused:
        return Finding(Outcome.DECLINED, seen.refused)
    if seen.alone:
        return Finding(Outcome.PASS_NOT_CLAIMED, "nothing of the provider's ran")
    return Finding(Outcome.NOT_RUN, "no example is defined")


def _example(
    draw: Any,
    schema: onnx.defs.OpSchema,
    dtype: str,
    form: str,
    subject: Subject,
    seen: _Seen,
) -> None:
    from hypothesis import strategies as st

    from seamline_testing.drawing import Drawer, Form
    from seamline_testing.drawn_forms import FORMS

    drawer = Drawer.of(draw, schema.name, dtype, schema.since_version, Form[form])
    inputs, attributes = FORMS[schema.name](drawer)
    feeds, names = _named(inputs)
    feeds = {
        name: laid_out(x, draw(st.sampled_from(_LAYOUTS))) for name, x in feeds.items()
    }
    outputs = (
        len(inputs[1].tolist())
        if schema.name == "Split" and inputs[1] is not None
        else 0
    )
    model = model_of(
        schema, names, feeds, attributes, outputs, symbolic=draw(st.booleans())
    )
    try:
        wanted = defined(model, feeds)
    except NotDefinedError:
        return
    before = {name: x.copy() for name, x in feeds.items()}
    answer = run_model(subject, model, feeds)
    if isinstance(answer, Finding):
        if answer.outcome is Outcome.DECLINED:
            seen.refused = seen.refused or answer.said
            return
        settle_with(
            attrs.evolve(answer, said=f"{_shown(feeds, attributes)}: {answer.said}")
        )
    _judge(
        subject, schema, dtype, answer.outputs, wanted, _shown(feeds, attributes), seen
    )
    for name, x in feeds.items():
        if x.dtype != object and x.tobytes() != before[name].tobytes():
            said = f"{_shown(feeds, attributes)}: the array fed as {name!r} was written"
            settle_with(Finding(Outcome.CONTRACT_VIOLATION, said))
    seen.ran += answer.took_part
    seen.alone += not answer.took_part


def _judge(
    subject: Subject,
    schema: onnx.defs.OpSchema,
    dtype: str,
    got: list[Any],
    wanted: list[Any],
    shown: str,
    seen: _Seen,
) -> None:
    check = f"numerics/generated/{schema.name}/{dtype}"
    wrong, tolerance = hold(subject, check, got, wanted, class_of([schema.name]))
    if wrong:
        said = f"{shown}: {wrong}"
        settle_with(Finding(Outcome.MISMATCH, said, "definition", tolerance))
    if not seen.tolerance or "(declared: " in tolerance:
        seen.tolerance = tolerance


def _named(inputs: list[Array | None]) -> tuple[dict[str, Array], list[str]]:
    """Name inputs; the same array given twice is one value that is read twice."""
    names: list[str] = []
    feeds: dict[str, Array] = {}
    for index, x in enumerate(inputs):
        if x is None:
            names.append("")
            continue
        same = next((name for name, other in feeds.items() if other is x), "")
        names.append(same or f"x{index}")
        feeds[names[-1]] = x
    return feeds, names


def laid_out(x: Array, layout: str) -> Array:
    """Give equal values in another layout."""
    if layout == "transposed" and x.ndim:  # else a scalar would become a vector
        return np.ascontiguousarray(x.T).T
    if layout == "every other" and x.ndim:
        wide = np.repeat(x, 2, axis=-1)
        return wide[..., ::2]
    if layout == "backwards" and x.ndim:
        return np.ascontiguousarray(x[::-1])[::-1]
    if layout == "read-only":
        held = x.copy()
        held.flags.writeable = False
        return held
    return x


def model_of(
    schema: onnx.defs.OpSchema,
    names: list[str],
    feeds: Mapping[str, Array],
    attributes: Mapping[str, Any],
    outputs: int = 0,
    *,
    symbolic: bool = False,
) -> onnx.ModelProto:
    """Make a one-node model; its outputs have the types that ONNX infers."""
    count = outputs or schema.min_output
    made = [f"y{index}" for index in range(count)]
    node = helper.make_node(schema.name, names, made, **attributes)
    known = schema.attributes.keys()
    kept = [a for a in node.attribute if a.name in known]
    del node.attribute[:]
    node.attribute.extend(kept)
    values = [
        helper.make_tensor_value_info(
            name,
            int(onnx_dtype(dtype_name(x.dtype))),
            [f"{name}_{axis}" for axis in range(x.ndim)] if symbolic else x.shape,
        )
        for name, x in feeds.items()
    ]
    graph = helper.make_graph(
        [node], "one", values, [onnx.ValueInfoProto(name=name) for name in made]
    )
    opset = onnx.defs.onnx_opset_version()
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports)
    return onnx.shape_inference.infer_shapes(model)


def _shown(feeds: Mapping[str, Array], attributes: Mapping[str, Any]) -> str:
    kinds = ", ".join(f"{name} {_described(x)}" for name, x in feeds.items())
    return f"{kinds} {dict(attributes)}" if attributes else kinds


def _described(x: Array) -> str:
    """Give type and shape, and the elements of what may be axes or bounds."""
    said = f"{dtype_name(x.dtype)}{list(x.shape)}"
    return f"{said}={x.tolist()}" if x.dtype == np.int64 and x.size <= 4 else said
