"""
How a model that quantises its activations is compared with onnxruntime.

Two runtimes differ in a float's last digit. Where that float is next to the middle between
two codes, one rounds it up and the other down, which is 4e-3 of the tensor's range; layer
after layer the difference grows, until a rounded duration or a phase comes out otherwise.
Neither is wrong. So onnxruntime is run *forced*: what decides is taken out of the model, and
it is given our outputs of it in the place of its own. Between two such places floats agree
to rounding. What decides is checked by itself: by its definition, or in onnxruntime alone.

Beside quantisation, comparisons and rounding decide; so do the phase of a voice, of
thousands of turns in float32 before its sine is taken (a ``Resize`` makes it), and the
spectrum whose angle is taken where it is almost nothing (``STFT``).
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

import seamline

#: Operators that decide: their outputs jump where their input moves by a last digit.
COMPARING = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
}
ALONE = ("DynamicQuantizeLSTM", "Resize", "STFT")
DECIDING = ("DynamicQuantizeLinear", "Round", *ALONE, *COMPARING)
#: Largest difference of floats between two decisions, as a share of the largest value.
SHARE = 1e-4
#: Of a recurrent layer, which quantises its state in every step: some codes' worth.
RECURRENT_SHARE = 2e-2


def in_onnxruntime(model, feeds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    # Products of unsigned and signed bytes saturate without this where there is no VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    taken = {i.name: feeds[i.name] for i in session.get_inputs()}
    return dict(zip(names, session.run(None, taken), strict=True))


def assert_alike_where_forced(path, feeds, outputs, **session):
    """Compare what our session gave with onnxruntime's forced answer, and each decision."""
    model = onnx.load(path)
    deciding = [node for node in model.graph.node if node.op_type in DECIDING]
    assert deciding, "nothing decides: compare the answers themselves"
    finals = [o.name for o in model.graph.output]
    ours = _ours(model, deciding, feeds, session)
    for name, output in zip(finals, outputs, strict=True):
        # What is asked for beside them must not change the outputs.
        np.testing.assert_array_equal(ours[name], output, err_msg=name)
    theirs = in_onnxruntime(_forced(model, deciding, ours), feeds | ours)
    for name, value in theirs.items():
        _assert_share(ours[name], value, SHARE, name)
    for node in deciding:
        _check_decision(model, node, ours)


def _assert_share(got, want, share, name):
    assert (got.shape, got.dtype) == (want.shape, want.dtype), name
    most = float(np.abs(want.astype(np.float64)).max(initial=0))
    np.testing.assert_allclose(got, want, rtol=0, atol=share * most, err_msg=name)


def _ours(model, deciding, feeds, session):
    """Run our session with what decides, and what that reads, among the outputs."""
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    known = {o.name for o in asked.graph.output}
    fixed = {t.name for t in model.graph.initializer} | set(feeds)
    for node in deciding:
        for name in (*node.input, *node.output):
            if name and name not in known | fixed:
                asked.graph.output.append(onnx.ValueInfoProto(name=name))
                known.add(name)
    with seamline.InferenceSession(
        asked.SerializeToString(), fallback="error", **session
    ) as opened:
        names = [o.name for o in opened.get_outputs()]
        return dict(zip(names, opened.run(None, feeds), strict=True)) | dict(feeds)


def _forced(model, deciding, ours):
    """Replace what decides by inputs; the outputs are what was decided upon."""
    forced = onnx.ModelProto()
    forced.CopyFrom(model)
    gone = {node.name for node in deciding}
    kept = [node for node in forced.graph.node if node.name not in gone]
    del forced.graph.node[:]
    forced.graph.node.extend(kept)
    for node in deciding:
        forced.graph.input.extend(
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(ours[name].dtype),
                ours[name].shape,
            )
            for name in node.output
            if name
        )
    made = {name for node in kept for name in node.output}
    known = {o.name for o in forced.graph.output}
    for node in deciding:
        for name in node.input:
            if name in made - known:
                forced.graph.output.append(onnx.ValueInfoProto(name=name))
                known.add(name)
    return forced


def _check_decision(model, node, ours):
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    inputs = [constants.get(n, ours.get(n)) if n else None for n in node.input]
    x, output = inputs[0], ours[node.output[0]]
    if node.op_type in COMPARING:
        np.testing.assert_array_equal(output, COMPARING[node.op_type](*inputs))
    elif node.op_type == "Round":
        np.testing.assert_array_equal(output, np.rint(x))
    elif node.op_type == "DynamicQuantizeLinear":
        low, high = np.float32(min(x.min(), 0)), np.float32(max(x.max(), 0))
        scale = np.float32((high - low) / np.float32(255))
        zero = np.rint(np.clip(-low / scale, 0, 255))
        codes = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8)
        for name, want in zip(node.output, (codes, scale, zero), strict=True):
            np.testing.assert_array_equal(ours[name], want, err_msg=node.name)
    else:
        share = RECURRENT_SHARE if node.op_type == "DynamicQuantizeLSTM" else SHARE
        given = {n: v for n, v in zip(node.input, inputs, strict=True) if n}
        for name, want in in_onnxruntime(_alone(model, node, given), given).items():
            _assert_share(ours[name], want, share, f"{node.name} {name}")


def _alone(model, node, given):
    """Make a model of one node, whose constants stay so."""
    constants = [t for t in model.graph.initializer if t.name in given]
    fed = given.keys() - {t.name for t in constants}
    graph = helper.make_graph(
        [node], "one",
        [helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(given[name].dtype), given[name].shape,
        ) for name in fed],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
        constants,
    )  # fmt: skip
    return helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=model.ir_version
    )
