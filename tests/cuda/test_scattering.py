"""TensorScatter by its kernel's text, against the standard's own pseudocode."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tests.core.toys import model
from tests.cuda.plain import PLAIN, nodes_of

from seamline.claims import collect
from seamline.constants import Constants
from seamline.devices import Device
from seamline.graph import load
from seamline.kernel import Call
from seamline.kernels import KernelProvider
from seamline.provider import Refusal, view_of
from seamline.tensors import type_of_array
from seamline_cuda.scattering import tensor_scatter
from seamline_cuda.table import TABLE
from seamline_cuda.works import Complaint, CopyWork, KernelWork

drawn = np.random.default_rng(9)


def defined(past, update, starts, axis, circular):
    """Follow the standard's pseudocode."""
    present, size = past.copy(), past.shape[axis]
    for prefix in np.ndindex(past.shape[:axis]):
        for step in range(update.shape[axis]):
            at = (0 if starts is None else starts[prefix[0]]) + step
            present[(*prefix, at % size if circular else at)] = update[(*prefix, step)]
    return present


def text_of(past, update, starts, **attributes):
    kinds = {"float32": "float", "float16": "float16", "int8": "int8"}
    dims = [",".join(map(str, a.shape)) for a in (past, update)]
    kind, given = kinds[past.dtype.name], ", ".join(f"{k} = {v}" for k, v in attributes.items())  # fmt: skip
    more = f", int64[{past.shape[0]}] s" if starts is not None else ""
    last = ", s" if starts is not None else ""
    return (
        f"g ({kind}[{dims[0]}] p, {kind}[{dims[1]}] u{more}) => ({kind}[{dims[0]}] y) "
        f"{{ y = TensorScatter{f'<{given}>' if given else ''}(p, u{last}) }}"
    )


def scattered(past, update, starts, **attributes):
    """Do the node's work as plain Python; give the result, and whether it complained."""
    (node,), _ = nodes_of(text_of(past, update, starts, **attributes), 24)
    arrays = [past, update] + ([starts] if starts is not None else [])
    arrays = {1000 * (i + 1): a for i, a in enumerate(arrays)}
    views = [
        SimpleNamespace(
            address=at, shape=a.shape, kind=type_of_array(a), nbytes=a.nbytes
        )
        for at, a in arrays.items()
    ]
    present = np.zeros_like(past)
    arrays[9000] = present
    out = SimpleNamespace(address=9000, shape=past.shape)
    wrong = np.zeros(1, np.uint32)
    for work in tensor_scatter(Call(node, tuple(views), (out,), None, {})):
        if isinstance(work, CopyWork):
            arrays[work.target][...] = arrays[work.source]
            continue
        assert isinstance(work, KernelWork)
        given = [_given(kind, value, arrays, wrong) for kind, value in zip(work.kernel.signature, work.arguments, strict=True)]  # fmt: skip
        scope = dict(PLAIN)
        exec(work.kernel.text, scope)
        scope[work.kernel.name](*given)
    return present, bool(wrong[0])


def _given(kind, value, arrays, wrong):
    if isinstance(value, Complaint):
        return wrong
    if not kind.endswith("*"):
        return value
    return arrays[value].reshape(-1).view(kind[:-1]) if value else None


CASES = {
    "rows of a batch": ((2, 6, 3), (2, 2, 3), [1, 4], {}),
    "heads before the sequence": ((2, 3, 5, 4), (2, 3, 2, 4), [0, 3], {}),
    "the axis counted from the front": (
        (2, 5, 3, 2),
        (2, 1, 3, 2),
        [4, 0],
        {"axis": 1},
    ),
    "no positions": ((1, 4, 3), (1, 4, 3), None, {}),
    "around the end": ((2, 4, 3), (2, 3, 3), [2, 7], {"mode": '"circular"'}),
    "nothing to write": ((2, 4, 3), (2, 0, 3), [2, 1], {}),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
@pytest.mark.parametrize("name", CASES)
def test_rows_go_where_the_standard_says_and_the_rest_stays(name, dtype):
    cache, fresh, starts, attributes = CASES[name]
    past, update = (
        (drawn.standard_normal(s) * 9).astype(dtype) for s in (cache, fresh)
    )
    starts = np.array(starts, np.int64) if starts is not None else None
    axis = attributes.get("axis", -2) % past.ndim
    got, wrong = scattered(past, update, starts, **attributes)
    want = defined(past, update, starts, axis, "mode" in attributes)
    np.testing.assert_array_equal(got, want)
    assert not wrong


@pytest.mark.parametrize("start", [-1, 3, 1 << 40])
def test_a_position_outside_writes_nothing_of_its_batch_and_is_told(start):
    past, update = np.zeros((2, 4, 3), np.float32), np.ones((2, 2, 3), np.float32)
    got, wrong = scattered(past, update, np.array([1, start]))
    assert wrong
    np.testing.assert_array_equal(got[1], past[1])
    np.testing.assert_array_equal(got[0, 1:3], update[0])


@pytest.mark.parametrize("axis", [0, -3])
def test_the_batch_as_the_sequence_is_refused(axis):
    text = f"g (float[2,4,3] p, float[2,1,3] u) => (float[2,4,3] y) {{ y = TensorScatter<axis = {axis}>(p, u) }}"
    provider = KernelProvider(TABLE, device=Device("cuda"))
    graph = load(model(text, 24))
    constants = Constants(graph)
    types = dict(collect(graph, [provider], constants).types)
    answer = provider.claim(view_of(graph.nodes[0], types, constants.get))
    assert isinstance(answer, Refusal)
    assert f"axis {axis} is not the sequence's" in str(answer)
