"""LSTM, GRU and RNN against ONNX's equations in float64, row by row, and onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper
from tests.node_cases import Kept, run_node, view_of_node

from seamline.kernels import Call
from seamline.provider import Refusal
from seamline_cpu.kernels import TABLE

RNG = np.random.default_rng(3)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step_of(op, x, h, c, w, r, b, p, linear=0, coupled=0):
    """Take one step of one row, as the operator's text writes it, in float64."""
    size = r.shape[1]
    wb, rb = b[: len(b) // 2], b[len(b) // 2 :]
    if op == "RNN":
        return np.tanh(w @ x + r @ h + wb + rb), c
    if op == "GRU":
        wx, part = w @ x + wb, [slice(k * size, (k + 1) * size) for k in range(3)]
        z = sigmoid(wx[part[0]] + r[part[0]] @ h + rb[part[0]])
        reset = sigmoid(wx[part[1]] + r[part[1]] @ h + rb[part[1]])
        if linear:
            new = np.tanh(wx[part[2]] + reset * (r[part[2]] @ h + rb[part[2]]))
        else:
            new = np.tanh(wx[part[2]] + r[part[2]] @ (reset * h) + rb[part[2]])
        return (1 - z) * new + z * h, c
    i, o, f, g = np.split(w @ x + r @ h + wb + rb, 4)
    pi, po, pf = np.split(p, 3)
    i = sigmoid(i + pi * c)
    f = 1 - i if coupled else sigmoid(f + pf * c)
    c = f * c + i * np.tanh(g)
    return sigmoid(o + po * c) * np.tanh(c), c


def defined(
    op, x, w, r, b=None, lens=None, h0=None, c0=None, p=None, backwards=(False,), **kind
):
    """Give Y and the last states, time first."""
    count, batch = x.shape[:2]
    ways, size = r.shape[0], r.shape[2]
    y, h_last, c_last = (
        np.zeros(s) for s in [(count, ways, batch, size), *[(ways, batch, size)] * 2]
    )
    for d in range(ways):
        for row in range(batch):
            h = np.zeros(size) if h0 is None else h0[d, row]
            c = np.zeros(size) if c0 is None else c0[d, row]
            end = count if lens is None else lens[row]
            for t in reversed(range(end)) if backwards[d] else range(end):
                h, c = step_of(
                    op, x[t, row], h, c, w[d], r[d],
                    np.zeros(2 * w.shape[1]) if b is None else b[d],
                    np.zeros(3 * size) if p is None else p[d], **kind,
                )  # fmt: skip
                y[t, d, row] = h
            h_last[d, row], c_last[d, row] = h, c
    return y, h_last, c_last


def drawn(op, count=5, batch=2, inputs=3, size=4, ways=1, optional="bhcp", lens=None):
    """Draw inputs by name; those not named in ``optional`` are None."""
    n = GATES[op] * size
    shapes = {
        "x": (count, batch, inputs),
        "w": (ways, n, inputs),
        "r": (ways, n, size),
        "b": (ways, 2 * n),
    }
    shapes |= {
        "h": (ways, batch, size),
        "c": (ways, batch, size),
        "p": (ways, 3 * size),
    }
    made = {k: RNG.normal(size=s).astype(np.float32) for k, s in shapes.items()}
    for k in "bhcp":
        if k not in optional or (op != "LSTM" and k in "cp"):
            made[k] = None
    made["lens"] = None if lens is None else np.array(lens, np.int32)
    return made


ORDER = ("x", "w", "r", "b", "lens", "h", "c", "p")


def node_of(op, given, outputs=None, **attributes):
    count = 8 if op == "LSTM" else 6
    names = [k if given[k] is not None else "" for k in ORDER[:count]]
    while not names[-1]:
        names.pop()
    out = outputs or (["y", "yh", "yc"] if op == "LSTM" else ["y", "yh"])
    return helper.make_node(
        op, names, out, hidden_size=given["r"].shape[2], **attributes
    )


def run_here(
    op,
    given,
    want,
    layout=0,
    outputs=None,
    constant=(1, 2, 3),
    opset=None,
    **attributes,
):
    node = (
        node_of(op, given, outputs, layout=layout, **attributes)
        if layout
        else node_of(op, given, outputs, **attributes)
    )
    inputs = [given[k] for k in ORDER[: len(node.input)]]
    return run_node(TABLE, node, inputs, want, constant=constant, opset=opset)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("way", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("optional", ["", "b", "bh", "bhc", "bhcp", "p"])
@pytest.mark.parametrize("lens", [None, (5, 2), (0, 5)])
def test_every_optional_input_enters_as_the_equations_say(op, way, optional, lens):
    back = {"forward": (False,), "reverse": (True,)}.get(way, (False, True))
    given = drawn(op, ways=len(back), optional=optional, lens=lens)
    wide = {k: None if v is None else v.astype(np.float64) for k, v in given.items()}
    want = defined(
        op, wide["x"], wide["w"], wide["r"], wide["b"], lens, wide["h"], wide["c"],
        wide["p"], back,
    )[: 3 if op == "LSTM" else 2]  # fmt: skip
    want = [v.astype(np.float32) for v in want]
    for constant in ((), (1, 2, 3)):
        got = run_here(op, given, want, direction=way, constant=constant)
        for g, v in zip(got, want, strict=True):
            np.testing.assert_allclose(g, v, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("batch", [1, 2, 12])
def test_batch_first_is_the_same_numbers_turned(op, batch):
    given = drawn(op, batch=batch, ways=2, optional="bh")
    wide = {k: None if v is None else v.astype(np.float64) for k, v in given.items()}
    y, h, c = defined(
        op,
        wide["x"],
        wide["w"],
        wide["r"],
        wide["b"],
        None,
        wide["h"],
        None,
        None,
        (False, True),
    )
    want = [y.transpose(2, 0, 1, 3), h.transpose(1, 0, 2), c.transpose(1, 0, 2)][
        : 3 if op == "LSTM" else 2
    ]
    want = [np.ascontiguousarray(v, np.float32) for v in want]
    given = given | {
        "x": given["x"].transpose(1, 0, 2),
        "h": given["h"].transpose(1, 0, 2),
    }
    got = run_here(op, given, want, layout=1, direction="bidirectional")
    for g, v in zip(got, want, strict=True):
        np.testing.assert_allclose(g, v, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("asked", [["y"], ["", "yh"], ["", "", "yc"], ["y", "", "yc"]])
@pytest.mark.parametrize("size", [4, 37])
def test_outputs_that_are_not_asked_for_change_nothing(asked, size):
    given = drawn("LSTM", size=size, optional="b")
    wide = {k: None if v is None else v.astype(np.float64) for k, v in given.items()}
    every = defined("LSTM", wide["x"], wide["w"], wide["r"], wide["b"])
    want = [
        v.astype(np.float32) if n else None for v, n in zip(every, asked, strict=False)
    ]
    got = run_here("LSTM", given, want, outputs=asked)
    for g, v in zip(got, want, strict=True):
        assert (g is None) == (v is None)
        if v is not None:
            np.testing.assert_allclose(g, v, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("linear", [0, 1])
def test_gru_resets_before_or_after_its_product(linear):
    given = drawn("GRU", optional="bh")
    wide = {k: None if v is None else v.astype(np.float64) for k, v in given.items()}
    want = defined(
        "GRU",
        wide["x"],
        wide["w"],
        wide["r"],
        wide["b"],
        None,
        wide["h"],
        linear=linear,
    )[:2]
    want = [v.astype(np.float32) for v in want]
    got = run_here("GRU", given, want, linear_before_reset=linear)
    for g, v in zip(got, want, strict=True):
        np.testing.assert_allclose(g, v, rtol=1e-5, atol=1e-5)


def test_coupled_gates_forget_what_they_take_in():
    given = drawn("LSTM", optional="b")
    wide = {k: None if v is None else v.astype(np.float64) for k, v in given.items()}
    want = [
        v.astype(np.float32)
        for v in defined("LSTM", wide["x"], wide["w"], wide["r"], wide["b"], coupled=1)
    ]
    got = run_here("LSTM", given, want, input_forget=1)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)


ACTIVATIONS = [
    ("RNN", {"activations": ["Relu"]}),
    ("RNN", {"activations": ["Affine"], "activation_alpha": [0.7], "activation_beta": [0.1]}),
    ("RNN", {"activations": ["LeakyRelu"], "activation_alpha": [0.2]}),
    ("RNN", {"activations": ["HardSigmoid"]}),
    ("RNN", {"activations": ["ThresholdedRelu"], "activation_alpha": [0.3]}),
    ("RNN", {"activations": ["Elu"], "activation_alpha": [0.5]}),
    ("RNN", {"activations": ["Softsign"]}),
    ("RNN", {"activations": ["Softplus"]}),
    ("RNN", {"activations": ["ScaledTanh"], "activation_alpha": [0.5], "activation_beta": [1.5]}),
    ("GRU", {"activations": ["HardSigmoid", "LeakyRelu"], "activation_alpha": [0.3, 0.05], "activation_beta": [0.4]}),
    ("GRU", {"clip": 0.4}),
    ("LSTM", {"activations": ["Sigmoid", "Relu", "Softsign"]}),
    ("LSTM", {"activations": ["HardSigmoid", "Tanh", "Affine"], "activation_alpha": [0.3, 0.6], "activation_beta": [0.4, 0.2]}),
    ("LSTM", {"clip": 0.4}),
    ("RNN", {"clip": 0.3}),
]  # fmt: skip


def in_onnxruntime(node, inputs):
    names = [n for n in node.input if n]
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
         for n, x in zip(names, inputs, strict=True)],
        [helper.make_empty_tensor_value_info(n) for n in node.output],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
    model.ir_version = 8
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(zip(names, inputs, strict=True)))


@pytest.mark.parametrize(("op", "attributes"), ACTIVATIONS)
def test_activations_and_clips_are_those_of_onnxruntime(op, attributes):
    given = drawn(op, optional="bh")
    node = node_of(op, given, **attributes)
    want = in_onnxruntime(
        node, [given[k] for k in ORDER[: len(node.input)] if given[k] is not None]
    )
    got = run_here(op, given, want, **attributes)
    for g, v in zip(got, want, strict=True):
        np.testing.assert_allclose(g, v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("op", GATES)
def test_other_floats_and_opsets(op, dtype):
    given = drawn(op, optional="b")
    given = {k: None if v is None else v.astype(dtype) for k, v in given.items()}
    wide = {k: None if v is None else v.astype(np.float64) for k, v in given.items()}
    want = defined(op, wide["x"], wide["w"], wide["r"], wide["b"])[
        : 3 if op == "LSTM" else 2
    ]
    tolerance = 5e-3 if dtype == "float16" else 1e-12
    for opset in (7, 14, 22):
        got = run_here(op, given, [v.astype(dtype) for v in want], opset=opset)
        for g, v in zip(got, want, strict=True):
            np.testing.assert_allclose(
                g.astype(np.float64), v, rtol=tolerance, atol=tolerance
            )


def test_an_unknown_activation_is_refused_by_name():
    given = drawn("RNN", optional="")
    answer = run_here("RNN", given, [None, None], activations=["Swish"])
    assert isinstance(answer, Refusal)
    assert "Swish" in str(answer)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("size", [1, 7, 8, 31, 128])
def test_hidden_sizes_that_fill_no_panel(op, batch, size):
    given = drawn(op, count=3, batch=batch, size=size, optional="bhc")
    # Rows of norm 1: longer ones would enlarge every rounding from step to step.
    given["r"] /= np.float32(size**0.5)
    want = wanted(op, given)
    for g, v in zip(run_here(op, given, want), want, strict=True):
        np.testing.assert_allclose(g, v, rtol=2e-5, atol=2e-5)


def wanted(op, given, **kind):
    """Give the definition's values for drawn inputs."""
    wide = {k: None if v is None else v.astype(np.float64) for k, v in given.items()}
    x, w, r, b, _, h, c, p = (wide[k] for k in ORDER)
    values = defined(op, x, w, r, b, given["lens"], h, c, p, **kind)
    return [v.astype(np.float32) for v in values[: 3 if op == "LSTM" else 2]]


@pytest.mark.parametrize("linear", [0, 1])
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize(("batch", "threads"), [(3, 2), (7, 1), (13, 2), (13, 3)])
def test_rows_shared_by_threads_end_each_at_its_own_length(
    op, linear, ways, batch, threads
):
    """The rows fall into chunks of unequal sizes, with tiles that are not full."""
    lens = RNG.integers(0, 5, batch)
    given = drawn(
        op, batch=batch, inputs=11, size=21, ways=ways, optional="bh", lens=lens
    )
    kind = {"linear": linear} if op == "GRU" else {}
    want = wanted(op, given, backwards=(False, True)[:ways], **kind)
    attributes = {"direction": "bidirectional"} if ways == 2 else {}
    if linear and op == "GRU":
        attributes["linear_before_reset"] = 1
    for constant in ((), (1, 2, 3)):
        node = node_of(op, given, **attributes)
        inputs = [given[k] for k in ORDER[: len(node.input)]]
        options = {"num_threads": threads}
        got = run_node(TABLE, node, inputs, want, constant=constant, options=options)
        for g, v in zip(got, want, strict=True):
            np.testing.assert_allclose(g, v, rtol=2e-5, atol=2e-5)


def test_weights_that_are_fed_may_change_between_runs():
    """Those that are not constant are laid out anew before every run."""
    first = drawn("GRU", batch=6, size=9)
    given = [first[k] for k in ORDER[:6]]
    node = node_of("GRU", first)
    want = wanted("GRU", first)
    later = {k: None if v is None else v * np.float32(0.5) for k, v in first.items()}
    view = view_of_node(node, given, want, 22, ())
    arrays = [None if x is None else x.copy() for x in given]
    outputs = [np.empty_like(v) for v in want]
    call = Call(view, tuple(arrays), tuple(outputs), Kept(), {"num_threads": 2})
    run = TABLE.find(view).function(call)
    for now in (first, later):
        for array, key in zip(arrays, ORDER, strict=False):
            if array is not None:
                array[...] = now[key]
        run()
        for g, v in zip(outputs, wanted("GRU", now), strict=True):
            np.testing.assert_allclose(g, v, rtol=2e-5, atol=2e-5)
