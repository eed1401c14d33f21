"""
The text of Resize with ``antialias``: the filter is stretched where samples get fewer.

A coordinate has as many samples on either side as the stretched filter reaches, which is an
argument, so they are walked in loops, an axis inside the other. Weights are divided by their
sum over all samples, those beyond an edge included, which repeat it, unless they are left
out.
"""

from __future__ import annotations

import attrs

from seamline_cuda.resize_text import Sampling, far_curve, near_curve

__all__ = ["Stretched"]


@attrs.frozen
class Stretched(Sampling):
    """What the text depends on; for each resized axis it takes ``squeeze`` and ``reach`` last."""

    @property
    def form(self) -> str:
        """Give the word of the kernel's name that says what it makes of samples."""
        return f"{self.mode}_stretched"

    def parameters(self) -> tuple[list[str], list[str]]:
        """Give names and types of what the kernel takes after the count."""
        names, kinds = Sampling.parameters(self)
        for axis in self.axes:
            names += [f"squeeze{axis}", f"reach{axis}"]
            kinds += [self.element.computed, "int64"]
        return names, kinds

    def _sampled(self, axis: int, u: str) -> list[str]:
        zero = f"np.{self.element.computed}(0)"
        return [
            f"sum{axis}_{u} = {zero}",
            *self._walked(axis, u, [f"sum{axis}_{u} += w{axis}"]),
        ]

    def _summed(self, u: str) -> list[str]:
        kind, axes = self.element.computed, self.axes
        places = " + ".join([f"start{u}", *(f"s{axis}" for axis in axes)])
        value = self.element.load.format(f"source[{places}]")
        lines = [f"part{axes[-1]} += w{axes[-1]} * {value}"]
        for axis, around in zip(axes[::-1], [*axes[-2::-1], None], strict=True):
            place = (
                f"min(max(low{axis}_{u} + k{axis}, np.int64(0)), n{axis} - np.int64(1))"
            )
            lines = [
                f"part{axis} = np.{kind}(0)",
                *self._walked(axis, u, [f"s{axis} = {place} * step{axis}", *lines]),
            ]
            if around is not None:
                lines.append(f"part{around} += w{around} * part{axis}")
        whole = " * ".join(f"sum{axis}_{u}" for axis in axes)
        return [*lines, f"x{u} = part{axes[0]} / ({whole})"]

    def _walked(self, axis: int, u: str, inside: list[str]) -> list[str]:
        """Write the loop over an axis' samples, each with its weight ``w``."""
        kind, end = self.element.computed, f"{axis}_{u}"
        one = f"np.{kind}(1)"
        far = f"d{axis} = abs(np.{kind}(k{axis}) - t{end}) * squeeze{axis}"
        if self.mode == "linear":
            weight = [f"w{axis} = max({one} - d{axis}, np.{kind}(0))"]
        else:
            weight = [
                f"w{axis} = np.{kind}(0)",
                f"if d{axis} <= {one}:",
                f"    w{axis} = {near_curve(f'd{axis}', kind)}",
                f"elif d{axis} < np.{kind}(2):",
                f"    w{axis} = {far_curve(f'd{axis}', kind)}",
            ]
        body = [far, *weight, *inside]
        if self.exclude_outside:
            at = f"low{end} + k{axis}"
            body = [f"if 0 <= {at} < n{axis}:", *(f"    {line}" for line in body)]
        head = f"for k{axis} in range(np.int64(1) - reach{axis}, reach{axis} + np.int64(1)):"
        return [head, *(f"    {line}" for line in body)]
