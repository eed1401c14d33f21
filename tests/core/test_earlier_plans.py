"""Plans for other sizes of the same inputs: what they found is found once."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from tests.core.toy_kernels import definitions_table
from tests.core.toys import Toy, model, open_over

from seamline.earlier import Earlier
from seamline.tensors import TensorType

f32 = np.float32
#: A token's values beside a past that grows; only what reads the past changes.
GROWING = """g (float[1,4] x, float[past,4] old) => (y, new) {
    [a] a = Neg(x)
    [b] b = Abs(a)
    [c] new = Concat<axis=0>(old, b)
    axes = Constant<value_ints=[0]>()
    [s] s = ReduceSum(new, axes)
    [y] y = Add(s, b)
}"""


class Asked(Toy):
    """Notes which nodes it is asked about."""

    asked = ()

    def claim(self, node):
        self.asked = (*self.asked, node.name)
        return super().claim(node)


def opened(text, more=""):
    provider = Asked(definitions_table("a"))
    return contextlib.closing(open_over(model(text, more=more), provider)), provider


def grown(past):
    return {"x": np.full((1, 4), -2, f32), "old": np.ones((past, 4), f32)}


def test_a_provider_is_asked_again_only_where_a_node_sees_other_types():
    opening, provider = opened(GROWING)
    with opening as pipeline:
        pipeline.run(grown(2))
        for past in (3, 4):
            provider.asked = ()
            y, new = pipeline.run(grown(past))
            assert set(provider.asked) == {"c", "s"}
            assert new.shape == (past + 1, 4)
            np.testing.assert_array_equal(y, np.full((1, 4), past + 4))


def test_sizes_that_come_back_after_others_ask_nobody():
    opening, provider = opened(GROWING)
    with opening as pipeline:
        for past in (2, 3):
            pipeline.run(grown(past))
        pipeline.runner.close()  # programs are gone, and what their plans found is not
        provider.asked = ()
        pipeline.run(grown(2))
        assert provider.asked == ()


def test_a_plan_after_others_is_the_plan_that_a_new_session_makes():
    opening, _ = opened(GROWING)
    with opening as pipeline:
        for past in (2, 5, 3):
            pipeline.run(grown(past))
        after = pipeline.explain().data["plan"]
    opening, _ = opened(GROWING)
    with opening as pipeline:
        pipeline.run(grown(3))
        fresh = pipeline.explain().data["plan"]
    assert after == fresh


def test_values_that_follow_from_sizes_are_found_for_each():
    text = """g (float[2,6] x, float[a,b] like) => (y) {
        [h] h = Neg(x)  [s] s = Shape(like)  [y] y = Reshape(h, s)
    }"""
    x = np.arange(12, dtype=f32).reshape(2, 6)
    opening, _ = opened(text)
    with opening as pipeline:
        for shape in ((3, 4), (4, 3), (1, 12), (4, 3)):
            (y,) = pipeline.run({"x": x, "like": np.ones(shape, f32)})
            np.testing.assert_array_equal(y, -x.reshape(shape))


def test_few_are_kept_of_a_node_and_none_for_another_owner():
    earlier, kinds = Earlier(), [(TensorType("float32", (n,)),) for n in range(9)]
    for number, seen in enumerate(kinds):
        earlier.keep("n", seen, number)
    found = [earlier.get("n", seen) for seen in kinds]
    assert found == [None] * 5 + [5, 6, 7, 8]
    one, other = object(), object()
    earlier.of(one).keep("n", kinds[0], 0)
    assert earlier.of(one).get("n", kinds[0]) == 0
    assert earlier.of(other).get("n", kinds[0]) is None


@pytest.mark.parametrize(("size", "times"), [("2", 1), ("n", 2)])
def test_types_that_rules_were_told_are_found_once_where_sizes_are_known(size, times):
    table, asked = definitions_table("a"), []
    table.kernel("Twice", domain="mine")(lambda call: lambda: None)

    @table.infer("Twice", domain="mine")
    def same(node):
        asked.append(node.name)
        return [node.inputs[0]]

    text = f"""g (float[{size}] x) => (y) {{
        [c] c = Cast<to=1>(x)  [t] t = mine.Twice(c)  [y] y = Neg(t)
    }}"""
    provider = Toy(table)
    source = model(text, more=', "mine" : 1')
    pipeline = open_over(source, provider, graph_optimization_level="basic")
    with contextlib.closing(pipeline):
        assert [one.rule for one in pipeline.optimized.rewrites] == ["cast"]
        assert asked == ["t"] * times
        assert str(pipeline.types["t"]) == f"float32[{size}]"
