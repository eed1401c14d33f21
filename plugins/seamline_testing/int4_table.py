"""The checks of the group ``int4`` as one table: forms of weights by level and type."""

from __future__ import annotations

from collections.abc import Iterable

from seamline_testing.int4_cases import FORMS
from seamline_testing.int4_checks import COLUMNS, parts_of
from seamline_testing.results import Outcome, Result

__all__ = ["EXPLAINED", "int4_table"]

EXPLAINED = (
    "Cells: how many products are right of those that are asked for, and the greatest error "
    "of one of them, the root of the mean square, as a share of what sums of such products "
    "come to. Heads: `accuracy_level` and the activations' type. A product is right within "
    "1.5 of the error of the arithmetic that its level allows; each case is "
    "made so that the next coarser arithmetic fails. A level is a minimum, so finer is right."
)
_SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def int4_table(results: Iterable[Result]) -> tuple[list[str], list[list[str]]]:
    """Give the table's head and rows; no rows where nothing of the group was run."""
    cells: dict[tuple[str, str], Result] = {}
    for result in results:
        if result.group == "int4":
            cells[parts_of(result.id)] = result
    columns = [f"level-{level}/{dtype}" for level, dtype in COLUMNS]
    shown = [c for c in columns if any(column == c for _, column in cells)]
    rows = [
        [str(form), *(_cell(cells.get((form.id, column))) for column in shown)]
        for form in FORMS
        if any(row == form.id for row, _ in cells)
    ]
    return ["weights", *map(_head, shown)], rows


def _head(column: str) -> str:
    level, dtype = column.removeprefix("level-").split("/")
    return f"{level} {_SHORT[dtype]}"


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    finding = result.finding
    if finding.outcome is Outcome.PASS:
        return finding.said
    if finding.outcome is Outcome.MISMATCH:
        return f"**{finding.said.partition(':')[0]}**"
    return str(finding.outcome).lower().replace("_", " ")
