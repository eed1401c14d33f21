"""`seamline compare`: the first node that diverges, made small, and the line that repeats it."""

from __future__ import annotations

import json
import shlex
import sys
from types import ModuleType

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

from seamline.cli import main
from seamline.graph import load
from seamline.hookspecs import hookimpl
from seamline.kernels import KernelTable, provider_spec
from seamline_testing.compare import compare
from seamline_testing.compare_report import read_npz, write_excerpt
from seamline_testing.excerpts import excerpt_of
from seamline_testing.shrink import shrink
from seamline_testing.sides import CompareError, apart, closeness_of, side_of

CHAIN = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N, 6] x, float[6] w) => (float[N, 6] y) {
  a = Mul (x, w)
  b = Neg (a)
  c = Abs (b)
  y = Add (c, a)
}
"""


def saved(path, text):
    path.write_bytes(parser.parse_model(text).SerializeToString())
    return path


@pytest.fixture
def plugin(monkeypatch):
    """Give a function that makes a module of a plugin from a table."""

    def make(table):
        module = ModuleType(f"plugin_of_{table.name}")
        module.CONTRACT_VERSION = 1

        @hookimpl
        def seamline_providers():
            return [provider_spec(table)]

        module.seamline_providers = seamline_providers
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return module.__name__

    return make


@pytest.fixture
def halves(plugin):
    """Give the module of a provider whose Abs is wrong above 2, and right elsewhere."""
    table = KernelTable("halves")

    @table.simple("Abs")
    def absolute(x):
        return np.where(np.abs(x) > 2, np.abs(x) / 2, np.abs(x)).astype(x.dtype)

    return plugin(table)


@pytest.fixture
def seamline(capsys):
    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main_with(words)
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    def main_with(words):
        before, sys.argv = sys.argv, ["seamline", *map(str, words)]
        try:
            main()
        finally:
            sys.argv = before

    return run


def sides(name, module):
    return side_of("reference"), side_of(f"{name},reference", [module])


def feeds(**values):
    return {name: np.asarray(value, np.float32) for name, value in values.items()}


X = np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6)


def test_the_first_node_that_diverges_is_named_and_not_those_that_pass_it_on(
    tmp_path, halves
):
    found = compare(
        saved(tmp_path / "m.onnx", CHAIN),
        sides("halves", halves),
        feeds(x=X, w=[1] * 6),
    )
    assert found.diverges
    assert found.divergence.node.op_type == "Abs"
    assert found.divergence.index == 2
    assert found.divergence.by == ("reference (onnx.reference)", "halves (numpy)")
    assert found.nodes == 3  # nobody looks further
    assert "y" in found.outputs


def test_two_lists_that_agree_have_no_divergence(tmp_path):
    path = saved(tmp_path / "m.onnx", CHAIN)
    found = compare(
        path, (side_of("reference"), side_of("onnxruntime")), feeds(x=X, w=[1] * 6)
    )
    assert not found.diverges
    assert (found.nodes, found.values, found.outputs) == (4, 4, {})


def test_a_node_that_only_passes_on_a_difference_is_not_blamed(tmp_path, plugin):
    table = KernelTable("rounds")

    @table.simple("Exp")
    def exp(x):
        return (np.exp(x) * np.float32(1 + 3e-6)).astype(x.dtype)  # within its class

    text = CHAIN.replace("b = Neg (a)", "b = Exp (a)").replace(
        "Add (c, a)", "Mul (c, c)"
    )
    found = compare(
        saved(tmp_path / "m.onnx", text),
        sides("rounds", plugin(table)),
        feeds(x=X, w=[1] * 6),
    )
    assert found.divergence is None
    assert len(found.drifting) == 2  # Abs is exact and Mul rounds once
    assert not found.diverges  # the model is held to the class of many operators


def test_a_value_that_is_wrong_only_inside_the_model_is_said_to_be(tmp_path, plugin):
    table, kept = KernelTable("remembers"), {}

    @table.kernel("Abs")
    def absolute(call):
        def run():
            scale = 2 if kept.pop("Neg", False) else 1
            np.multiply(np.abs(call.inputs[0]), scale, out=call.outputs[0])

        return run

    @table.kernel("Neg")
    def negate(call):
        def run():
            np.negative(call.inputs[0], out=call.outputs[0])
            kept["Neg"] = True

        return run

    given = sides("remembers", plugin(table))
    found = compare(saved(tmp_path / "m.onnx", CHAIN), given, feeds(x=X, w=[1] * 6))
    assert found.divergence.node.op_type == "Abs"
    assert found.divergence.in_place == "remembers,reference"
    assert found.divergence.excerpt.operators == ("Neg", "Abs")


def test_a_wrong_value_is_found_where_a_later_node_cannot_be_run(tmp_path, plugin):
    table = KernelTable("miscounts")

    @table.simple("Abs")
    def absolute(x):
        return np.abs(x) + 1

    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[N] x, int64[1] n) => (float[K] y) {
      s = Abs (n)
      t = Neg (s)
      u = Neg (t)
      y = Reshape (x, u)
    }
    """
    given = {**feeds(x=[1, 2, 3, 4]), "n": np.array([4])}
    both = sides("miscounts", plugin(table))
    found = compare(saved(tmp_path / "m.onnx", text), both, given)
    assert "Reshape" in found.failed
    assert found.divergence.node.op_type == "Abs"


