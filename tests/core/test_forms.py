"""Forms of excursions as the core sees them: prices, choices, and providers that misbehave."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from tests.core.toy_kernels import definitions_table
from tests.core.toys import FAR, Toy, model, open_over

from seamline.devices import Device
from seamline.errors import ContractError, RecordingError
from seamline.forms import FormPrice, SeamForm, prices_of
from seamline.serving import Spent, following, serve, waited

f32 = np.float32
TEXT = "g (float[4] x) => (float[4] y) { [a] a = Neg(x) [b] b = Abs(a) [c] y = Neg(b) }"
EAGER = FormPrice(SeamForm.EAGER, 50.0, 10.0, 10.0, "made up")
MAILBOX = FormPrice(SeamForm.MAILBOX, 10.0, 1000.0, 0.0, "made up")
NODE = FormPrice(
    SeamForm.HOST_NODE, 1.0, 0.0, 0.0, "made up", impossible="no such call"
)


class Chaining(Toy):
    """A far device that says it records chains, and does what a test says then."""

    captures = True

    def __init__(self, prices=(EAGER, MAILBOX, NODE), record=None):
        super().__init__(definitions_table("far"), device=FAR)
        self.prices, self.record = prices, record

    def claim(self, node):
        return attrs.evolve(super().claim(node), not_capturable=None)

    def forms(self):
        return self.prices

    def record_chain(self, chain):
        return self.record(chain)


class Recording:
    """Does a chain's work by its parts, as a provider that replays eagerly would."""

    def __init__(self, chain, memory):
        self.parts = []
        for part in chain.parts:
            if hasattr(part, "run"):
                self.parts.append(part.run)
                continue
            outs = [np.empty(v.kind.sizes, v.kind.dtype) for v in part.outward]
            ins = [np.empty(v.kind.sizes, v.kind.dtype) for v in part.inward]
            work = part.prepare(outs, ins)
            self.parts.append(self._excursion(memory, part, work, outs, ins))

    def _excursion(self, memory, part, work, outs, ins):
        def run():
            for view, array in zip(part.outward, outs, strict=True):
                memory.read(view, array)
            work()
            for view, array in zip(part.inward, ins, strict=True):
                memory.write(view, array)

        return run

    def replay(self):
        for run in self.parts:
            run()

    def close(self):
        self.parts = None


def opened(far, **chosen):
    host = Toy(definitions_table("a"))
    return open_over(model(TEXT), far, host, pins={"b": "a"}, **chosen)


def right(pipeline):
    x = np.array([1, -2, 3, -4], f32)
    np.testing.assert_array_equal(pipeline.run({"x": x})[0], -np.abs(x))


def test_the_bytes_that_move_decide_between_forms():
    assert MAILBOX.us(0, 1 << 20) < EAGER.us(0, 1 << 20)
    assert MAILBOX.us(1 << 20, 0) > EAGER.us(1 << 20, 0)


def test_any_provider_can_have_chains_that_the_core_records_and_verifies():
    far = Chaining()
    far.record = lambda chain: Recording(chain, far.memory())
    pipeline = opened(far, verify_capture=1)
    for _ in range(4):
        right(pipeline)
    (chain,) = pipeline.runner.latest().chains.values()
    assert chain.events == ["recorded", "verified"]
    (excursion,) = pipeline.runner.latest().plan.excursions
    assert excursion.form is SeamForm.MAILBOX
    assert excursion.refused == {SeamForm.HOST_NODE: "no such call"}
    pipeline.close()


@pytest.mark.parametrize(
    ("asked", "taken", "reason"),
    [
        ("eager", "eager", "asked for"),
        ("mailbox", "mailbox", "asked for"),
        ("host_node", "eager", "host_node was asked for, and cannot be: no such call"),
    ],
)
def test_a_form_that_was_asked_for_is_taken_or_its_reason_is_given(
    asked, taken, reason
):
    pipeline = opened(Chaining(), seam_form=asked)
    (excursion,) = pipeline.plan({"x": (4,)}).excursions
    assert (str(excursion.form), excursion.reason) == (taken, reason)
    pipeline.close()


def no_recording(chain):
    return None


def refuses(chain):
    raise RecordingError("not today", provider="far", segment=chain.name)


def breaks(chain):
    raise ZeroDivisionError("by accident")


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (no_recording, "NoneType without replay"),
        (refuses, "not today"),
        (breaks, "by accident"),
    ],
)
def test_a_chain_that_cannot_be_recorded_runs_step_by_step_and_says_why(record, why):
    pipeline = opened(Chaining(record=record))
    for _ in range(3):
        right(pipeline)
    (chain,) = pipeline.runner.latest().chains.values()
    assert chain.state == "eager"
    assert why in chain.why
    assert why in str(pipeline.explain())
    pipeline.close()


@pytest.mark.parametrize(
    ("prices", "why"),
    [
        ((MAILBOX,), "no price of 'eager'"),
        (("mailbox",), "a str, which is no price"),
        (None, r"forms\(\) raised TypeError"),
    ],
)
def test_forms_that_are_none_break_the_contract_and_are_named(prices, why):
    with pytest.raises(ContractError, match=why):
        prices_of(Chaining(prices))


def test_a_provider_without_forms_has_no_prices_and_its_plan_no_excursions():
    host, far = Toy(definitions_table("a")), Toy(definitions_table("far"), device=FAR)
    assert prices_of(far) == {}
    pipeline = open_over(model(TEXT), far, host, pins={"b": "a"})
    assert pipeline.plan({"x": (4,)}).excursions == ()
    pipeline.close()


def test_another_device_between_two_segments_keeps_an_excursion_eager():
    other = Toy(definitions_table("b"), device=Device("other"))
    pipeline = open_over(
        model(TEXT), Chaining(), other, pins={"b": "b"}, seam_form="mailbox"
    )
    (excursion,) = pipeline.plan({"x": (4,)}).excursions
    assert excursion.form is SeamForm.EAGER
    assert "other:0" in excursion.reason
    pipeline.close()


# --- serving ----------------------------------------------------------------------------


class Letters:
    """A device that asks at once, and keeps what it is told."""

    def __init__(self):
        self.told = []

    def wait(self, turn):
        self.told.append(("wait", turn))

    def answer(self, turn):
        self.told.append(("answer", turn))

    def abort(self):
        self.told.append(("abort",))


def test_turns_are_served_in_order_and_timed():
    mail, spent, done = Letters(), Spent(("p", "q")), []
    works = [("p", lambda: done.append("p")), ("q", lambda: done.append("q"))]
    serve(mail, 5, works, spent)
    assert done == ["p", "q"]
    assert mail.told == [("wait", 5), ("answer", 5), ("wait", 6), ("answer", 6)]
    spent.note_whole("q", 1e9)
    assert set(spent.medians()) == {"q"}
    assert following(5, 2) == 7


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_work_that_raises_is_told_to_the_device_and_raised(error):
    mail = Letters()

    def fail():
        raise error

    with pytest.raises(error):
        serve(mail, 1, [("p", fail), ("q", fail)], Spent(("p", "q")))
    assert mail.told == [("wait", 1), ("abort",)]


def test_waiting_asks_now_and_then_whether_it_is_in_vain():
    looks = []

    def check():
        looks.append(1)
        if len(looks) == 3:
            raise RecordingError("in vain")

    with pytest.raises(RecordingError, match="in vain"):
        waited(lambda: False, check)
    waited(lambda: True, check)
    assert len(looks) == 3
