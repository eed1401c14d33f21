"""Excursions to the host inside one recorded graph: right in every form and failure."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="the extra 'cuda' is not installed")

from tests.core.toys import ALONE, model
from tests.testing.twin.test_chains import AwkwardPlugin
from tests.testing.twin.test_sessions import HostPlugin

import seamline_cuda.plugin
from seamline.devices import Gauges
from seamline.errors import DeadlineError, KernelError
from seamline.forms import SeamForm
from seamline.pipeline import Pipeline

f32 = np.float32
RECORDED = ("mailbox", "host_node")
TEXT = """g (float[n] x) => (y, z) {
    [a] a = Neg(x) [b] b = Abs(a) [c] c = Add(b, a) [d] d = Sub(c, b) [e] y = Mul(d, c)
    [f] z = Relu(d) }"""
PINS = {"b": "cpu", "d": "cpu"}


class Opened:
    """A session over the emulated device and a host that checks what it is handed."""

    def __init__(self, source=TEXT, *, pins=PINS, host=None, patience=5.0, **chosen):
        self.pipeline = Pipeline.open(
            model(source, 23),
            providers=[("cuda", {"answer_deadline": patience}), "cpu"],
            pins=pins,
            plugins=[seamline_cuda.plugin, host or HostPlugin()],
            settings=ALONE,
            **chosen,
        )
        self.memory = self.pipeline.providers["cuda"].memory()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pipeline.close()
        assert self.memory.gauges() == Gauges()

    def right(self, x):
        c = np.abs(x) - x
        d = c - np.abs(x)
        got = self.pipeline.run({"x": x})
        np.testing.assert_array_equal(got[0], d * c)
        np.testing.assert_array_equal(got[1], np.maximum(d, 0))

    @property
    def chain(self):
        (chain,) = self.pipeline.runner.latest().chains.values()
        return chain


def values(size, scale=1.0):
    return (np.linspace(-3, 5, size) * scale).astype(f32)


@pytest.mark.parametrize("form", ["eager", *RECORDED, "auto"])
def test_every_form_is_right_for_every_size_and_verified(form):
    with Opened(seam_form=form, verify_capture=1) as opened:
        for size in (4, 4, 7, 4, 7):
            for scale in (1, -2):
                opened.right(values(size, scale))
        for chain in opened.pipeline.runner.latest().chains.values():
            assert chain.events == ["recorded", "verified"]


def test_values_that_are_large_odd_or_many_go_by_nodes_that_copy():
    text = """g (float[6000] x, float[6000] u, int8[3] k) => (y, v, w, q, r, s) {
        [a] a = Neg(x) [b] b = Neg(u) [c] c = Neg(k) [i] i = Relu(x) [j] j = Relu(u)
        [h] h = Add(a, b) [g] g = Add(c, c) [l] l = Add(i, j) [m] m = Sub(i, j)
        [n] n = Mul(a, j)
        [e] y = Neg(h) [f] v = Neg(g) [o] w = Neg(l) [p] q = Neg(m) [s] r = Neg(n)
        [t] s = Relu(n) }"""
    pins = dict.fromkeys("hglmn", "cpu")
    feeds = {
        "x": values(6000), "u": values(6000, 0.5), "k": np.array([1, -2, 3], np.int8),
    }  # fmt: skip
    with Opened(text, pins=pins, seam_form="mailbox") as opened:
        for _ in range(3):
            y, v, *_ = opened.pipeline.run(feeds)
            np.testing.assert_array_equal(y, feeds["x"] + feeds["u"])
            np.testing.assert_array_equal(v, 2 * feeds["k"])
        assert opened.chain.state == "recorded"
        # Beside kernels, five values each way: three bytes and four large ones copied.
        assert opened.chain.recording.graph.nodes > 8


@pytest.mark.parametrize("form", RECORDED)
def test_what_the_hosts_work_raises_is_raised_and_the_device_is_usable(form):
    def fail():
        raise ZeroDivisionError("no such luck")

    for due in (5, 6):  # the first and the second excursion of the third run
        with Opened(host=AwkwardPlugin(fail, due=due), seam_form=form) as opened:
            opened.right(values(8))
            opened.right(values(8))
            with pytest.raises(KernelError, match="no such luck") as caught:
                opened.pipeline.run({"x": values(8)})
            assert caught.value.node == "bd"[due - 5]
            for scale in (2, 3):
                opened.right(values(8, scale))
            assert opened.chain.state == "recorded"


@pytest.mark.parametrize("form", RECORDED)
@pytest.mark.parametrize("due", [5, 6])
def test_a_host_that_is_late_is_a_deadline_error_with_its_node(form, due):
    host = AwkwardPlugin(lambda: time.sleep(0.6), due=due)
    with Opened(host=host, patience=0.15, seam_form=form) as opened:
        opened.right(values(8))
        opened.right(values(8))
        with pytest.raises(DeadlineError, match="did not answer within") as caught:
            opened.pipeline.run({"x": values(8)})
        assert caught.value.node == "bd"[due - 5]
        for scale in (2, 3):
            opened.right(values(8, scale))


@pytest.mark.parametrize("form", RECORDED)
def test_a_recording_closed_by_another_thread_ends_its_replay(form):
    threads = []

    def close():
        recording = opened.chain.recording
        threads.append(threading.Thread(target=recording.close))
        threads[0].start()
        while recording.mail.is_open:
            time.sleep(0.001)

    host = AwkwardPlugin(close, due=5)
    with Opened(host=host, seam_form=form) as opened:
        opened.right(values(8))
        opened.right(values(8))
        with pytest.raises(KernelError, match="closed while it was replayed"):
            opened.pipeline.run({"x": values(8)})
        threads[0].join(5)
        assert not threads[0].is_alive()


def test_turns_begin_anew_before_their_word_is_full():
    with Opened(seam_form="mailbox") as opened:
        for _ in range(2):
            opened.right(values(8))
        mail = opened.chain.recording.mail
        mail.first = (1 << 31) + 1
        mail.memory.write(mail.own, np.array([mail.first, 0], np.uint32))
        for scale in (1, 2, 3):
            opened.right(values(8, scale))
        assert mail.first < 100


def test_prices_name_where_they_come_from_and_the_mailbox_is_taken():
    with Opened() as opened:
        opened.right(values(8))
        for excursion in opened.pipeline.runner.latest().plan.excursions:
            assert excursion.form is SeamForm.MAILBOX
            assert "H200" in excursion.source


@pytest.mark.hardware("the order of memory between two chips is not emulated")
@pytest.mark.parametrize("form", RECORDED)
def test_thousands_of_replays_over_other_values_each_hand_over_the_newest(form):
    with Opened(seam_form=form) as opened:
        for turn in range(5000):
            opened.right(values(1024, 1 + turn % 97))
        assert opened.chain.state == "recorded"
