"""
Every operator of ``cpu`` at every since-version that a model may ask for.

One-node models, from the forms of the version and from the suite's cases that are valid
in it too, are held to what the kit's judge says: the operator's definition, or oracles.
"""

import functools

import numpy as np
import onnx
import pytest
from tests.conformance.forms import forms_of
from tests.conformance.outcomes import PASS, plain, run_case
from tests.conformance.test_node_suite import by_operator

from seamline.versions import OLDEST_OPSET
from seamline_cpu.kernels import TABLE
from seamline_testing.oracles import by_onnxruntime, judge
from seamline_testing.suites import node_cases

CASES_EACH = 4  #: cases of the suite that are tried in another version
NEWEST = onnx.defs.onnx_opset_version()
#: Draws: their outputs are checked by their statistics, in the tests of the kernels.
DRAWN = frozenset(
    [
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    ]
)
#: Cases of the suite that onnxruntime reads in another way; the suite's values are tested.
READ_OTHERWISE = {
    "numerics/node/maxunpool_export_with_output_shape": "indices count in the shape that is asked for"
}


def log_of_sum(exp):
    """Give the logarithm of integers' sums along axis 1, cut off toward zero."""

    def define(node, x, axes=None):
        wide = x.astype(np.float64)
        total = (np.exp(wide) if exp else wide).sum(1)
        return np.trunc(np.log(total)).astype(x.dtype)

    return define


def p_norms(node, x):
    """Give the p-norm of each channel."""
    (p,) = [attribute.i for attribute in node.attribute if attribute.name == "p"]
    axes = tuple(range(2, x.ndim))
    found = np.linalg.norm(x.reshape(*x.shape[:2], -1).astype(np.float64), p, 2)
    return np.expand_dims(found, axes).astype(x.dtype)


def largest_of_bins(node, x, rois):
    """Give MaxRoiPool by its bins' real bounds; an element is in every bin it touches."""
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    bins, scale = given["pooled_shape"], np.float64(given["spatial_scale"])
    out = np.zeros((len(rois), x.shape[1], *bins), x.dtype)
    for n, (image, *corners) in enumerate(rois.astype(np.float64)):
        scaled = np.array(corners) * scale
        left, top, right, bottom = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled)
        for i, j in np.ndindex(*bins):
            found = [
                x[int(image), :, r, c]
                for r in range(x.shape[2])
                for c in range(x.shape[3])
                if touches(r - top, i, bins[0], max(bottom - top + 1, 1))
                and touches(c - left, j, bins[1], max(right - left + 1, 1))
            ]
            out[n, :, i, j] = np.max(found, 0) if found else 0
    return out


def touches(place, index, bins, extent):
    """Tell whether [place, place + 1) meets a bin; in whole numbers, times the bins."""
    return (place + 1) * bins > index * extent and place * bins < (index + 1) * extent


#: Where neither oracle has a kernel: integers' logarithms, and new versions.
DEFINITIONS = {
    "GlobalLpPool": p_norms,
    "MaxRoiPool": largest_of_bins,
    "ReduceLogSum": log_of_sum(exp=False),
    "ReduceLogSumExp": log_of_sum(exp=True),
}


@functools.cache
def schemas():
    """Give the schemas of each operator that a model of opset 7 or later may mean."""
    found = {}
    for operator in sorted(TABLE.operators()):
        if "::" in operator or operator in DRAWN:
            continue
        versions = {}
        for opset in range(OLDEST_OPSET, NEWEST + 1):
            try:
                schema = onnx.defs.get_schema(operator, opset)
            except onnx.defs.SchemaError:
                continue
            if not schema.deprecated:
                versions[schema.since_version] = schema
        if versions:
            found[operator] = versions
    return found


def cases_for(schema):
    """Give the suite's one-node cases of the operator that the version accepts too."""
    found = []
    for case in by_operator().get(schema.name, ()):
        if case.id in READ_OTHERWISE:
            continue
        (node,) = case.model.graph.node if len(case.model.graph.node) == 1 else (None,)
        given = {entry.domain: entry.version for entry in case.model.opset_import}
        if node is None or any(a.HasField("g") for a in node.attribute):
            continue
        if (
            onnx.defs.get_schema(schema.name, given[""]).since_version
            == schema.since_version
        ):
            continue
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        model.opset_import[0].version = max(schema.since_version, OLDEST_OPSET)
        try:
            onnx.checker.check_model(model, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            continue
        inputs, _ = case.data[0]
        names = [value.name for value in model.graph.input]
        found.append(
            (case.id, model, dict(zip(names, map(plain, inputs), strict=False)))
        )
        if len(found) == CASES_EACH:
            break
    return found


def models_for(schema):
    yield from cases_for(schema)
    for index, (node, opset, feeds) in enumerate(forms_of(schema)):
        yield f"form {index}", model_of(node, opset, feeds), feeds


def model_of(node, opset, feeds):
    inputs = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
        )
        for name, x in feeds.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = onnx.helper.make_graph([node], "one", inputs, outputs)
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10
    )
    return onnx.shape_inference.infer_shapes(model)


def expected(model, feeds):
    """Give (outputs, who said so): the kit's judge, and where it cannot say, see below."""
    right = judge(model, feeds)
    if not right.why_not:
        return right.wanted, right.judge
    (node,) = model.graph.node
    if node.op_type in DEFINITIONS:
        given = list(feeds.values())
        return [DEFINITIONS[node.op_type](node, *given)], "its definition"
    # onnx.reference reads some older versions by the newest one's rules
    return by_onnxruntime(model, feeds), "onnxruntime"


@functools.cache
def own_versions():
    """Give (operator, version) of the one-node cases that test_node_suite runs."""
    found = set()
    for case in node_cases():
        imports = {entry.domain: entry.version for entry in case.model.opset_import}
        for node in case.model.graph.node if len(case.model.graph.node) == 1 else ():
            if not node.domain:
                schema = onnx.defs.get_schema(node.op_type, imports[""])
                found.add((node.op_type, schema.since_version))
    return found


@pytest.mark.parametrize("operator", schemas())
def test_an_operator_is_right_at_each_of_its_versions(operator):
    problems = []
    for version, schema in schemas()[operator].items():
        compared = 0
        for name, model, feeds in models_for(schema):
            want, who = expected(model, feeds)
            compared += 1
            outcome = run_case(model, list(feeds.values()), want)
            if outcome.outcome is not PASS:
                text = onnx.printer.to_text(model)
                problems.append(
                    f"{operator}-{version}, {name}, {who}: {outcome}\n{text}"
                )
        if not compared and (operator, version) not in own_versions():
            problems.append(f"{operator}-{version}: nothing was compared")
    assert not problems, "\n".join(problems)