def test_a_node_that_one_list_cannot_run_is_named(tmp_path, plugin):
    table = KernelTable("falls")

    @table.simple("Abs")
    def absolute(x):
        raise ValueError("it fell")

    found = compare(
        saved(tmp_path / "m.onnx", CHAIN),
        sides("falls", plugin(table)),
        feeds(x=X, w=[1] * 6),
    )
    assert found.diverges
    assert (found.divergence.node.op_type, found.divergence.index) == ("Abs", 2)
    assert "it fell" in found.divergence.said


def test_random_numbers_are_not_compared(tmp_path):
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[4] x) => (float[4] y, float[4] z) {
      r = RandomNormalLike (x)
      y = Add (r, x)
      z = Abs (x)
    }
    """
    found = compare(
        saved(tmp_path / "m.onnx", text),
        (side_of("reference"), side_of("onnxruntime")),
        feeds(x=[1, 2, 3, 4]),
    )
    assert len(found.not_compared) == 1
    assert not found.diverges


def test_models_longer_than_a_window_are_followed_to_their_end(
    tmp_path, halves, monkeypatch
):
    monkeypatch.setattr("seamline_testing.compare._WINDOW", 3)
    text = CHAIN.replace("c = Abs (b)", "d = Neg (b) e = Neg (d) c = Abs (e)")
    found = compare(
        saved(tmp_path / "m.onnx", text), sides("halves", halves), feeds(x=X, w=[1] * 6)
    )
    assert found.divergence.index == 4
    assert len(found.divergence.excerpt.nodes) == 1


def test_constants_of_the_model_stay_constants_of_the_excerpt(tmp_path, plugin):
    table = KernelTable("reversed")

    @table.simple("Transpose")
    def transpose(x, *, perm=None):
        return np.transpose(x, perm)[::-1]

    @table.simple("Gather", host_inputs=[1])
    def gather(x, at, *, axis=0):
        return np.take(x, at[::-1], axis)

    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[5, 2] x) => (float[3, 2] y) <int64[3] at = {0, 1, 4}> {
      y = Gather (x, at)
    }
    """
    both = sides("reversed", plugin(table))
    found = compare(
        saved(tmp_path / "m.onnx", text), both, feeds(x=np.arange(10).reshape(5, 2))
    )
    excerpt = found.divergence.excerpt
    assert set(excerpt.fed) == {"x"}
    np.testing.assert_array_equal(excerpt.constants["at"], [0, 1, 4])


# --- shrinking ------------------------------------------------------------------------


def shrunk_of(tmp_path, text, both, given):
    found = compare(saved(tmp_path / "m.onnx", text), both, given)
    near = closeness_of("")
    return shrink(
        found.divergence.excerpt, lambda excerpt: bool(apart(excerpt, both, near)[0])
    )


def test_shapes_shrink_to_the_element_that_differs(tmp_path, halves):
    made = shrunk_of(tmp_path, CHAIN, sides("halves", halves), feeds(x=X, w=[1] * 6))
    (value,) = made.excerpt.fed.values()
    assert value.shape == (1, 1)
    assert np.abs(value) > 2  # below it the two agree
    assert value == np.rint(value)
    assert made.finished


def test_axes_that_belong_together_are_cut_together(tmp_path, plugin):
    table = KernelTable("last")

    @table.simple("MatMul")
    def matmul(a, b):
        assert a.shape[-1] >= 3, "it needs three columns"
        return a[..., :-1] @ b[:-1]  # forgets the last product

    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[4, 16] a, float[16, 8] b) => (float[4, 8] y) { y = MatMul (a, b) }
    """
    made = shrunk_of(
        tmp_path, text, sides("last", plugin(table)),
        feeds(a=np.ones((4, 16)), b=np.ones((16, 8))),
    )  # fmt: skip
    assert made.excerpt.fed["a"].shape == (1, 3)
    assert made.excerpt.fed["b"].shape == (3, 1)


def test_shrinking_ends_in_time_with_what_it_has(tmp_path, halves):
    both = sides("halves", halves)
    found = compare(saved(tmp_path / "m.onnx", CHAIN), both, feeds(x=X, w=[1] * 6))
    made = shrink(found.divergence.excerpt, lambda excerpt: True, seconds=0)
    assert made.excerpt is found.divergence.excerpt
    assert not made.finished


# --- files ----------------------------------------------------------------------------


def test_types_that_numpy_does_not_know_come_back_from_the_file(tmp_path, halves):
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (bfloat16[4] x) => (bfloat16[4] y) { y = Abs (x) }
    """
    x = np.array([1, -2, 3, -4], ml_dtypes.bfloat16)
    found = compare(saved(tmp_path / "m.onnx", text), sides("halves", halves), {"x": x})
    excerpt = found.divergence.excerpt
    model, inputs = write_excerpt(excerpt, "it/s name", tmp_path / "kept")
    assert model.name == "it_s_name.onnx"
    back = read_npz(inputs, {"x": x.dtype})
    assert back["x"].dtype == x.dtype
    np.testing.assert_array_equal(back["x"], x)
    assert load(model).nodes[0].op_type == "Abs"


