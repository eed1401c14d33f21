"""Asking providers: one that breaks the contract is set aside, and its nodes go on."""

from __future__ import annotations

import pytest
from onnx import parser
from tests.core.toy_kernels import definitions_table
from tests.core.toys import Toy, open_over, toys

from seamline.claims import CORE, collect
from seamline.errors import ContractError
from seamline.graph import load
from seamline.provider import Claim, Refusal

TEXT = """<ir_version: 10, opset_import: ["" : 18]>
g (float[4] x, bool c) => (float[4] y) {
    [one] a = Neg(x)
    [two] b = Abs(a)
    [three] y = If(c) <
        then_branch = t () => (float[4] u) { [four] u = Neg(b) },
        else_branch = e () => (float[4] w) { [five] w = Abs(b) }>
}"""


class Odd(Toy):
    """Answers as its table does, but for one node."""

    odd_at = "two"
    answer = None

    def claim(self, node):
        if node.name == self.odd_at:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer
        return super().claim(node)


def collected(answer, at="two"):
    odd = Odd(definitions_table("a"))
    odd.answer, odd.odd_at = answer, at
    asked = toys()["b"]
    return collect(load(parser.parse_model(TEXT)), [odd, asked])


def test_every_node_is_asked_about_bodies_too_and_the_core_takes_control_flow():
    claims = collected(Refusal("no"))
    assert list(claims.answers) == ["one", "two", "three", "four", "five"]
    assert list(claims.answers["three"]) == [CORE]
    assert claims.refusals("two") == {"a": "no"}
    assert list(claims.offers("four")) == ["a", "b"]
    assert claims.quarantined == {}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            ValueError("it broke"),
            r"raised ValueError: it broke for node 'two' \(Abs\) at .*py",
        ),
        (None, r"gave NoneType \(None\) for node 'two'"),
        (True, r"gave bool \(True\)"),
        ("yes", r"gave str \('yes'\)"),
        (Refusal(""), "a refusal without a reason"),
        (Claim(""), "a claim without a variant"),
        (Claim("v", aliases=((0, -1),)), r"the alias \(0, -1\)"),
        (Claim("v", host_inputs=frozenset([-1])), r"host inputs \[-1\]"),
    ],
    ids=str,
)
def test_a_provider_that_breaks_the_contract_is_quarantined_with_its_reason(
    answer, said
):
    claims = collected(answer)
    assert list(claims.quarantined) == ["a"]
    with pytest.raises(ContractError, match=said):
        raise claims.quarantined["a"]


def test_what_a_quarantined_provider_offered_before_counts_no_more():
    claims = collected(None)
    for node in ("one", "two", "four", "five"):
        assert list(claims.offers(node)) == ["b"]
        assert claims.refusals(node)["a"].startswith("quarantined: ")


def test_a_quarantined_provider_is_asked_no_further():
    odd = Odd(definitions_table("a"))
    asked = []
    inner = odd.claim

    def claim(node):
        asked.append(node.name)
        return inner(node)

    odd.claim = claim
    collect(load(parser.parse_model(TEXT)), [odd])
    assert asked == ["one", "two"]


def test_the_error_that_a_provider_raised_is_the_cause():
    raised = ValueError("it broke")
    assert collected(raised).quarantined["a"].__cause__ is raised


def test_an_inference_that_raises_is_quarantined_too():
    text = """<ir_version: 10, opset_import: ["" : 18, "mine" : 1]>
    g (float[4] x) => (y) { [one] y = mine.Twice(x) }"""
    table = definitions_table("a")
    table.simple("Twice", domain="mine")(lambda x: 2 * x)

    @table.infer("Twice", domain="mine")
    def infer(node):
        raise LookupError("no types here")

    claims = collect(load(parser.parse_model(text)), [Toy(table)])
    assert "infer() raised LookupError: no types here" in str(claims.quarantined["a"])


def test_a_named_provider_that_breaks_the_contract_is_an_error():
    odd = Odd(definitions_table("a"))
    with pytest.raises(ContractError, match="provider 'a': claim"):
        open_over(parser.parse_model(TEXT), odd)
    assert odd.is_closed
