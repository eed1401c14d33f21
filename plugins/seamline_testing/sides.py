"""The two sides of a comparison: provider lists, what they give, and when that differs."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from seamline.errors import SeamlineError
from seamline.pipeline import Pipeline
from seamline.provider import Array
from seamline.samples import parse_pairs
from seamline.tensors import dtype_name
from seamline_testing.comparing import difference
from seamline_testing.tolerances import CLASSES, class_of
from seamline_testing.values import few, widened

if TYPE_CHECKING:
    import os

    import onnx
    import onnx_ir as ir

    from seamline_testing.excerpts import Excerpt

__all__ = ["Closeness", "CompareError", "Side", "apart", "closeness_of", "side_of"]

Entry = str | tuple[str, Mapping[str, Any]]


class CompareError(SeamlineError):
    """A comparison cannot be made as it was asked for."""


@attrs.frozen
class Side:
    """
    One list of providers.

    Attributes
    ----------
    text
        As it was written, for messages and to write it again.
    providers
        In order of preference.
    plugins
        Modules of plugins that are not installed.
    """

    text: str
    providers: tuple[Entry, ...]
    plugins: tuple[str, ...] = ()

    def open(
        self, source: str | os.PathLike[str] | onnx.ModelProto | ir.Model
    ) -> Pipeline:
        """Open a model on it; nobody else takes what it declines."""
        modules = tuple(importlib.import_module(name) for name in self.plugins)
        return Pipeline.open(source, providers=self.providers, plugins=modules)

    def run(
        self, source: onnx.ModelProto | ir.Model, feeds: Mapping[str, Any]
    ) -> list[Any]:
        """Open a model, run it once, and close it."""
        pipeline = self.open(source)
        try:
            return pipeline.run(feeds)
        finally:
            pipeline.close()


def side_of(text: str, plugins: Iterable[str] = ()) -> Side:
    """
    Read a list of providers: ``cpu,reference``, or ``cpu:num_threads=1,reference``.

    Raises
    ------
    CompareError
        A name is missing.

    Examples
    --------
    >>> side_of("a:x=1,y=2,b").providers
    (('a', {'x': '1', 'y': '2'}), 'b')
    """
    found: list[Entry] = []
    for part in text.split(","):
        name, colon, option = part.partition(":")
        last = found[-1] if found else None
        if not colon and "=" in part and isinstance(last, tuple):
            found[-1] = (last[0], {**last[1], **parse_pairs([part], text)})
            continue
        if not name.strip():
            raise CompareError(
                f"{text!r}: write a list of providers, as in cpu,reference"
            )
        options = parse_pairs([option], text) if colon else None
        found.append(name.strip() if options is None else (name.strip(), options))
    return Side(text, tuple(found), tuple(plugins))


@attrs.frozen
class Closeness:
    """
    What counts as the same.

    Attributes
    ----------
    kind
        A class of the kit's table for every operator; empty to take each one's own.
    room
        Instead of the table: relative and absolute, of every element of a float type.
    """

    kind: str = ""
    room: float | None = None

    def difference(self, ours: Any, theirs: Any, operators: Iterable[str]) -> str:
        """Say how a value differs from one that these operators made, or nothing."""
        if self.room is None:
            return difference(theirs, ours, self.kind or class_of(operators))
        return _beyond(theirs, ours, self.room)

    def __str__(self) -> str:
        if self.room is not None:
            return f"{self.room:g}"
        return self.kind or "by operator and type"


def apart(
    excerpt: Excerpt, sides: Iterable[Side], closeness: Closeness
) -> tuple[str, str]:
    """
    Give the first output of an excerpt in which two sides differ, and how, or nothing.

    Raises
    ------
    SeamlineError
        One of them cannot run it.
    """
    model = excerpt.model()
    given = [side.run(model, excerpt.feeds) for side in sides]
    for name, ours, theirs in zip(excerpt.outputs, *given, strict=True):
        said = closeness.difference(ours, theirs, excerpt.operators)
        if said:
            return name, said
    return "", ""


def closeness_of(text: str) -> Closeness:
    """
    Read ``--tolerance``: nothing, a class of the table, or a number.

    Raises
    ------
    CompareError
        It is none of them.
    """
    if not text or text in CLASSES:
        return Closeness(text)
    try:
        room = float(text)
    except ValueError:
        room = -1.0
    if not 0 <= room < np.inf:
        raise CompareError(
            f"--tolerance {text!r}: a number that is not negative, or one of "
            f"{', '.join(CLASSES)}"
        )
    return Closeness(room=room)


def _beyond(got: Any, want: Any, room: float) -> str:
    if isinstance(got, list) and isinstance(want, list):
        if len(got) != len(want):
            return f"{len(got)} elements, against {len(want)}"
        pairs = zip(got, want, strict=True)
        found = ((i, _beyond(a, b, room)) for i, (a, b) in enumerate(pairs))
        return next((f"element {i}: {wrong}" for i, wrong in found if wrong), "")
    if not isinstance(got, np.ndarray) or not isinstance(want, np.ndarray):
        return "" if got is None and want is None else "one of them is absent"
    if dtype_name(got.dtype) != dtype_name(want.dtype) or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)}, against {want.dtype}{list(want.shape)}"
    return _beyond_arrays(got, want, room)


def _beyond_arrays(got: Array, want: Array, room: float) -> str:
    if want.dtype.kind in "biuO":
        off = np.asarray(got != want)
    else:
        with np.errstate(all="ignore"):
            off = ~np.isclose(widened(got), widened(want), room, room, equal_nan=True)
    if not off.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(off)[0])
    return (
        f"{int(off.sum())} of {off.size} elements are off by more than {room:g}, the "
        f"first at {list(at)}: {got[at]!s}, want {want[at]!s}; {few(got)}, want {few(want)}"
    )