def test_a_sequence_that_a_node_reads_is_built_in_the_excerpt(tmp_path, halves):
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (bool c, float[2] x, float[3] z) => (float[3] y) {
      s = SequenceConstruct (x, z)
      one = Constant <value: tensor = int64 {1}> ()
      [choice] y = If (c) <then_branch = yes () => (float[3] p) {
                    q = SequenceAt (s, one)
                    p = Abs (q) },
                  else_branch = no () => (float[3] o) { o = Neg (z) }>
    }
    """
    path = saved(tmp_path / "m.onnx", text)
    both = sides("halves", halves)
    given = {"c": np.array(True), **feeds(x=[1, 2], z=[3, 4, 5])}
    found = compare(path, both, given).divergence
    assert found.node.op_type == "Abs"
    assert found.owners == ("choice",)
    graph = load(path)
    (whole,) = [node for node in graph.nodes if node.op_type == "If"]
    values = {"c": given["c"], "s": [given["x"], given["z"]], "z": given["z"]}
    excerpt = excerpt_of(graph, [whole], whole.writes, values, types={})
    assert set(excerpt.feeds) == {"c", "s/0", "s/1", "z"}
    model, inputs = write_excerpt(excerpt, "if", tmp_path)
    again = compare(model, both, read_npz(inputs, {})).divergence
    assert again.path == "choice/" + again.node.name


def test_a_file_that_is_no_npz_is_refused_by_name(tmp_path):
    path = tmp_path / "x.npz"
    path.write_text("no")
    with pytest.raises(CompareError, match=r"x\.npz"):
        read_npz(path, {})


# --- tolerance and lists --------------------------------------------------------------


def test_lists_of_providers_carry_options():
    side = side_of("cpu:num_threads=1,other=2,reference")
    assert side.providers == (
        ("cpu", {"num_threads": "1", "other": "2"}),
        "reference",
    )
    with pytest.raises(CompareError, match="list of providers"):
        side_of("cpu,,reference")


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "loose"])
def test_a_tolerance_that_means_nothing_is_refused(text):
    with pytest.raises(CompareError, match="--tolerance"):
        closeness_of(text)


def test_a_number_is_relative_and_absolute_and_nan_is_nan():
    near = closeness_of("0.01")
    one = np.array([1, 100, 0, np.nan], np.float32)
    assert not near.difference(one, one + np.float32(0.009), ["Add"])
    assert "1 of 4" in near.difference(one, np.array([1, 103, 0, np.nan], "f"), ["Add"])
    assert near.difference(one, one.astype(np.float64), ["Add"])
    assert near.difference([one], [one, one], ["Add"])
    assert near.difference(np.array([1, 2]), np.array([1, 3]), ["Add"])


# --- the command ----------------------------------------------------------------------


def test_the_line_that_is_printed_reproduces_the_divergence(tmp_path, halves, seamline):
    path = saved(tmp_path / "m.onnx", CHAIN)
    np.save(tmp_path / "x.npy", X)
    status, out, _ = seamline(
        "compare", path, "reference", "halves,reference", "--plugin", halves,
        "--input", f"x={tmp_path / 'x.npy'}", "--input", "w=[1,1,1,1,1,1]",
        "--into", tmp_path, "--json",
    )  # fmt: skip
    told = json.loads(out)
    found = told["divergence"]
    assert status == 1
    assert told["diverges"]
    assert (found["op"], found["nodes"]) == ("Abs", [found["node"]])
    assert "halves,reference is wrong by definition" in found["judged"]
    assert onnx.load(found["files"][0]).graph.node[0].op_type == "Abs"

    words = shlex.split(found["reproduce"])
    assert words[:2] == ["seamline", "compare"]
    status, out, _ = seamline(*words[1:], "--into", tmp_path)
    assert status == 1
    assert "first diverging node" in out


def test_agreement_ends_with_status_0(tmp_path, seamline):
    path = saved(tmp_path / "m.onnx", CHAIN)
    status, out, _ = seamline(
        "compare", path, "reference", "onnxruntime", "--dim", "N=3"
    )
    assert status == 0
    assert out.splitlines()[-1] == "no difference"


def test_inputs_of_two_kinds_at_once_are_refused(tmp_path, seamline):
    path = saved(tmp_path / "m.onnx", CHAIN)
    status, _, said = seamline(
        "compare", path, "cpu", "reference", "--inputs", "x.npz", "--dim", "N=3"
    )
    assert status == 1
    assert "--inputs gives every input" in said
