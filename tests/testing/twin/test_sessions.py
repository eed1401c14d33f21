"""
Sessions over the twin and the host: right wherever the nodes lie, each copy made once.

The host's side of every session checks that it was handed arrays of the host only; the
twin's checks that it was handed its own memory only, so a value on the wrong side is an
error of its segment before anything is computed.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from tests.core.toys import ALONE, model

from seamline.errors import KernelError, ProviderOptionError
from seamline.hookspecs import hookimpl
from seamline.kernels import KernelProvider, KernelSegment
from seamline.pipeline import Pipeline
from seamline.planned import SeamCause
from seamline.provider import HOST, ProviderSpec
from seamline_cpu.kernels import TABLE
from seamline_testing.twin.plugin import TwinPlugin
from seamline_testing.twin.provider import DEVICE

f32 = np.float32


class HostSegment(KernelSegment):
    def bind(self, views, workspaces, host=None):
        for name, view in {**views, **workspaces, **(host or {})}.items():
            assert type(view) is np.ndarray, f"{name} lies on the twin"
        super().bind(views, workspaces, host)


class Host(KernelProvider):
    """The host's kernels, each value's residency asserted."""

    def __init__(self):
        super().__init__(TABLE, {"num_threads": 1})

    def build(self, segment, context):
        made = super().build(segment, context)
        return HostSegment(
            made.provider, made.spec, made.kernels, made.context, made.options
        )


class HostPlugin:
    CONTRACT_VERSION = 1

    @hookimpl
    def seamline_providers(self):
        return [ProviderSpec("cpu", lambda _: Host())]


class Opened:
    """A session over the twin, then the host; closed with everything given back."""

    def __init__(self, source, *, pins=None, faults=None, asked="", **options):
        plugin = TwinPlugin(faults)
        options["faults"] = asked
        self.pipeline = Pipeline.open(
            model(source) if isinstance(source, str) else source,
            providers=[("twin", {"copy_delay": 0.0005, **options}), "cpu"],
            pins=pins,
            plugins=[plugin, HostPlugin()],
            settings=ALONE,
        )
        (self.twin,) = plugin.made

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pipeline.close()
        assert self.twin.left == 0
        assert self.twin.open_segments == 0
        assert self.twin.machine.pages.gauges().owned == 0

    def run(self, **feeds):
        return self.pipeline.run(feeds)

    @property
    def plan(self):
        return self.pipeline.runner.latest().plan

    @property
    def sides(self):
        return [segment.provider for segment in self.plan.segments]


X = np.array([[1, -2, 3], [-4, 5, -6]], f32)


def test_a_chain_that_leaves_the_twin_and_comes_back_is_right_on_every_run():
    text = "g (float[2,3] x) => (y) { a = Neg(x) b = Abs(a) c = Add(b, x) y = Neg(c) }"
    with Opened(text, pins={"Abs": "cpu"}) as opened:
        for scale in (1, 2, -3):
            (y,) = opened.run(x=X * scale)
            np.testing.assert_array_equal(y, -(np.abs(X * scale) + X * scale))
        assert opened.sides == ["twin", "cpu", "twin"]
        assert [(t.source, t.target) for t in opened.plan.transfers] == [
            (DEVICE, HOST),
            (HOST, DEVICE),
        ]


def test_a_diamond_with_one_arm_on_each_side_joins_right():
    text = """g (float[2,3] x) => (y) {
        [top] a = Neg(x)
        [left] b = Exp(a)
        [right] c = Relu(a)
        [join] y = Add(b, c)
    }"""
    wanted = np.exp(-X) + np.maximum(-X, 0)
    for host in (
        {"left"},
        {"right"},
        {"left", "right"},
        {"top"},
        {"join"},
        {"top", "left"},
    ):
        with Opened(text, pins=dict.fromkeys(host, "cpu")) as opened:
            for _ in range(2):
                np.testing.assert_allclose(opened.run(x=X)[0], wanted, rtol=1e-6)


def test_a_value_read_on_both_sides_by_many_crosses_once():
    text = """g (float[2,3] x) => (p, q, r, s) {
        [a] a = Neg(x)
        [p] p = Abs(a)
        [q] q = Add(a, a)
        [r] r = Relu(a)
        [s] s = Sign(a)
    }"""
    with Opened(text, pins={"p": "cpu", "r": "cpu"}) as opened:
        p, q, r, s = opened.run(x=X)
        np.testing.assert_array_equal(p, np.abs(X))
        np.testing.assert_array_equal(q, -2 * X)
        np.testing.assert_array_equal(r, np.maximum(-X, 0))
        np.testing.assert_array_equal(s, np.sign(-X))
        assert [t.value for t in opened.plan.transfers] == ["a"]


def test_operands_that_only_the_host_reads_never_reach_the_twin():
    text = """g (float[2,3] x, int64[2] r) => (y) {
        a = Neg(x)
        b = Tile(a, r)
        y = Neg(b)
    }"""
    with Opened(text) as opened:
        for repeats in ([1, 1], [2, 1], [1, 3]):
            (y,) = opened.run(x=X, r=np.array(repeats))
            np.testing.assert_array_equal(y, np.tile(X, repeats))
        assert not [key for key in opened.plan.slots if key == ("r", DEVICE)]


def test_a_shape_computed_on_the_twin_for_the_host_and_one_on_the_host_for_the_twin():
    text = """g (float[n,3] x, float[6] z) => (y) {
        [shape] s = Shape(x)
        [reshape] a = Reshape(z, s)
        [join] y = Add(a, x)
    }"""
    for host in ({}, {"shape": "cpu"}, {"reshape": "cpu"}, {"join": "cpu"}):
        with Opened(text, pins=host) as opened:
            (y,) = opened.run(x=X, z=np.arange(6, dtype=f32))
            np.testing.assert_array_equal(y, np.arange(6).reshape(2, 3) + X)


def test_sizes_found_by_running_on_either_side_are_planned_from_there():
    text = """g (float[2,3] x) => (y, i) {
        [relu] a = Relu(x)
        [where] i = NonZero(a)
        [values] j = Transpose <perm = [1, 0]> (i)
        [take] y = GatherND(a, j)
    }"""
    for host in (
        {},
        {"where": "cpu"},
        {"values": "cpu"},
        {"take": "cpu"},
        {"relu": "cpu"},
    ):
        with Opened(text, pins=host) as opened:
            for values in (X, -X, np.ones((2, 3), f32)):
                y, i = opened.run(x=values)
                np.testing.assert_array_equal(i, np.nonzero(values > 0))
                np.testing.assert_array_equal(y, values[values > 0])


def test_a_body_of_control_flow_may_lie_on_the_other_side():
    text = """g (float[2,3] x, bool c) => (y) {
        a = Neg(x)
        y = If (c) <
            then_branch = t () => (p) { [then] p = Abs(a) },
            else_branch = e () => (q) { [else] q = Add(a, a) }>
    }"""
    for host in ({}, {"then": "cpu"}, {"else": "cpu"}, {"Neg": "cpu"}):
        with Opened(text, pins=host) as opened:
            for _ in range(2):
                (y,) = opened.run(x=X, c=np.array(True))
                np.testing.assert_array_equal(y, np.abs(X))
                (y,) = opened.run(x=X, c=np.array(False))
                np.testing.assert_array_equal(y, -2 * X)


def test_sizes_that_change_from_run_to_run_keep_their_own_programs():
    text = "g (float[n] x) => (y) { a = Neg(x) [host] b = Abs(a) y = Add(b, a) }"
    with Opened(text, pins={"host": "cpu"}) as opened:
        for size in (1, 5, 0, 5, 1, 70_000):
            x = np.arange(size, dtype=f32) - 2
            np.testing.assert_array_equal(opened.run(x=x)[0], np.abs(x) - x)
        assert opened.pipeline.runner.built == 4


def test_constants_are_uploaded_once_and_given_back():
    text = """g (float[2,3] x) => (y) <float[3] w = {1, 2, 3}> {
        a = Add(x, w) [host] b = Mul(a, w) y = Add(b, w)
    }"""
    with Opened(text, pins={"host": "cpu"}) as opened:
        opened.run(x=X)
        before = opened.twin.machine.counts["bytes in"]
        (y,) = opened.run(x=X)
        w = np.array([1, 2, 3], f32)
        np.testing.assert_array_equal(y, (X + w) * w + w)
        assert opened.twin.machine.counts["bytes in"] - before == 2 * X.nbytes


def test_a_constant_without_dimensions_is_uploaded_without_dimensions():
    text = """g (float x) => (y) <float two = {2}> {
        a = Sub(two, x) [host] b = Neg(a) y = Mul(b, two)
    }"""
    with Opened(text, pins={"host": "cpu"}) as opened:
        (y,) = opened.run(x=np.array(5, f32))
        np.testing.assert_array_equal(y, np.array(6, f32), strict=True)


def test_transformer_arithmetic_over_the_twin_is_the_hosts():
    text = """g (float[b,t,8] x) => (y) <float[8,8] q, float[8,8] k, float[8] g> {
        a = MatMul(x, q)
        c = MatMul(x, k)
        [turn] d = Transpose <perm = [0, 2, 1]> (c)
        e = MatMul(a, d)
        [soft] f = Softmax <axis = -1> (e)
        h = MatMul(f, x)
        i = Add(h, x)
        [norm] y = LayerNormalization <axis = -1> (i, g)
    }"""
    rng = np.random.default_rng(0)
    q, k, g = (rng.normal(size=s).astype(f32) for s in ((8, 8), (8, 8), (8,)))
    x = rng.normal(size=(2, 5, 8)).astype(f32)
    source = text.replace("<float[8,8] q, float[8,8] k, float[8] g>", "")
    source = source.replace("x)", "x, float[8,8] q, float[8,8] k, float[8] g)", 1)
    scores = np.matmul(x @ q, np.swapaxes(x @ k, 1, 2)).astype(np.float64)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    summed = weights @ x + x
    spread = np.sqrt(summed.var(-1, keepdims=True) + 1e-5)
    wanted = (summed - summed.mean(-1, keepdims=True)) / spread * g
    for host in ((), ("soft",), ("turn", "norm"), ("MatMul",)):
        with Opened(source, pins=dict.fromkeys(host, "cpu")) as opened:
            for _ in range(2):
                (y,) = opened.run(x=x, q=q, k=k, g=g)
                np.testing.assert_allclose(y, wanted, rtol=2e-4, atol=2e-5)


def test_seams_to_the_host_are_named_with_the_nodes_that_cause_them():
    text = "g (float[2,3] x) => (y) { a = Neg(x) [top] b = CumSum(a, a0) y = Neg(b) }"
    text = text.replace("{", "<int64 a0 = {0}> {", 1)
    with Opened(text) as opened:
        np.testing.assert_array_equal(opened.run(x=X)[0], np.cumsum(X, 0))
        causes = {seam.cause: seam.why for seam in opened.plan.seams}
        assert "waits for the device" in causes[SeamCause.NOT_CAPTURABLE]


def drawn(rng):
    """Draw a graph of nodes over [3, 3], any two of which may be joined, and its outputs."""
    names, lines = ["x", "z"], []
    for index in range(int(rng.integers(3, 12))):
        one, other = rng.choice(names, 2)
        lines.append(f"[n{index}] v{index} = {rng.choice(FORMS).format(one, other)}")
        names.append(f"v{index}")
    read = {
        word.strip("(),") for line in lines for word in line.split("= ", 1)[1].split()
    }
    ends = [name for name in names[2:] if name not in read]
    ends += list(rng.choice(names[2:], 1))
    body = "\n".join(lines)
    return f"g (float[3,3] x, float[3,3] z) => ({', '.join(dict.fromkeys(ends))}) {{ {body} }}"


FORMS = (
    "Neg( {0} )", "Abs( {0} )", "Relu( {0} )", "Sign( {0} )", "Identity( {0} )",
    "Add( {0} , {1} )", "Sub( {0} , {1} )", "Max( {0} , {1} )", "Sub( {1} , {0} )",
    "Transpose <perm = [1, 0]> ( {0} )", "Flatten( {0} )",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(24))
def test_random_graphs_split_at_random_are_the_references(seed):
    rng = np.random.default_rng(seed)
    source = model(drawn(rng))
    feeds = {n: rng.integers(-4, 5, (3, 3)).astype(f32) for n in ("x", "z")}
    wanted = ReferenceEvaluator(source).run(None, feeds)
    pins = {node.name: "cpu" for node in source.graph.node if rng.random() < 0.5}
    with Opened(source, pins=pins, copy_delay=0.0002) as opened:
        for _ in range(2):
            for got, right in zip(opened.run(**feeds), wanted, strict=True):
                np.testing.assert_array_equal(got, right, strict=True)


def test_faults_can_be_asked_for_by_an_option_and_a_wrong_one_names_the_right_ones():
    text = "g (float[2,3] x) => (y) { y = Neg(x) }"
    with Opened(text, asked="copy:2") as opened:
        with pytest.raises(KernelError, match="copy number 2 was made to fail"):
            opened.run(x=X)
        np.testing.assert_array_equal(opened.run(x=X)[0], -X)
    with pytest.raises(ProviderOptionError, match="did you mean 'copy'"):
        Opened(text, asked="cop:2")
