"""Make an input small while it still shows the same finding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import attrs
import onnx
from google.protobuf.message import Message
from tests.fuzz.inputs import Input

__all__ = ["minimised"]


def minimised(given: Input, shows: Callable[[Input], bool], seconds: float) -> Input:
    """
    Give a smaller input that shows what ``given`` does.

    Parameters
    ----------
    shows
        Tells whether an input shows it.
    seconds
        After these, the smallest one so far is given.
    """
    end = time.monotonic() + seconds
    try:
        onnx.ModelProto.FromString(given.model)
    except Exception:
        return _fewer_bytes(given, shows, end)
    if given.files:
        bare = attrs.evolve(given, files=())
        given = bare if shows(bare) else given
    smaller = True
    while smaller and time.monotonic() < end:
        smaller = False
        for number in range(1 << 30):
            tried = _without(given, number)
            if tried is None or time.monotonic() > end:
                break
            # What was tried before lies in front; a success moves the rest up to it.
            while tried is not None and shows(tried) and time.monotonic() < end:
                given, smaller = tried, True
                tried = _without(given, number)
    return given


def _without(given: Input, number: int) -> Input | None:
    """Give the input less the n-th of the parts that can be left out."""
    model = onnx.ModelProto.FromString(given.model)
    for at, drop in enumerate(_parts(model)):
        if at == number:
            drop()
            return attrs.evolve(given, model=model.SerializeToString())
    return None


def _parts(root: Message) -> Iterator[Callable[[], None]]:
    """Give what leaves out each part of a message, larger parts first."""
    level = [root]
    while level:
        inner: list[Message] = []
        for message in level:
            for field, value in message.ListFields():
                if not field.is_repeated:
                    yield lambda m=message, f=field: m.ClearField(f.name)
                    inner += [value] if field.message_type is not None else []
                    continue
                if len(value) > 4:
                    half = len(value) // 2
                    yield lambda v=value, h=half: v.__delitem__(slice(h, None))
                    yield lambda v=value, h=half: v.__delitem__(slice(0, h))
                for at in range(min(len(value), 50)):
                    yield lambda v=value, a=at: v.__delitem__(a)
                inner += list(value) if field.message_type is not None else []
        level = inner


def _fewer_bytes(given: Input, shows: Callable[[Input], bool], end: float) -> Input:
    size = len(given.model) // 2
    while size and time.monotonic() < end:
        at = 0
        while at < len(given.model) and time.monotonic() < end:
            left = given.model[:at] + given.model[at + size :]
            tried = attrs.evolve(given, model=left)
            if shows(tried):
                given = tried
            else:
                at += size
        size //= 2
    return given
