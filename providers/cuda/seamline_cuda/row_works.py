"""
From a row's program and a tensor's sizes to work: the team is chosen, kernels are written.

The choice rests on sizes alone, so that the workspace is known when a plan is made.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from seamline.kernel import Call
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.folds import Folds
from seamline_cuda.row_programs import RowProgram
from seamline_cuda.row_teams import Team, team_for
from seamline_cuda.row_text import RowText
from seamline_cuda.works import Complaint, KernelWork

__all__ = ["parts_work", "row_work", "workspace_of"]

_WORD = 8  # bytes of a value in the workspace, of whichever type


def workspace_of(folds: Folds, states: int) -> int:
    """
    Give the scratch bytes of a program over rows.

    Parameters
    ----------
    states
        Values that its folds make.
    """
    team = _team(folds)
    return folds.rows * team.parts * states * _WORD if team.parts > 1 else 0


def row_work(
    program: RowProgram,
    folds: Folds,
    arguments: Sequence[float | Complaint],
    call: Call,
) -> list[KernelWork]:
    """
    Give the work of a program.

    Parameters
    ----------
    arguments
        The program's own, in the order of its parameters.
    call
        Has the workspace, where one was asked for.
    """
    if not folds.rows:
        return []
    team = _team(folds)
    kernels = RowText(program, team, folds.ranks, folds.parameters()).kernels()
    given = _given(program, folds, arguments, call)
    works = [_launched(team, kernel, given, folds.rows) for kernel in kernels]
    if team.parts > 1 and not program.write:
        # Results alone: a few threads a row take in its parts.
        works[-1] = _launched(_few(team), kernels[-1], given, folds.rows)
    return works


def parts_work(
    program: RowProgram,
    folds: Folds,
    arguments: Sequence[float | Complaint],
    call: Call,
) -> tuple[KernelWork, int]:
    """
    Give the work that folds parts of rows which several blocks share, and where it is left.

    What is left of a part lies at ``row * parts + part``.
    """
    team = _team(folds)
    kernel = RowText(program, team, folds.ranks, folds.parameters()).kernels()[0]
    given = _given(program, folds, arguments, call)
    return _launched(team, kernel, given, folds.rows), _left(call)


def _given(
    program: RowProgram,
    folds: Folds,
    arguments: Sequence[float | Complaint],
    call: Call,
) -> tuple[float | Complaint, ...]:
    """Give the arguments of every kernel of a program."""
    team = _team(folds)
    given = (*arguments, folds.rows, folds.length, *folds.numbers())
    if team.parts == 1:
        return given
    size = folds.rows * team.parts * _WORD
    left = [_left(call) + i * size for i in range(len(program.states))]
    return (*given, team.parts, team.part, *left)


def _left(call: Call) -> int:
    """Give where parts of rows are left: the workspace, which no passes need none of."""
    return int(call.workspace.address) if call.workspace is not None else 0


def _team(folds: Folds) -> Team:
    return team_for(folds.rows, folds.length, folds.side_by_side)


def _few(team: Team) -> Team:
    """Give the team that a kernel needs which reads no elements."""
    if team.kind == "tall":
        return attrs.evolve(team, parts=1)
    return attrs.evolve(team, lanes=64, threads=64, parts=1)


def _launched(
    team: Team, kernel: DeviceKernel, given: tuple[float | Complaint, ...], rows: int
) -> KernelWork:
    blocks = team.blocks(rows)
    return KernelWork(kernel, given, blocks * team.threads, team.threads, blocks)
