"""Who runs what: pins, order, measured rates, and what is said when nobody can."""

from __future__ import annotations

import attrs
import pytest
from onnx import parser
from tests.core.toys import FAR, toys

from seamline.claims import collect
from seamline.errors import PinError, UnclaimedNodeError
from seamline.graph import load
from seamline.placement import Rates, place
from seamline.provider import HOST, Claim, Cost

TEXT = """<ir_version: 10, opset_import: ["" : 18]>
g (float[4] x) => (float[4] y) {
    [layer_0_neg] a = Neg(x)
    [layer_0_abs] b = Abs(a)
    [layer_1_neg] c = Neg(b)
    [Abs] y = Relu(c)
}"""


def placed(declined=None, order=("a", "b"), **chosen):
    claims = claimed(declined, order)
    devices = {name: FAR if name == "far" else HOST for name in order}
    return place(claims, devices, **chosen)


def claimed(declined=None, order=("a", "b")):
    made = toys(declined)
    return collect(load(parser.parse_model(TEXT)), [made[name] for name in order])


def who(placement):
    return {name: choice.provider for name, choice in placement.choices.items()}


def test_the_first_provider_that_claims_a_node_runs_it_and_says_so():
    placement = placed({"a": ["layer_0_abs"]})
    assert who(placement)["layer_0_abs"] == "b"
    assert "refused by a" in placement.choices["layer_0_abs"].reason
    assert who(placement)["layer_0_neg"] == "a"
    assert placement.choices["layer_0_neg"].reason == "a is first in order"


def test_the_order_of_the_providers_decides():
    assert set(who(placed(order=("b", "a"))).values()) == {"b"}


def test_a_pin_by_operator_moves_its_nodes_alone():
    found = who(placed(pins={"Neg": "b"}))
    assert [name for name, provider in found.items() if provider == "b"] == [
        "layer_0_neg",
        "layer_1_neg",
    ]


def test_a_name_is_stronger_than_a_pattern_and_a_pattern_than_an_operator():
    pins = {"Neg": "a", "layer_0_*": "b", "layer_0_neg": "far"}
    found = who(placed(order=("a", "b", "far"), pins=pins))
    assert found["layer_0_neg"] == "far"
    assert found["layer_0_abs"] == "b"
    assert found["layer_1_neg"] == "a"


def test_a_name_that_is_an_operator_too_is_taken_as_the_name():
    found = who(placed(pins={"Abs": "b"}))
    assert found["Abs"] == "b"
    assert found["layer_0_abs"] == "a"


def test_of_two_patterns_the_first_holds():
    assert who(placed(pins={"layer_*": "b", "*_neg": "a"}))["layer_0_neg"] == "b"


def test_a_pin_says_in_the_reason_that_it_was_kept():
    choice = placed(pins={"layer_?_neg": "b"}).choices["layer_1_neg"]
    assert choice.reason == "pinned by 'layer_?_neg'"
    assert choice.pinned


def test_a_pin_that_matches_nothing_names_near_matches():
    with pytest.raises(PinError, match=r"'layer_0_ned' matches no node.*layer_0_neg"):
        placed(pins={"layer_0_ned": "b"})


def test_a_pin_to_a_provider_that_is_not_there_names_those_that_are():
    with pytest.raises(PinError, match=r"no such provider.*it has: a, b"):
        placed(pins={"Neg": "c"})


def test_a_pin_that_its_provider_refuses_says_why_and_who_would_take_it():
    with pytest.raises(PinError, match=r"the test said so.*claimed by a"):
        placed({"b": ["layer_0_neg"]}, pins={"Neg": "b"})


def test_nodes_that_nobody_claims_are_listed_with_every_refusal():
    declined = {"a": ["layer_0_neg", "Abs"], "b": ["layer_0_neg", "Abs"]}
    with pytest.raises(UnclaimedNodeError, match="2 nodes") as caught:
        placed(declined)
    assert caught.value.refusals == {
        name: {"a": "the test said so", "b": "the test said so"}
        for name in ("layer_0_neg", "Abs")
    }


def test_a_node_on_a_provider_that_was_not_named_is_a_fallback_with_reasons():
    placement = placed({"a": ["Abs"]}, named=("a",))
    assert placement.fallbacks == {"Abs": {"a": "the test said so"}}


# --- measured rates -------------------------------------------------------------------

FAST = Rates(flops=1e12, bytes=1e12, link=1e12)
SLOW = Rates(flops=1e6, bytes=1e6)
WORK = Cost(flops=10**6, bytes_read=1000, bytes_written=1000)


def rated(rates, cost=WORK, order=("a", "far")):
    claims = claimed(order=order)
    answers = {
        node: {
            name: attrs.evolve(said, cost=cost) if isinstance(said, Claim) else said
            for name, said in given.items()
        }
        for node, given in claims.answers.items()
    }
    devices = {name: FAR if name == "far" else HOST for name in order}
    return place(attrs.evolve(claims, answers=answers), devices, rates=rates)


def test_measured_rates_move_a_node_to_where_it_is_faster():
    placement = rated({"a": SLOW, "far": FAST})
    assert set(who(placement).values()) == {"far"}
    assert "measured rates predict" in placement.choices["layer_0_neg"].reason


def test_moves_count_and_a_slow_link_keeps_a_node():
    slow_link = attrs.evolve(FAST, link=10.0)
    assert set(who(rated({"a": SLOW, "far": slow_link})).values()) == {"a"}


@pytest.mark.parametrize(
    "rates",
    [
        {},
        {"far": FAST},
        {"a": SLOW},
        {"a": SLOW, "far": attrs.evolve(FAST, flops=None)},
        {"a": SLOW, "far": attrs.evolve(FAST, bytes=None)},
        {"a": attrs.evolve(SLOW, flops=None), "far": FAST},
        {"a": SLOW, "far": attrs.evolve(FAST, link=None)},
    ],
)
def test_a_rate_that_is_not_known_moves_nothing(rates):
    assert set(who(rated(rates)).values()) == {"a"}


def test_a_cost_that_is_not_known_moves_nothing():
    assert set(who(rated({"a": SLOW, "far": FAST}, cost=None)).values()) == {"a"}


def test_the_slower_of_arithmetic_and_traffic_is_the_time():
    rates = Rates(flops=10.0, bytes=100.0)
    assert rates.seconds(Cost(100, 0, 0)) == 10.0
    assert rates.seconds(Cost(100, 1000, 1000)) == 20.0
    assert Rates(flops=10.0).seconds(Cost(1, 1, 1)) is None
