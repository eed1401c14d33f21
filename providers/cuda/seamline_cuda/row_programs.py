"""
What is computed of each row: values made by folding its elements, then what is written.

A program says nothing of threads. Its lines are Python over names; ``{u}`` in a line stands
for an ending that tells elements apart which a thread has under way at once. In a line of
an element ``j{u}`` is its index in the row and ``at{u}`` its place in memory; in every line
``row`` is the row's index and ``n`` the count of its elements.

:mod:`seamline_cuda.row_text` makes kernels of a program: one thread, some threads of a
warp or a whole block for each row, or several blocks that meet in memory.
"""

from __future__ import annotations

import attrs

__all__ = ["Fold", "RowProgram", "State", "summed"]


@attrs.frozen
class State:
    """
    A value that a fold makes.

    Attributes
    ----------
    name
        Its name in the lines.
    kind
        ``float32``, ``float64``, ``int64`` or ``uint64``.
    start
        What it is of no elements, as an expression.
    """

    name: str
    kind: str
    start: str


@attrs.frozen
class Fold:
    """
    One pass over a row.

    Attributes
    ----------
    states
        What is made.
    step
        Lines that take an element in.
    merge
        Lines that take in what another thread made, whose names begin with ``o_``.
    after
        Lines over what the whole row made; every thread of the row runs them.
    """

    states: tuple[State, ...]
    step: tuple[str, ...]
    merge: tuple[str, ...]
    after: tuple[str, ...] = ()


@attrs.frozen
class RowProgram:
    """
    A row's computation.

    Attributes
    ----------
    name
        The kernel's name, which says the operator.
    parameters
        Name and type of each argument of its own, addresses first.
    element
        Names and types of what is held of each element.
    load
        Lines that make these of memory.
    folds
        Passes, each over all elements, in order.
    before
        Lines of the row that come first.
    write
        Lines of an element, after all folds.
    result
        Lines of the row, run by one thread, after all folds.
    turns
        The parameter that says how often the folds are made, where it is not once;
        ``turn`` counts. Several blocks cannot share such a row.
    """

    name: str
    parameters: tuple[tuple[str, str], ...]
    element: tuple[tuple[str, str], ...]
    load: tuple[str, ...]
    folds: tuple[Fold, ...]
    before: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    result: tuple[str, ...] = ()
    turns: str = ""

    @property
    def states(self) -> tuple[State, ...]:
        """Give the values of all folds, in order."""
        return tuple(state for fold in self.folds for state in fold.states)


def summed(name: str, kind: str, term: str, after: tuple[str, ...] = ()) -> Fold:
    """Give the pass that adds up a term of each element."""
    return Fold(
        (State(name, kind, f"np.{kind}(0)"),),
        (f"{name} += {term}",),
        (f"{name} += o_{name}",),
        after,
    )
