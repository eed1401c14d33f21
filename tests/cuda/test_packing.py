"""Four neighbours of 16 bits as one word: the same bits as one by one, where it can be."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cuda.emulation import emulated
from tests.cuda.held import Case, hold
from tests.cuda.plain import groups_of, run

from seamline_cuda.elementwise import generated

drawn = np.random.default_rng(33)
KINDS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float": np.float32}
#: Operand shapes of results that are taken by words.
SHAPES = [
    ((2, 16), (2, 16)), ((3, 8), (8,)), ((3, 8), (3, 1)), ((2, 3, 8), (3, 1)), ((4, 8), ()),
    ((2, 1, 8), (1, 3, 8)), ((16,), (1,)), ((2, 3, 4), (2, 3, 4)),
]  # fmt: skip
#: Of others, and of one that is four in all.
APART = [((3, 6), (3, 6)), ((2, 4), (2, 1)), ((2, 8, 2), (2, 8, 1)), ((3, 4), (3, 1)), ((4,), (4,))]  # fmt: skip


def model_of(shapes, kind="float16", body="t = Mul(a, b)  y = Add(t, a)"):
    sizes = [f"[{','.join(map(str, s))}]" if s else "" for s in (*shapes, np.broadcast_shapes(*shapes))]  # fmt: skip
    inputs = ", ".join(f"{kind}{s} {n}" for s, n in zip(sizes, "ab", strict=False))
    return f"g ({inputs}) => ({kind}{sizes[2]} y) {{ {body} }}"


def feeds_of(shapes, kind="float16"):
    return {
        name: np.asarray(drawn.standard_normal(s) * 3).astype(KINDS[kind])
        for name, s in zip("ab", shapes, strict=True)
    }


def signature(text, place=0):
    (group,) = groups_of(text)
    places = [place] * len((*group.loads, *group.stores))
    return generated(group, places=places).kernel.signature


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_words_give_the_bits_that_elements_give(shapes, kind):
    text, feeds = model_of(shapes, kind), feeds_of(shapes, kind)
    assert "uint64*" in signature(text)
    one, four = run(text, feeds)["y"], run(text, feeds, by_words=True)["y"]
    assert four.view(np.uint16).tolist() == one.view(np.uint16).tolist()
    want = (feeds["a"] * feeds["b"]).astype(KINDS[kind]) + feeds["a"]
    assert one.view(np.uint16).tolist() == want.view(np.uint16).tolist()


@pytest.mark.parametrize("shapes", APART, ids=str)
def test_a_size_that_four_do_not_divide_goes_one_by_one(shapes):
    assert "uint64*" not in signature(model_of(shapes))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (model_of(((2, 8), (2, 8))), 2),
        (model_of(((2, 8), (2, 8)), "float"), 0),
        ("g (float16[16] a) => (bool[16] y) { y = IsNaN(a) }", 0),
        ("g (float16[16] a, bool[16] m) => (float16[16] y) { y = Where(m, a, a) }", 0),
    ],
    ids=["an odd place", "32 bits", "another result", "another operand"],
)
def test_what_is_not_16_bits_on_both_sides_goes_one_by_one(text, place):
    assert "uint64*" not in signature(text, place)


def test_an_operand_that_stands_still_may_have_any_type():
    text = """g (float16[4,8] a, float[4,1] s, bool m) => (float16[4,8] y)
        { h = Cast<to = 10>(s)  t = Where(m, a, a)  y = Neg(t) }"""
    feeds = {
        "a": drawn.standard_normal((4, 8)).astype(np.float16),
        "s": np.ones((4, 1), np.float32),
        "m": np.array(True),
    }
    got = run(text, feeds, by_words=True)["y"]
    np.testing.assert_array_equal(got, -feeds["a"])


@pytest.mark.parametrize("count", [8, 12, 20, 64])
def test_sessions_take_words_run_recorded_and_replayed(count):
    text = f"""g (float16[3,{count}] x, float16[{count}] b) => (float16[3,{count}] y)
        {{ t = Add(x, b)  u = Relu(t)  y = Mul(u, x) }}"""
    with emulated():
        launched, events = hold(Case(text))
    assert launched == ["elementwise_add_relu_mul"]
    assert events == [["recorded"]]
