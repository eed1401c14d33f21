"""What a recording of a device's segment rests on, one thing after another."""

from __future__ import annotations

import threading

import attrs
import pytest

from seamline.device_segments import DeviceSegment, Held
from seamline.errors import KernelError, RecordingError
from seamline.provider import SegmentSpec


@attrs.define
class Buffer:
    is_open: bool = True


@attrs.frozen
class View:
    buffer: Buffer = attrs.field(factory=Buffer)


@attrs.define(eq=False)
class Segment(DeviceSegment[View]):
    """One whose launches hold a host input."""

    other: str = ""

    def changed(self):
        return self.other


def segment():
    made = Segment("mine", SegmentSpec("s0", (), (), (), {}), (), None, {})
    made.bound = {"x": View(), "y": View()}
    return made


def test_it_holds_while_nothing_changed():
    made = segment()
    held = Held.of(made)
    held.check()
    made.bound = {}  # what it was recorded over counts, not what is bound now
    held.check()


def test_another_binding_voids_it_and_the_reason_says_what_to_do():
    made = segment()
    held = Held.of(made)
    made.binding += 1
    with pytest.raises(RecordingError, match="bound to other places") as raised:
        held.check()
    assert (raised.value.provider, raised.value.segment) == ("mine", "s0")
    assert "record it again" in str(raised.value)


@pytest.mark.parametrize("name", ["x", "y"])
def test_a_closed_buffer_voids_it_by_name(name):
    made = segment()
    held = Held.of(made)
    made.bound[name].buffer.is_open = False
    with pytest.raises(RecordingError, match=f"the buffer of '{name}' was closed"):
        held.check()


def test_a_host_input_with_another_value_voids_it_by_name():
    made = segment()
    held, own = Held.of(made), Held.of(made, lambda: "k")
    held.check()
    made.other = "scale"
    with pytest.raises(RecordingError, match="host input 'scale' is baked"):
        held.check()
    with pytest.raises(RecordingError, match="host input 'k' is baked"):
        own.check()


def test_another_thread_is_refused_at_once_and_served_afterwards():
    made, said = segment(), []

    def take():
        try:
            with made.taken():
                said.append("taken")
        except KernelError as error:
            said.append(str(error))

    for held in (True, False):
        if held:
            with made.taken():
                other = threading.Thread(target=take)
                other.start()
                other.join()
        else:
            take()
    assert "another thread runs it now" in said[0]
    assert said[1:] == ["taken"]
