"""
The text of Resize's kernel: where an element samples, and what it makes of the samples.

A coordinate is affine in the place of the result, by fractions: ``(place * rise + base) /
over`` in whole numbers. So the sample below it is a division of integers, which falls on
the right side of every tie, and only the rest, the distance to that sample, is a float.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combined

import attrs

from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS, STORED, Element
from seamline_cuda.kernel_text import position
from seamline_cuda.limits import bytes_of
from seamline_cuda.loops import looped

__all__ = ["Sampling", "far_curve", "near_curve"]

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


@attrs.frozen
class Sampling:
    """
    What a kernel's text depends on.

    Attributes
    ----------
    mode
        ``nearest``, ``linear`` or ``cubic``.
    dtype
        Element type.
    moving
        For each axis whether it is resized; others keep their places.
    narrow
        Coordinates' numbers fit 32 bits, where a division is several times quicker.
    cropped
        A place outside of bounds, which are arguments, takes a value, which is one too.
    exclude_outside
        Samples beyond the edges are dropped, and the others make up for them.
    """

    mode: str
    dtype: str
    moving: tuple[bool, ...]
    narrow: bool
    cropped: bool
    exclude_outside: bool = False

    @property
    def axes(self) -> list[int]:
        """Give the axes that are resized."""
        return [axis for axis, moves in enumerate(self.moving) if moves]

    @property
    def element(self) -> Element:
        """Say how elements are held; those that are only moved, as their bits."""
        if self.mode == "nearest":
            stored = STORED[bytes_of(self.dtype)]
            return Element(stored, stored, stored)
        return ELEMENTS[self.dtype]

    def kernel(self) -> DeviceKernel:
        """
        Give the kernel over elements of the result.

        Its parameters are source, target, count, the result's inner sizes, every axis'
        step, and for each resized axis its size, rise, base, over and back: what was added
        to the base, in samples, to keep it from being negative. A cropped one has the
        value, and first and last place inside for each such axis; a cubic one the
        coefficient.
        """
        marks = "".join("m" if moves else "k" for moves in self.moving)
        name = f"resize_{self.form}_{marks}"
        names, kinds = self.parameters()
        lines = [f"def {name}({', '.join(['source', 'target', 'n', *names])}):"]
        at_once = 4 if self.mode == "nearest" else 1
        lines += looped(self._load, self._store, at_once)
        stored = f"{self.element.stored}*"
        return DeviceKernel(
            name, "\n".join(lines) + "\n", (stored, stored, "int64", *kinds)
        )

    @property
    def form(self) -> str:
        """Give the word of the kernel's name that says what it makes of samples."""
        return self.mode

    def parameters(self) -> tuple[list[str], list[str]]:
        """Give names and types of what the kernel takes after the count."""
        rank, axes, computed = len(self.moving), self.axes, self.element.computed
        whole = "int32" if self.narrow else "int64"
        parts = ("n", "rise", "base", "over", "back")
        names = [f"size{a}" for a in range(1, rank)] + [f"step{a}" for a in range(rank)]
        names += [f"{part}{a}" for a in axes for part in parts]
        kinds = ["uint32"] * max(rank - 1, 0) + ["int64"] * rank
        kinds += ["int64", whole, whole, whole, "int64"] * len(axes)
        if self.cropped:
            ends = [f"{end}{a}" for a in axes for end in ("first", "last")]
            names += ["value", *ends]
            kinds += [computed, *["int64"] * (2 * len(axes))]
        if self.mode == "cubic":
            names.append("slope")
            kinds.append(computed)
        return names, kinds

    def _store(self, u: str) -> list[str]:
        stored = self.element.store.format(self.element.rounded.format(f"x{u}"))
        return [f"target[i{u}] = {stored}"]

    def _load(self, u: str) -> list[str]:
        lines = position(f"i{u}", len(self.moving), u)
        for axis in self.axes:
            lines += [*self._below(axis, u), *self._sampled(axis, u)]
        kept = [a for a, moves in enumerate(self.moving) if not moves]
        terms = [f"np.int64(at{a}_{u}) * step{a}" for a in kept]
        lines.append(f"start{u} = {' + '.join(terms) or 'np.int64(0)'}")
        lines += self._summed(u)
        if self.cropped:
            inside = " and ".join(
                f"first{a} <= np.int64(at{a}_{u}) <= last{a}" for a in self.axes
            )
            lines += [f"if not ({inside}):", f"    x{u} = value"]
        return lines

    def _below(self, axis: int, u: str) -> list[str]:
        """Write the sample ``low`` below a coordinate, and how far ``t`` it is from there."""
        end = f"{axis}_{u}"
        if self.narrow:
            lines = [
                f"num{end} = np.uint32(np.int32(at{end}) * rise{axis} + base{axis})",
                f"low{end} = np.int64(quotient32(num{end}, np.uint32(over{axis})))",
            ]
        else:
            lines = [
                f"num{end} = np.int64(at{end}) * rise{axis} + base{axis}",
                f"low{end} = num{end} // over{axis}",
            ]
        if self.mode != "nearest":
            kind = self.element.computed
            rest = f"np.int64(num{end}) - low{end} * np.int64(over{axis})"
            lines.append(f"t{end} = np.{kind}({rest}) / np.{kind}(over{axis})")
        lines.append(f"low{end} -= back{axis}")
        return lines

    def _sampled(self, axis: int, u: str) -> list[str]:
        """Write an axis' samples ``s``, clamped to it, and their weights ``w``."""
        end, lines = f"{axis}_{u}", []
        first = {"nearest": 0, "linear": 0, "cubic": -1}[self.mode]
        for tap in range(_TAPS[self.mode]):
            place = f"min(max(low{end} + {first + tap}, np.int64(0)), n{axis} - np.int64(1))"  # fmt: skip
            lines.append(f"s{tap}_{end} = {place} * step{axis}")
        return [*lines, *self._weighted(axis, end)]

    def _weighted(self, axis: int, end: str) -> list[str]:
        one = f"np.{self.element.computed}(1)"
        if self.mode == "nearest":
            return []
        if self.mode == "linear":
            weights = [f"{one} - t{end}", f"t{end}"]
        else:
            weights = _cubic(end, self.element.computed)
        lines = [f"w{tap}_{end} = {text}" for tap, text in enumerate(weights)]
        if self.exclude_outside:
            first = -1 if self.mode == "cubic" else 0
            for tap in range(len(weights)):
                at = f"low{end} + {first + tap}"
                lines += [
                    f"if {at} < 0 or {at} >= n{axis}:",
                    f"    w{tap}_{end} = np.{self.element.computed}(0)",
                ]
            total = " + ".join(f"w{tap}_{end}" for tap in range(len(weights)))
            lines.append(f"sum{end} = {total}")
            lines += [f"w{tap}_{end} /= sum{end}" for tap in range(len(weights))]
        return lines

    def _summed(self, u: str) -> list[str]:
        """Write the sum over samples, the innermost resized axis first."""
        axes, taps, lines = self.axes, range(_TAPS[self.mode]), []
        for chosen in combined(taps, repeat=len(axes)):
            terms = [f"s{t}_{a}_{u}" for t, a in zip(chosen, axes, strict=True)]
            place = " + ".join([f"start{u}", *terms])
            value = self.element.load.format(f"source[{place}]")
            lines.append(f"x{u}{_marks(chosen)} = {value}")
        if self.mode == "nearest":
            return [*lines, f"x{u} = x{u}{_marks((0,) * len(axes))}"]
        for depth in range(len(axes), 0, -1):
            axis = axes[depth - 1]
            for chosen in combined(taps, repeat=depth - 1):
                parts = [f"x{u}{_marks((*chosen, t))} * w{t}_{axis}_{u}" for t in taps]
                lines.append(f"x{u}{_marks(chosen)} = {' + '.join(parts)}")
        return lines


def _marks(chosen: Sequence[int]) -> str:
    return "".join(f"_{tap}" for tap in chosen)


def near_curve(x: str, kind: str) -> str:
    """Write Keys's cubic up to one sample away, with the coefficient ``slope``."""
    inner = f"(slope + np.{kind}(2)) * {x} - (slope + np.{kind}(3))"
    return f"({inner}) * {x} * {x} + np.{kind}(1)"


def far_curve(x: str, kind: str) -> str:
    """Write Keys's cubic from one sample away to two."""
    five, eight, four = (f"np.{kind}({n}) * slope" for n in (5, 8, 4))
    return f"((slope * {x} - {five}) * {x} + {eight}) * {x} - {four}"


def _cubic(end: str, kind: str) -> list[str]:
    """Write Keys's weights of four samples."""
    t, one, two = f"t{end}", f"np.{kind}(1)", f"np.{kind}(2)"
    return [
        far_curve(f"({t} + {one})", kind), near_curve(t, kind),
        near_curve(f"({one} - {t})", kind), far_curve(f"({two} - {t})", kind),
    ]  # fmt: skip
