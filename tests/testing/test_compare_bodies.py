"""`seamline compare` inside If, Loop and Scan: the inner node, its turn, its own inputs."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
from onnx import parser
from typer.testing import CliRunner

from seamline.cli import app
from seamline.hookspecs import hookimpl
from seamline.kernels import KernelTable, provider_spec
from seamline_testing.compare import compare
from seamline_testing.shrink import shrink
from seamline_testing.sides import apart, closeness_of, side_of

f32 = np.float32
HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'
IF = """
g (bool c, float[4] x) => (float[4] y) {
  [n] n = Neg (x)
  [choice] m = If (c) <then_branch = yes () => (float[4] p) { [inner] p = Abs (n) },
                      else_branch = no () => (float[4] q) { [other] q = Neg (n) }>
  [last] y = Add (m, x)
}
"""
LOOP = """
g (int64 count, float[3] x) => (float[3] y, float[K, 3] rows) {
  [loop] y, rows = Loop (count, , x) <body = b
    (int64 i, bool going, float[3] carried) => (bool on, float[3] more, float[3] row) {
      [on] on = Identity (going)
      [abs] a = Abs (carried)
      [more] more = Add (a, x)
      [row] row = Identity (a)
    }>
}
"""
SCAN = """
g (float[3] start, float[3, 4] x) => (float[3] y, float[4, 3] rows) {
  [scan] y, rows = Scan <num_scan_inputs = 1, scan_input_axes = [1],
    scan_input_directions = [1], body = b (float[3] carried, float[3] row)
      => (float[3] more, float[3] out) {
      [more] more = Identity (row)
      [abs] out = Abs (row)
    }> (start, x)
}
"""
NESTED = """
g (int64 count, float[2] x) => (float[2] y) {
  [loop] y = Loop (count, , x) <body = b
    (int64 i, bool going, float[2] carried) => (bool on, float[2] more) {
      [on] on = Identity (going)
      [choice] more = If (going) <
        then_branch = yes () => (float[2] p) { [abs] a = Abs (carried) [add] p = Add (a, x) },
        else_branch = no () => (float[2] q) { [q] q = Neg (carried) }>
    }>
}
"""


@pytest.fixture
def both(monkeypatch):
    """Give two lists; Abs of the second is wrong above 2, and right elsewhere."""
    table = KernelTable("halves")

    @table.simple("Abs")
    def absolute(x):
        return np.where(np.abs(x) > 2, np.abs(x) / 2, np.abs(x)).astype(x.dtype)

    return sides(table, monkeypatch)


def sides(table, monkeypatch):
    module = ModuleType(f"plugin_of_{table.name}")
    module.CONTRACT_VERSION = 1

    @hookimpl
    def seamline_providers():
        return [provider_spec(table)]

    module.seamline_providers = seamline_providers
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = f"{table.name},reference"
    return side_of("reference"), side_of(names, [module.__name__])


def found_in(text, both, **feeds):
    found = compare(parser.parse_model(HEAD + text), both, feeds)
    return found.divergence


def one_node(divergence, both):
    """Shrink the excerpt, which is one node, and give its inputs."""
    closeness = closeness_of("")
    shrunk = shrink(
        divergence.excerpt, lambda e: bool(apart(e, both, closeness)[0])
    ).excerpt
    assert [node.op_type for node in shrunk.nodes] == ["Abs"]
    return shrunk.fed


def test_the_node_in_the_branch_that_was_taken_is_named_after_its_owner(both):
    found = found_in(IF, both, c=np.array(True), x=np.array([1, -2, 3, -4], f32))
    assert (found.path, found.node.op_type) == ("choice/inner", "Abs")
    assert found.inside == "then_branch of 'choice'"
    assert found.index == 1
    assert found.by == ("reference (onnx.reference)", "halves (numpy)")
    (value,) = one_node(found, both).values()
    assert value.shape == (1,)
    assert np.abs(value) > 2


def test_the_turn_of_a_loop_that_diverges_first_is_named(both):
    feeds = {"count": np.array(5), "x": np.array([0.5, 0.75, -0.5], f32)}
    found = found_in(LOOP, both, **feeds)
    # |x| grows by x in every turn: 0.75, 1.5, 2.25
    assert (found.path, found.inside) == ("loop/abs", "turn 2 of 'loop'")
    ((_, value),) = found.excerpt.fed.items()
    np.testing.assert_array_equal(value, f32([1.5, 2.25, -0.5]))


def test_rows_of_a_scan_are_taken_along_its_axis_and_direction(both):
    x = np.zeros((3, 4), f32)
    x[2, 1] = -5  # the third row from the end
    found = found_in(SCAN, both, start=np.zeros(3, f32), x=x)
    assert (found.path, found.inside) == ("scan/abs", "turn 2 of 'scan'")
    np.testing.assert_array_equal(found.excerpt.fed["row"], x[:, 1])


def test_bodies_in_bodies_are_gone_into(both):
    feeds = {"count": np.array(4), "x": np.array([1.0, 0.0], f32)}
    found = found_in(NESTED, both, **feeds)
    assert found.path == "loop/choice/abs"
    assert found.inside == "turn 2 of 'loop', then_branch of 'choice'"
    assert one_node(found, both)


def test_rounding_that_grows_from_turn_to_turn_blames_no_node(monkeypatch):
    table = KernelTable("drifts")

    @table.simple("Exp")
    def exp(x):
        return (np.exp(x) * f32(1 + 3e-6)).astype(x.dtype)  # within its class

    text = """
    g (int64 count, float[2] x) => (float[2] y) {
      [loop] y = Loop (count, , x) <body = b
        (int64 i, bool going, float[2] carried) => (bool on, float[2] more) {
          [on] on = Identity (going)
          [exp] more = Exp (carried)
        }>
    }
    """
    feeds = {"count": np.array(3), "x": np.array([1, 1.2], f32)}
    found = found_in(text, sides(table, monkeypatch), **feeds)
    assert found.path == "loop"
    assert "3 turns of its body agree over equal inputs" in found.inside
    assert found.excerpt is not None


def test_the_command_names_the_inner_node_and_its_line_repeats_it(
    tmp_path, both, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.onnx"
    path.write_bytes(parser.parse_model(HEAD + LOOP).SerializeToString())
    np.savez(tmp_path / "in.npz", count=np.array(5), x=f32([0.5, 0.75, -0.5]))
    plugin = ["--plugin", both[1].plugins[0]]
    words = ["compare", "m.onnx", both[0].text, both[1].text, *plugin]
    done = CliRunner().invoke(app, [*words, "--inputs", "in.npz"])
    assert done.exit_code == 1, done.output
    assert "first diverging node: 'loop/abs' (Abs)" in done.output
    assert "turn 2 of 'loop'" in done.output
    again = ["compare", "m-loop_abs.onnx", *words[2:], "--inputs", "m-loop_abs.npz"]
    done = CliRunner().invoke(app, again)
    assert done.exit_code == 1, done.output
    assert "(Abs), number 0 in order" in done.output
