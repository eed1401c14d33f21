"""Einsum and Det."""

from __future__ import annotations

import functools
import string

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import FLOATS, INTEGERS
from seamline_cpu.table import TABLE

__all__ = ["parse_equation"]


def parse_equation(equation: str, ranks: tuple[int, ...]) -> tuple[list[str], str]:
    """
    Give each input's letters and the output's, the ellipsis written out as letters.

    Without ``->`` the output has the ellipsis, then the letters seen once, in
    alphabetical order (Einsum-12).

    Raises
    ------
    ValueError
        The equation and the ranks do not fit each other.

    Examples
    --------
    >>> parse_equation("...ij,jk", (3, 2))
    (['Aij', 'jk'], 'Aik')
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(
            f"equation {equation!r} has {len(terms)} terms, not {len(ranks)}"
        )
    spare = [
        c
        for c in string.ascii_letters[26:] + string.ascii_letters[:26]
        if c not in left
    ]
    spans = [
        rank - len(term) + 3
        for term, rank in zip(terms, ranks, strict=True)
        if "..." in term
    ]
    if any(span != spans[0] or span < 0 for span in spans):
        raise ValueError(f"in {equation!r} the ellipsis stands for {spans} dimensions")
    dots = "".join(spare[: spans[0]]) if spans else ""
    letters = [term.replace("...", dots) for term in terms]
    for term, rank in zip(letters, ranks, strict=True):
        if len(term) != rank or (not term.isalpha() and term):
            raise ValueError(
                f"in {equation!r} the term {term!r} does not fit rank {rank}"
            )
    if arrow:
        return letters, right.replace("...", dots)
    seen = "".join(term.replace("...", "") for term in terms)
    return letters, dots + "".join(sorted(c for c in set(seen) if seen.count(c) == 1))


def _diagonal(x: Array, term: str) -> tuple[Array, str]:
    """Take the diagonal of letters that repeat within one term."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first, second = term.index(letter), term.rindex(letter)
            x = x.diagonal(axis1=first, axis2=second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + letter
    return x, term


def _as_matmul(terms: list[str], out: str) -> tuple[str, str, str, str] | None:
    """Sort letters into stack, rows, inner and columns, for a product of two inputs."""
    a, b = terms
    once = set(a) - set(b) | set(b) - set(a)
    if once - set(out) or len(set(out)) != len(out) or set(out) - set(a) - set(b):
        return None
    stack = "".join(c for c in a if c in b and c in out)
    inner = "".join(c for c in a if c in b and c not in out)
    rows, columns = ("".join(c for c in t if c not in o) for t, o in ((a, b), (b, a)))
    return (stack, rows, inner, columns) if inner else None


def _product(views: list[Array], terms: list[str], out: str, y: Array) -> Run | None:
    """Bind a product of two inputs as matmul, where that is what the equation says."""
    sorted_letters = _as_matmul(terms, out)
    if sorted_letters is None or y.dtype.kind != "f" or y.itemsize < 4:
        return None
    stack, rows, inner, columns = sorted_letters
    a, b = views
    sizes = dict(zip(terms[0], a.shape, strict=True))
    other = dict(zip(terms[1], b.shape, strict=True))
    if any(sizes[c] != other[c] for c in stack + inner) or 0 in a.shape or 0 in b.shape:
        return None
    sizes |= other
    a = a.transpose([terms[0].index(c) for c in stack + rows + inner])
    b = b.transpose([terms[1].index(c) for c in stack + inner + columns])
    lead = tuple(sizes[c] for c in stack)
    m, k, n = (_size(sizes, group) for group in (rows, inner, columns))
    made = stack + rows + columns
    shape = tuple(sizes[c] for c in made)
    order = [made.index(c) for c in out]

    def run() -> None:
        left, right = a.reshape(*lead, m, k), b.reshape(*lead, k, n)
        y[...] = np.matmul(left, right).reshape(shape).transpose(order)

    return run


def _size(sizes: dict[str, int], letters: str) -> int:
    total = 1
    for letter in letters:
        total *= sizes[letter]
    return total


@TABLE.kernel("Einsum", since=12, dtypes=FLOATS + INTEGERS)
def einsum(call: Call) -> Run:
    """Bind Einsum: two inputs as a matrix product where possible, else NumPy's einsum."""
    y = call.output(0)
    ranks = tuple(x.ndim for x in call.inputs)
    terms, out = parse_equation(call.attr("equation"), ranks)
    pairs = [_diagonal(x, t) for x, t in zip(call.inputs, terms, strict=True)]
    views, terms = [p[0] for p in pairs], [p[1] for p in pairs]
    if len(views) == 2:
        fast = _product(views, terms, out, y)
        if fast is not None:
            return fast
    equation = f"{','.join(terms)}->{out}"
    optimize = "greedy" if len(views) > 2 else False
    if y.dtype.kind in "iu" or y.dtype.itemsize >= 4:
        return lambda: np.copyto(y, np.einsum(equation, *views, optimize=optimize))

    def run() -> None:
        wide = [v.astype(np.float32) for v in views]
        y[...] = np.einsum(equation, *wide, optimize=optimize)

    return run


def _square(view: NodeView) -> str | None:
    kind = view.tensor(0)
    if kind is not None and kind.shape is not None and len(kind.shape) < 2:
        return (
            f"the input has rank {len(kind.shape)}, and a determinant needs 2 or more"
        )
    return None


@TABLE.kernel("Det", since=11, dtypes=FLOATS, when=_square)
def det(call: Call) -> Run:
    """Bind Det; half precision goes through float32."""
    x, y = call.input(0), call.output(0)
    wide = x.dtype if x.dtype.kind == "f" and x.itemsize >= 4 else np.dtype(np.float32)
    return functools.partial(_det, x, wide, y)


def _det(x: Array, wide: np.dtype[np.floating], y: Array) -> None:
    y[...] = np.linalg.det(x.astype(wide, copy=False))
