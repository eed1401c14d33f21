"""Decoders of a few nodes whose caches are states, over each provider, and their reference."""

from __future__ import annotations

import contextlib

import numpy as np
from tests.core.toys import ALONE, model
from tests.cuda.emulation import emulated

import seamline_cpu.plugin
import seamline_cuda.plugin
import seamline_testing.twin.plugin
from seamline.devices import Gauges
from seamline.geometry import Geometry
from seamline.pipeline import Pipeline
from seamline.states import State

PLUGINS = [seamline_cpu.plugin, seamline_cuda.plugin, seamline_testing.twin.plugin]
PROVIDERS = ("cpu", "twin", "cuda")


@contextlib.contextmanager
def opened(
    source,
    states,
    provider="cpu",
    *,
    also=(),
    opset=24,
    options=None,
    emulates=True,
    **chosen,
):
    """
    Open a model with states; what it leaves in the device's memory is an assertion.

    Parameters
    ----------
    emulates
        ``cuda`` runs over the emulated driver, not over a GPU.
    """
    source = model(source, opset) if isinstance(source, str) else source
    device = contextlib.nullcontext()
    if provider == "cuda" and emulates:
        device = emulated()
    with device:
        pipeline = Pipeline.open(
            source, providers=[(provider, options or {}), *also], plugins=PLUGINS,
            settings=ALONE, states=states, **chosen,
        )  # fmt: skip
        memories = list(pipeline.engine.memories.values())
        try:
            yield pipeline
        finally:
            pipeline.close()
        assert [memory.gauges() for memory in memories] == [Gauges()] * len(memories)


class Appending:
    """
    A cache that rows are appended to, head-major, with what is written also given.

    Parameters
    ----------
    apart
        Rows from one step's position to the next: more than one leaves gaps, so that few
        steps cross the boundaries of large granules.
    """

    def __init__(self, steps, *, heads=2, width=64, batch=1, apart=1):
        self.apart, self.room = apart, steps * apart
        self.sizes = batch, heads, self.room, width
        cache, new = (
            f"float[{batch},{heads},{self.room},{width}]",
            f"{batch},{heads},n,{width}",
        )
        self.text = f"""g ({cache} past, float[{new}] x, int64[{batch}] at)
            => ({cache} present, float[{new}] z)
            {{ z = Neg(x)  present = TensorScatter(past, z, at) }}"""
        self.states = [State("past", "present", 2, self.room, "at", ("x", 2))]
        self.drawn = np.random.default_rng(7)
        self.rows = np.zeros(self.sizes, np.float32)
        self.written = np.zeros(self.room, bool)
        self.live = 0

    def step(self, at, count=1):
        """Give feeds of a step, the same position for all, and write it in the reference."""
        batch, heads, _, width = self.sizes
        x = self.drawn.standard_normal((batch, heads, count, width)).astype(np.float32)
        first = at * self.apart
        self.live = first + count
        self.rows[:, :, first : self.live] = -x
        self.written[first : self.live] = True
        return {"x": x, "at": np.full(batch, first)}

    def forget(self):
        """Begin another generation."""
        self.written[:] = False

    def hold(self, states):
        """Assert that a state is as long as it should be, and has what was written."""
        got = states.read("past")
        assert got.shape[2] == self.live
        seen = self.written[: self.live]
        np.testing.assert_array_equal(
            got[:, :, seen], self.rows[:, :, : self.live][:, :, seen]
        )

    def committed(self, lengths, granule):
        """Give the bytes that the geometry says have pages."""
        return Geometry(self.sizes, 2, 4).committed(lengths, granule)


class Attending:
    """Keys and values that attention reads as far as lengths say, and its reference."""

    def __init__(self, room, *, heads=4, kept=2, width=64):
        self.room, self.heads, self.kept, self.width = room, heads, kept, width
        cache, new = f"float[1,{kept},{room},{width}]", f"float[1,{kept},n,{width}]"
        query = f"float[1,{heads},n,{width}]"
        self.text = f"""g ({cache} pk, {cache} pv, {query} q, {new} k, {new} v, int64[1] at,
            int64[1] upto) => ({cache} yk, {cache} yv, {query} z)
            {{ yk = TensorScatter(pk, k, at)  yv = TensorScatter(pv, v, at)
              z = Attention<is_causal = 1>(q, yk, yv, , , , upto) }}"""
        self.states = [
            State("pk", "yk", 2, room, "at", ("k", 2)),
            State("pv", "yv", -2, room, "upto"),
        ]
        self.drawn = np.random.default_rng(11)
        self.reset()

    def reset(self):
        self.keys = np.zeros((1, self.kept, 0, self.width), np.float32)
        self.values = self.keys

    def step(self, count=1):
        """Give feeds of so many tokens more, and the attention that is wanted."""
        at, sizes = self.keys.shape[2], (self.heads, self.kept, self.kept)
        q, k, v = (
            self.drawn.standard_normal((1, n, count, self.width)).astype(np.float32)
            for n in sizes
        )
        self.keys = np.concatenate([self.keys, k], 2)
        self.values = np.concatenate([self.values, v], 2)
        upto = at + count
        feeds = {"q": q, "k": k, "v": v, "at": np.array([at]), "upto": np.array([upto])}
        return feeds, self._attended(q, at)

    def _attended(self, q, at):
        each = self.heads // self.kept
        k, v = (
            np.repeat(x, each, 1).astype(np.float64) for x in (self.keys, self.values)
        )
        scores = q.astype(np.float64) @ k.swapaxes(2, 3) / np.sqrt(self.width)
        seen = np.arange(k.shape[2]) <= at + np.arange(q.shape[2])[:, None]
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v


def captured(pipeline):
    """Give the segments of the last program that are recorded."""
    return list(pipeline.runner.latest().captured.values())


class Grouped(Attending):
    """The same by GroupQueryAttention, whose caches are as long as a number that is fed."""

    def __init__(self, room, *, heads=4, kept=2, width=64):
        super().__init__(room, heads=heads, kept=kept, width=width)
        cache, new = f"float[1,{kept},{room},{width}]", f"float[1,n,{kept * width}]"
        query = f"float[1,n,{heads * width}]"
        grouped = (
            f"com.microsoft.GroupQueryAttention<num_heads={heads}, kv_num_heads={kept}>"
        )
        self.text = f"""g ({cache} pk, {cache} pv, {query} q, {new} k, {new} v, int32[1] last,
            int32 total) => ({cache} yk, {cache} yv, {query} z)
            {{ z, yk, yv = {grouped}(q, k, v, pk, pv, last, total) }}"""
        self.states = [
            State("pk", "yk", 2, room, "last", 1),
            State("pv", "yv", 2, room, "last", 1),
        ]

    def step(self, count=1):
        """Give feeds of so many tokens more, and the attention that is wanted."""
        feeds, want = super().step(count)
        last = int(feeds["upto"][0]) - 1
        flat = {name: self._flat(feeds[name]) for name in "qkv"}
        more = {
            "last": np.array([last], np.int32),
            "total": np.array(last + 1, np.int32),
        }
        return {**flat, **more}, self._flat(want)

    @staticmethod
    def _flat(x):
        return x.transpose(0, 2, 1, 3).reshape(1, x.shape[2], -1)
