"""
Random tensors, and Dropout.

A node with a seed gives the same values in every run, so that a warm-up, a replay or a
second session changes nothing; without one each run draws anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import ANY, BOOL, FLOATS
from seamline_cpu.binding import filling, in_order, same_bytes
from seamline_cpu.kernels.recorded import moved
from seamline_cpu.table import TABLE

__all__: list[str] = []


def _generators(call: Call) -> Callable[[], np.random.RandomState]:
    """Give the function that gives the generator for one run."""
    seed = call.attr("seed")
    # ONNX's published cases are drawn from this generator, which NumPy keeps as it is.
    generator = np.random.RandomState(None if seed is None else _seed(seed))
    if seed is None:
        return lambda: generator
    state = generator.get_state()

    def again() -> np.random.RandomState:
        generator.set_state(state)
        return generator

    return again


def _seed(seed: float) -> int:
    """Take whole numbers as they are, others by their bits: 0.5 is as good as 7."""
    if seed == int(seed):
        return int(seed) % 2**32
    return int(np.float32(seed).view(np.uint32))


# --- RandomUniform, RandomNormal ------------------------------------------------------


@TABLE.kernel("RandomUniform")
@TABLE.kernel("RandomUniformLike")
def random_uniform(call: Call) -> Run:
    """Draw from ``[low, high)``."""
    out, generator = call.outputs[0], _generators(call)
    low, high = call.attr("low", 0.0), call.attr("high", 1.0)

    def run() -> None:
        np.copyto(out, generator().uniform(low, high, out.shape), casting="unsafe")

    return run


@TABLE.kernel("RandomNormal")
@TABLE.kernel("RandomNormalLike")
def random_normal(call: Call) -> Run:
    """Draw from the normal distribution of ``mean`` and standard deviation ``scale``."""
    out, generator = call.outputs[0], _generators(call)
    mean, scale = call.attr("mean", 0.0), call.attr("scale", 1.0)

    def run() -> None:
        np.copyto(out, generator().normal(mean, scale, out.shape), casting="unsafe")

    return run


# --- Bernoulli, Multinomial -----------------------------------------------------------


@TABLE.kernel("Bernoulli", dtypes=FLOATS)
def bernoulli(call: Call) -> Run:
    """Give 1 with the probability that the element is."""
    p, out, generator = call.inputs[0], call.outputs[0], _generators(call)

    def run() -> None:
        drawn = generator().random_sample(p.shape) < p.astype(np.float64)
        np.copyto(out, drawn, casting="unsafe")

    return run


@TABLE.kernel("Multinomial", dtypes=FLOATS)
def multinomial(call: Call) -> Run:
    """Draw classes by unnormalised log-probabilities, by the inverse of their sums."""
    scores, out, generator = call.inputs[0], call.outputs[0], _generators(call)

    def run() -> None:
        if not out.size:
            return
        logits = scores.astype(np.float64)
        top = logits.max(axis=1, keepdims=True)
        if not np.isfinite(top).all():
            row = int(np.flatnonzero(~np.isfinite(top[:, 0]))[0])
            raise ValueError(f"row {row} has no finite largest log-probability")
        sums = np.cumsum(np.exp(logits - top), axis=1)
        drawn = generator().random_sample(out.shape) * sums[:, -1:]
        for target, row_sums, row_drawn in zip(out, sums, drawn, strict=True):
            # Of equal sums the right one: a class of probability 0 is never drawn.
            found = np.searchsorted(row_sums, row_drawn, side="right")
            target[:] = np.minimum(found, np.searchsorted(row_sums, row_sums[-1]))

    return run


# --- Dropout --------------------------------------------------------------------------


def _always(node: NodeView, index: int) -> Any:
    """Give a scalar input's constant value, or None where it may change."""
    value = node.constant(index)
    return None if value is None else value.reshape(-1)[0]


def _may_drop(node: NodeView) -> str | None:
    if not node.has_input(2):
        return None
    training, ratio = _always(node, 2), _always(node, 1)
    off = training is not None and not training
    nothing_dropped = ratio is not None and ratio == 0
    return None if off or nothing_dropped else "training mode may drop elements"


@TABLE.kernel(
    "Dropout", since=(7, 11), dtypes=ANY, views=((0, 0),), not_capturable=moved
)
@TABLE.kernel(
    "Dropout",
    since=12,
    dtypes=ANY,
    when=_may_drop,
    views=((0, 0),),
    not_capturable=moved,
)
def dropout_inference(call: Call) -> Run:
    """Give the input; the mask keeps everything."""
    runs = []
    if call.output(0) is not None:
        runs.append(same_bytes(call.inputs[0], call.outputs[0]))
    if call.output(1) is not None:
        runs.append(filling(np.ones((), call.outputs[1].dtype), call.outputs[1]))
    return in_order(runs)


@TABLE.kernel(
    "Dropout", since=12, dtypes={0: FLOATS, 1: FLOATS, 2: BOOL}, aliases=((0, 0),)
)
def dropout_training(call: Call) -> Run:
    """Set elements to 0 with probability ``ratio``, scale the others by 1 / (1 - ratio)."""
    x, out, mask = call.inputs[0], call.outputs[0], call.output(1)
    ratio_of, training, generator = call.input(1), call.inputs[2], _generators(call)

    def run() -> None:
        ratio = 0.5 if ratio_of is None else float(ratio_of.reshape(-1)[0])
        if not 0 <= ratio < 1:
            raise ValueError(f"ratio is {ratio}, outside [0, 1)")
        if not training.reshape(-1)[0] or ratio == 0:
            _keep(x, out, mask)
            return
        kept = generator().random_sample(x.shape) >= ratio
        if out is not None:
            scaled = x.astype(np.float64) / (1 - ratio)
            np.copyto(out, np.where(kept, scaled, 0), casting="unsafe")
        if mask is not None:
            np.copyto(mask, kept)

    return run


def _keep(x: Array, out: Array | None, mask: Array | None) -> None:
    if out is not None:
        np.copyto(out, x)
    if mask is not None:
        mask.fill(True)
