"""
Products by packed weights: ``MatMulNBits`` in every form, held to float64.

One check is one cell of the table: a form of weights, an ``accuracy_level`` and an element
type, with some shapes. :mod:`seamline_testing.int4_limits` says how close is close enough,
and why that is a question with two sides.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import attrs
import numpy as np

from seamline_testing.int4_cases import FORMS, QUICK_FORMS, Form, Model, models_of
from seamline_testing.int4_limits import Limit, Product, limit_of, rooted
from seamline_testing.results import Check, Finding, Outcome
from seamline_testing.running import opened_over, run_opened, settled_by
from seamline_testing.subject import Subject

__all__ = ["COLUMNS", "checks", "parts_of"]

_OPERATOR = "com.microsoft::MatMulNBits"
#: Levels and element types; a level means the same for each type, so few are repeated.
COLUMNS = (
    *((level, "float32") for level in range(5)),
    (0, "float16"), (4, "float16"), (0, "bfloat16"), (4, "bfloat16"),
)  # fmt: skip
_QUICK_COLUMNS = ((0, "float32"), (4, "float32"), (0, "bfloat16"))


def checks(subject: Subject, quick: bool = False) -> tuple[Check, ...]:
    """Give one check for each cell; the quick form has a few."""
    forms, columns = (QUICK_FORMS, _QUICK_COLUMNS) if quick else (FORMS, COLUMNS)
    return tuple(
        Check(
            f"int4/{form.id}/level-{level}/{dtype}", "int4",
            functools.partial(_run, form, level, dtype), _OPERATOR, 1, dtype,
        )
        for form in forms
        for level, dtype in columns
    )  # fmt: skip


def parts_of(check: str) -> tuple[str, str]:
    """
    Give the row and the column of a check of this group.

    Examples
    --------
    >>> parts_of("int4/4-bits-block-32-zero-none/level-0/float32")
    ('4-bits-block-32-zero-none', 'level-0/float32')
    """
    _, row, column = check.split("/", 2)
    return row, column


def _run(form: Form, level: int, dtype: str, subject: Subject) -> Finding:
    models = models_of(form, level, dtype)
    products = [product for model in models for product in model.products]
    limit = limit_of(products, level, dtype)
    if not limit.separates:
        return Finding(
            Outcome.NOT_RUN, f"the case cannot tell arithmetics apart: {limit}"
        )
    shown = Finding(Outcome.PASS, "", "definition", str(limit))
    errors, wrong, took_part = [], [], False
    try:
        for model in models:
            for product, got, part in _answers(subject, model):
                said, error = _held(product, got, limit)
                took_part |= part
                errors.append(error)
                if said:
                    wrong.append(said)
    except Exception as error:
        return settled_by(error)
    total, right = len(products), len(products) - len(wrong)
    whole = rooted(errors)
    if not wrong and whole > limit.whole:
        wrong.append(f"the error of all is {whole:.1e}")
    counted = f"{right} of {total}, {max(map(_size, errors)):.1e}"
    if wrong:
        said = f"{counted}: {wrong[0]}; allowed is {limit}"
        return attrs.evolve(shown, outcome=Outcome.MISMATCH, said=said)
    if not took_part:
        return attrs.evolve(shown, outcome=Outcome.PASS_NOT_CLAIMED, said=counted)
    return attrs.evolve(shown, said=counted)


def _answers(subject: Subject, model: Model) -> Iterator[tuple[Product, object, bool]]:
    """Run a model for each of its products."""
    with opened_over(subject, model.proto) as pipeline:
        for product in model.products:
            ran = run_opened(subject, pipeline, {"x": product.x})
            yield product, ran.outputs[0], ran.took_part


def _held(product: Product, got: object, limit: Limit) -> tuple[str, np.ndarray]:
    """Say what is wrong with one answer, or nothing, and give its errors."""
    m, n = len(product.x), product.w.shape[1]
    named = f"M={m}, N={n}, K={product.x.shape[1]}"
    if not isinstance(got, np.ndarray) or got.shape != (m, n):
        return f"{named}: its shape is {getattr(got, 'shape', type(got))}", np.zeros(0)
    if got.dtype != product.x.dtype:
        return f"{named}: its type is {got.dtype}", np.zeros(0)
    errors = product.errors(got)
    bad = ~(np.abs(errors) <= limit.each)  # a NaN is bad
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        said = f"{got[at]!s}, want {product.wanted[at]:.7g}"
        return (
            f"{named}: {int(bad.sum())} elements are off, the first at {list(at)}: {said}",
            errors,
        )
    return "", errors


def _size(errors: np.ndarray) -> float:
    return rooted([errors])
