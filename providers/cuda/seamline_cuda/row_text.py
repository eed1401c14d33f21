"""
The text of the kernels that run a row's program, for one team of threads.

Loads of a few elements come before anything that is computed of them, so that a thread has
their bytes under way together. Short rows stay in registers between passes; of longer ones
each pass reads memory again, most of it from a cache.

A row that several blocks share takes one kernel for each pass, and one more where elements
are written or results made. Each kernel first takes in what the blocks of earlier kernels
left in the workspace.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.folds import taken_apart
from seamline_cuda.row_programs import Fold, RowProgram
from seamline_cuda.row_teams import Team, arrays, merged, places

__all__ = ["RowText"]

_AT_ONCE = 4  # elements that a thread has under way where it does not hold its row
_SMALL = (
    "uint8*",
    "uint16*",
    "int8*",
    "int16*",
)  # of these twice as many, for the bytes


@attrs.frozen
class RowText:
    """
    A program for a team.

    Attributes
    ----------
    ranks
        Axes that are kept and folded; see :class:`~seamline_cuda.folds.Folds`.
    geometry
        Name and type of the parameters that say sizes and steps.
    """

    program: RowProgram
    team: Team
    ranks: tuple[int, int]
    geometry: tuple[tuple[str, str], ...]

    def kernels(self) -> tuple[DeviceKernel, ...]:
        """Give the kernels, in order: one, or where blocks share rows one for each pass."""
        if self.team.parts == 1:
            return (self._kernel(0, None, self.program.name),)
        stages = range(len(self.program.folds))
        passes = [self._kernel(s, s, f"{self.program.name}_part{s}") for s in stages]
        return (*passes, self._kernel(len(stages), None, self.program.name))

    def _kernel(self, taken: int, stage: int | None, name: str) -> DeviceKernel:
        """
        Write a kernel.

        Parameters
        ----------
        taken
            Passes whose parts lie in the workspace.
        stage
            The pass whose part is left there; None for the kernel that writes results.
        """
        parameters = [*self.program.parameters, ("rows", "int64"), ("n", "int64")]
        parameters += self.geometry
        if self.team.parts > 1:
            parameters += [("parts", "int64"), ("part", "int64")]
            parameters += [
                (f"left_{s.name}", f"{s.kind}*") for s in self.program.states
            ]
        parted = self.team.parts > 1 and (stage is not None or bool(self.program.write))
        body = [*self._head(parted), *self._taken(taken)]
        if stage is not None:
            body += self._pass(self.program.folds[stage])
            body += merged(self.program.folds[stage], self.team)
            body += _left(self.program.folds[stage])
        else:
            body += self._rest(taken, parted)
        names = ", ".join(name for name, _ in parameters)
        lines = [f"def {name}({names}):", *(f"    {line}" for line in body)]
        return DeviceKernel(
            name, "\n".join(lines) + "\n", tuple(k for _, k in parameters)
        )

    def _rest(self, taken: int, parted: bool) -> list[str]:
        lines = []
        for fold in self.program.folds[taken:]:
            lines += [*self._pass(fold), *merged(fold, self.team), *fold.after]
        if self.program.turns:
            lines = [f"for turn in range({self.program.turns}):", *_inside(lines)]
        lines += self._elements(self.program.write) if self.program.write else []
        if self.program.result:
            first = "live and lane == 0" + (" and mine == 0" if parted else "")
            lines += [f"if {first}:", *(f"    {line}" for line in self.program.result)]
        return lines

    def _head(self, parted: bool) -> list[str]:
        """Find the row, and the elements of it that the team takes; load what is held."""
        lines = [
            *places(self.team, parted),
            "live = row < rows",
            "row = row if live else np.int64(0)",
        ]
        lines += taken_apart("row", "row", self.ranks[0], "base")
        if parted:
            lines += [
                "begin = mine * part",
                "end = min(begin + part, n) if live else np.int64(0)",
            ]
        else:
            lines += ["begin = np.int64(0)", "end = n if live else np.int64(0)"]
        lines += arrays(self.program.states, self.team)
        lines += self.program.before
        for u in range(self.team.held):
            lines += [f"j{u} = begin + lane + {u} * lanes", f"ok{u} = j{u} < end"]
            lines += [f"at{u} = base"]
            lines += [
                f"{name}{u} = np.{kind}(0)" for name, kind in self.program.element
            ]
            lines += [f"if ok{u}:", *(f"    {line}" for line in self._loaded(u))]
        return lines

    def _loaded(self, u: int) -> list[str]:
        found = taken_apart(f"j{u}", "in", self.ranks[1], f"at{u}", f"_{u}")
        return [*found, f"at{u} = base + at{u}", *_for(u, self.program.load)]

    def _taken(self, count: int) -> list[str]:
        """Take in what the parts of a row left, pass by pass."""
        lines: list[str] = []
        for fold in self.program.folds[:count]:
            lines += [f"{s.name} = {s.start}" for s in fold.states]
            inner = [
                f"o_{s.name} = left_{s.name}[row * parts + i]" for s in fold.states
            ]
            inner += [*fold.merge, "i += lanes"]
            lines += ["i = np.int64(lane)", "while i < parts:", *_inside(inner)]
            lines += [*merged(fold, self.team), *fold.after]
        return lines

    def _pass(self, fold: Fold) -> list[str]:
        start = [f"{s.name} = {s.start}" for s in fold.states]
        return [*start, *self._elements(fold.step)]

    def _elements(self, body: Sequence[str]) -> list[str]:
        """Write lines for each element that the thread takes."""
        if self.team.held:
            lines = []
            for u in range(self.team.held):
                lines += [f"if ok{u}:", *_inside(_for(u, body))]
            return lines
        count = self._at_once
        several = [f"j{u} = j + {u} * lanes" for u in range(count)]
        for u in range(count):
            several += self._loaded(u)
        for u in range(count):
            several += _for(u, body)
        several.append(f"j += {count} * lanes")
        one = ["j0 = j", *self._loaded(0), *_for(0, body), "j += lanes"]
        return [
            "j = begin + lane",
            f"while j + {count - 1} * lanes < end:", *_inside(several),
            "while j < end:", *_inside(one),
        ]  # fmt: skip

    @property
    def _at_once(self) -> int:
        """Give the elements that a loop loads before it computes."""
        return _AT_ONCE * (2 if self.program.parameters[0][1] in _SMALL else 1)


def _left(fold: Fold) -> list[str]:
    """Leave a part's values in the workspace."""
    inner = [f"left_{s.name}[row * parts + mine] = {s.name}" for s in fold.states]
    return ["if live and lane == 0:", *_inside(inner)]


def _for(u: int, lines: Sequence[str]) -> list[str]:
    return [line.replace("{u}", str(u)) for line in lines]


def _inside(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
