"""
The device's own time: streams of work that run later than they are submitted.

A thread stands for the device. Work begins when somebody waits for it, or a little after it
was submitted, so that whoever forgets to wait reads what is not there yet. Of streams that
could go on, one is drawn, by a seed: what no event orders runs in either order.

Work that fails ends everything: what is in flight is dropped, and every later call gives
the same result, as after an illegal access on a device.
"""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import deque

import attrs
from tests.cuda.emulation.lockstep import DivergedError
from tests.cuda.emulation.pointers import IllegalAccessError
from tests.cuda.emulation.results import RefusedError
from tests.cuda.emulation.sharing import RaceError

LATER = 0.003  #: seconds from a submission to its begin, where nobody waits
_LOOK = 0.0005  # seconds between two looks at memory that a stream waits for


@attrs.define(eq=False)
class Mark:
    """One recording of an event."""

    reached: bool = False
    time: float = 0.0

    def reach(self):
        self.time, self.reached = time.perf_counter(), True


@attrs.define(eq=False)
class Work:
    """Something to do on the device, and when it may begin."""

    name: str
    act: object = attrs.field(default=lambda: None)
    is_ready: object = attrs.field(default=lambda: True)
    polls: bool = False
    due: float = 0.0


class Timeline:
    """Streams, by handle, and the thread that works on them."""

    def __init__(self, seed=0):
        self.changed = threading.Condition()
        self.queues = {}
        self.broken = None
        self.done = 0
        self._draw = random.Random(seed)
        self._waiters = 0
        self._is_held = self._is_over = False
        self._thread = None

    def submit(self, stream, work):
        """Queue work on a stream."""
        with self.changed:
            self._fail()
            work.due = time.monotonic() + LATER
            self.queues.setdefault(stream, deque()).append(work)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._live, name="emulated device", daemon=True
                )
                self._thread.start()
            self.changed.notify_all()

    def wait(self, is_over):
        """Let the device go on until something is so; raises what work failed with."""
        with self.changed:
            self._waiters += 1
            self.changed.notify_all()
            try:
                self.changed.wait_for(lambda: self.broken or is_over())
            finally:
                self._waiters -= 1
            self._fail()

    def forget(self, stream):
        """Take a stream away; nothing is left on it."""
        with self.changed:
            self.queues.pop(stream, None)

    def is_idle(self, stream):
        return not self.queues.get(stream)

    def hold(self):
        """Begin nothing more until :meth:`let_go`, whoever waits."""
        self._is_held = True

    def let_go(self):
        with self.changed:
            self._is_held = False
            self.changed.notify_all()

    def stop(self):
        """End the thread once what it does now is done."""
        with self.changed:
            self._is_over = True
            self.changed.notify_all()
        if self._thread is not None:
            self._thread.join(60)
            assert not self._thread.is_alive(), "the emulated device hangs"
        with self.changed:  # who still waits would wait for ever
            self.broken = self.broken or RefusedError("CUDA_ERROR_DEINITIALIZED")
            self.changed.notify_all()

    def _fail(self):
        if self.broken is not None:
            raise self.broken

    def _live(self):
        with self.changed:
            while not self._is_over:
                found, pause = self._next()
                if found is None:
                    self.changed.wait(pause)
                    continue
                queue, work = found
                self.changed.release()
                try:
                    error = _done(work)
                finally:
                    self.changed.acquire()
                queue.popleft()
                self.done += 1
                if error is not None:
                    self.broken = error
                    for other in self.queues.values():
                        other.clear()
                self.changed.notify_all()

    def _next(self):
        """Give a queue and its first work that may begin, or how long there is none."""
        heads = [(q, q[0]) for q in self.queues.values() if q and q[0].is_ready()]
        polled = any(q[0].polls for q in self.queues.values() if q)
        if self._is_held or not (heads or polled):
            return None, None
        if heads and self._waiters:
            return self._draw.choice(heads), None
        now = time.monotonic()
        due = [head for head in heads if head[1].due <= now]
        if due:
            return self._draw.choice(due), None
        first = min((work.due for _, work in heads), default=now + LATER)
        return None, _LOOK if polled else max(first - now, 0)


def _done(work):
    """Do work; give what it failed with, as the driver's result."""
    try:
        work.act()
    except IllegalAccessError as error:
        kind = "MISALIGNED_ADDRESS" if error.misaligned else "ILLEGAL_ADDRESS"
        return RefusedError(f"CUDA_ERROR_{kind}", str(error))
    except (DivergedError, RaceError) as error:
        return RefusedError("CUDA_ERROR_LAUNCH_FAILED", f"{work.name}: {error}")
    except Exception:
        said = traceback.format_exc()
        return RefusedError("CUDA_ERROR_LAUNCH_FAILED", f"{work.name}: {said}")
    return None
