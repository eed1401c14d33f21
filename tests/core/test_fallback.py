"""What happens where a provider is missing, breaks the contract, or cannot build."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tests.core.failing_toys import TEXT, OddError, Raw, cpu, failing_table, wanted
from tests.core.toy_kernels import definitions_table
from tests.core.toys import ALONE, Toy, model, open_over, plugin, toys

from seamline.errors import (
    BuildError,
    ContractError,
    PinError,
    UnavailableProviderError,
    UnclaimedNodeError,
    UnknownProviderError,
)
from seamline.hookspecs import hookimpl
from seamline.kernels import KernelTable
from seamline.pipeline import Pipeline, SeamlineWarning
from seamline.provider import Availability, ProviderSpec, Refusal

f32 = np.float32


def test_a_node_that_no_named_provider_claims_is_an_error_that_lists_refusals():
    a = toys({"a": ["two"]})["a"]
    with pytest.raises(
        UnclaimedNodeError, match=r"'two' \(Abs\)\n.*a: the test said so"
    ):
        open_over(model(TEXT), a, cpu(), providers=["a"])
    assert a.is_closed


def test_a_node_that_no_named_provider_claims_falls_back_with_a_warning():
    a, last = toys({"a": ["two"]})["a"], cpu()
    with pytest.warns(
        SeamlineWarning, match="node 'two' falls back to cpu: a: the test"
    ):
        pipeline = open_over(model(TEXT), a, last, providers=["a"], fallback="warn")
    x = np.array([1, -2], f32)
    np.testing.assert_array_equal(pipeline.run({"x": x})[0], wanted(x))
    assert last.built == ["two"]
    pipeline.close()


def test_a_fallback_that_is_allowed_is_noted_and_warns_of_nothing():
    a = toys({"a": ["two"]})["a"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline = open_over(model(TEXT), a, cpu(), providers=["a"], fallback="allow")
    assert any("'two' falls back to cpu" in note for note in pipeline.notes)
    pipeline.close()


class Absent:
    """Offers a provider that cannot be used here."""

    CONTRACT_VERSION = 1

    @hookimpl
    def seamline_providers(self):
        absent = Availability(False, "there is no such device", "buy one")
        toy = Toy(KernelTable("absent"))
        return [ProviderSpec("absent", lambda _: toy, probe=lambda: absent)]


def open_absent(fallback):
    return Pipeline.open(
        model(TEXT),
        providers=["absent"],
        fallback=fallback,
        plugins=[Absent(), plugin(cpu())],
        settings=ALONE,
    )


def test_an_unavailable_provider_is_an_error_that_says_how_to_fix_it():
    with pytest.raises(
        UnavailableProviderError, match=r"no such device\. To fix: buy one"
    ):
        open_absent("error")


def test_an_unavailable_provider_is_dropped_with_a_warning():
    with pytest.warns(SeamlineWarning) as caught:
        pipeline = open_absent("warn")
    assert any("dropped: provider 'absent'" in str(w.message) for w in caught)
    assert pipeline.run({"x": np.ones(2, f32)})[0].tolist() == [2, 2]
    pipeline.close()


def test_an_unknown_provider_is_an_error_that_names_near_ones():
    with pytest.raises(UnknownProviderError, match="did you mean 'cpu'"):
        open_over(model(TEXT), cpu(), providers=["cpux"])


class Quarrelsome(Toy):
    def claim(self, node):
        return None if node.name == "two" else super().claim(node)


def test_a_named_provider_that_breaks_the_contract_is_an_error_or_is_set_aside():
    with pytest.raises(ContractError, match="gave NoneType"):
        open_over(model(TEXT), Quarrelsome(definitions_table("a")))
    broken, last = Quarrelsome(definitions_table("a")), cpu()
    with pytest.warns(SeamlineWarning, match=r"claim\(\) gave NoneType"):
        pipeline = open_over(
            model(TEXT), broken, last, providers=["a"], fallback="warn"
        )
    assert pipeline.run({"x": np.ones(2, f32)})[0].tolist() == [2, 2]
    assert broken.built == []
    pipeline.close()


def test_a_segment_that_cannot_be_built_is_an_error_where_fallback_is():
    raw = Raw(definitions_table("a"))
    raw.fails = "build"
    pipeline = open_over(model(TEXT), raw, cpu(), providers=["a"])
    with pytest.raises(BuildError, match="not today"):
        pipeline.run({"x": np.ones(2, f32)})
    pipeline.close()


def test_a_segment_that_cannot_be_built_moves_whole_to_who_claims_its_nodes():
    raw, last = Raw(definitions_table("a")), cpu()
    raw.fails = "build"
    pipeline = open_over(model(TEXT), raw, last, providers=["a"], fallback="warn")
    with pytest.warns(
        SeamlineWarning, match=r"one, three, two moved from a: .*not today"
    ):
        got = pipeline.run({"x": np.ones(2, f32)})
    assert got[0].tolist() == [2, 2]
    assert last.built == ["one", "two", "three"]
    assert set(pipeline.assignments().values()) == {"cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is not tried again
        pipeline.run({"x": np.ones(3, f32)})
    pipeline.close()
    assert raw.calls.open == last.calls.open == 0


def test_a_node_that_cannot_be_bound_moves_alone():
    table, _ = failing_table("a", at="bind")
    a, last = Toy(table), cpu()
    pipeline = open_over(model(TEXT), a, last, providers=["a"], fallback="allow")
    assert pipeline.run({"x": np.ones(2, f32)})[0].tolist() == [2, 2]
    assert last.built == ["two"]
    assert any(note.startswith("two moved from a:") for note in pipeline.notes)
    pipeline.close()


def test_a_failed_build_that_nobody_else_claims_lists_what_everyone_said():
    raw = Raw(definitions_table("a"))
    raw.fails = "build"
    last = cpu(declined=["two"])
    pipeline = open_over(model(TEXT), raw, last, providers=["a"], fallback="allow")
    with pytest.raises(UnclaimedNodeError, match="a: its build failed") as caught:
        pipeline.run({"x": np.ones(2, f32)})
    assert caught.value.refusals["two"]["cpu"] == "the test said so"
    pipeline.close()


# --- asked again with sizes known -----------------------------------------------------


class Small(Toy):
    """Takes nodes whose sizes it does not know; refuses them once they are large."""

    def claim(self, node):
        kind = node.tensor(0)
        if kind is not None and kind.is_sized and kind.sizes[0] > 2:
            return Refusal(f"{kind.sizes[0]} is too many")
        return super().claim(node)


def test_a_provider_that_refuses_once_sizes_are_known_leaves_the_node_to_the_next():
    small, b = Small(definitions_table("a")), toys()["b"]
    pipeline = open_over(model(TEXT), small, b)
    for size in (2, 3, 2):
        x = np.arange(size, dtype=f32)
        np.testing.assert_array_equal(pipeline.run({"x": x})[0], wanted(x))
    reasons = {c.reason for c in pipeline.plan({"x": [3]}).choices.values()}
    assert reasons == {"with sizes known, refused by a"}
    assert b.built == ["one", "two", "three"]
    pipeline.close()


def test_a_pin_is_not_quietly_given_up_once_sizes_are_known():
    small, b = Small(definitions_table("a")), toys()["b"]
    pipeline = open_over(model(TEXT), small, b, pins={"Abs": "a"})
    with pytest.raises(
        PinError, match=r"'two' \(Abs\) is pinned by 'Abs'.*3 is too many"
    ):
        pipeline.run({"x": np.ones(3, f32)})
    pipeline.close()


class Fickle(Toy):
    """Breaks the contract only when it is asked again."""

    asked = 0

    def claim(self, node):
        if node.inputs[0].is_sized:
            raise OddError("not today")
        return super().claim(node)


def fickle(**chosen):
    return open_over(model(TEXT), Fickle(definitions_table("a")), toys()["b"], **chosen)


def test_a_provider_that_breaks_the_contract_when_asked_again_is_an_error_that_names_it():
    pipeline = fickle()
    with pytest.raises(BuildError, match=r"claim\(\) (gave|raised)") as caught:
        pipeline.run({"x": np.ones(2, f32)})
    assert caught.value.provider == "a"
    assert caught.value.node
    pipeline.close()


def test_it_leaves_the_node_to_others_where_fallback_allows_and_says_so():
    pipeline = fickle(fallback="allow")
    assert pipeline.run({"x": np.ones(2, f32)})[0].tolist() == [2, 2]
    assert any("moved from a" in note for note in pipeline.notes)
    pipeline.close()


def test_nobody_left_once_sizes_are_known_is_an_error_that_says_so():
    pipeline = open_over(model(TEXT), Small(definitions_table("a")))
    with pytest.raises(UnclaimedNodeError, match="with sizes known: 3 is too many"):
        pipeline.run({"x": np.ones(3, f32)})
    assert pipeline.run({"x": np.ones(2, f32)})[0].tolist() == [2, 2]
    pipeline.close()
