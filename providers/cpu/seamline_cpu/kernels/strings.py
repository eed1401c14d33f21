"""Operators on strings, which are ``str`` objects in object arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from seamline.kernels import Call, Run
from seamline.provider import Array, NodeView
from seamline.tensors import STRING
from seamline_cpu.table import TABLE

__all__: list[str] = []


def _objects(flat: Sequence[str], shape: tuple[int, ...]) -> Array:
    out = np.empty(len(flat), object)
    out[:] = flat
    return out.reshape(shape)


@TABLE.kernel("StringConcat", dtypes={0: STRING, 1: STRING})
def string_concat(call: Call) -> Run:
    """Join two strings, element by element, with broadcasting."""
    left, right = call.inputs
    return partial(np.add, left, right, call.outputs[0], dtype=object)


@TABLE.simple("StringSplit", dtypes=STRING, sizes_at_run=True)
def string_split(
    x: Array, *, delimiter: str = "", maxsplit: int | None = None
) -> tuple[Array, Array]:
    """
    Split each string: at the delimiter, or at runs of white space if it is empty.

    Returns
    -------
    tuple
        The parts along a new last axis, filled up with '', and how many there are.
    """
    limit = -1 if maxsplit is None else maxsplit
    # Python leaves white space behind the last part that maxsplit lets through.
    texts = x.ravel() if delimiter else [text.strip() for text in x.ravel()]
    parts = [text.split(delimiter or None, limit) for text in texts]
    width = max(map(len, parts), default=0)
    padded = [word for words in parts for word in words + [""] * (width - len(words))]
    counts = np.array([len(words) for words in parts], np.int64).reshape(x.shape)
    return _objects(padded, (*x.shape, width)), counts


def _refuse_pattern(node: NodeView) -> str | None:
    pattern = node.attributes.get("pattern", "")
    try:
        re.compile(pattern)
    except re.error as error:
        return f"pattern {pattern!r} is not a regular expression here: {error}"
    return None


@TABLE.kernel("RegexFullMatch", dtypes=STRING, when=_refuse_pattern)
def regex_full_match(call: Call) -> Run:
    r"""
    Tell which strings the pattern matches as a whole.

    ONNX names RE2's syntax. Python's has it but for a few spellings, such as ``\pN``;
    those are refused when the node is claimed.
    """
    x, out = call.inputs[0].reshape(-1), call.outputs[0].reshape(-1)
    match = re.compile(call.attr("pattern", "")).fullmatch

    def run() -> None:
        for i, text in enumerate(x):
            out[i] = match(text) is not None

    return run


_CASES: dict[str, Callable[[str], str]] = {
    "NONE": str,
    "LOWER": str.lower,
    "UPPER": str.upper,
}


def _refuse_case(node: NodeView) -> str | None:
    action = node.attributes.get("case_change_action", "NONE")
    kind = node.tensor(0)
    if action not in _CASES:
        return f"case_change_action is {action!r}, not {', '.join(_CASES)}"
    shape = None if kind is None else kind.shape
    if shape is None or len(shape) == 1:
        return None
    if len(shape) != 2 or (isinstance(shape[0], int) and shape[0] != 1):
        return f"its input is {kind}, neither [C] nor [1, C]"
    return None


@TABLE.simple("StringNormalizer", dtypes=STRING, when=_refuse_case, sizes_at_run=True)
def string_normalizer(
    x: Array,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",  # Python's case mapping is Unicode's, whatever the locale
    stopwords: Sequence[str] = (),
) -> Array:
    """Drop the stop words, then change case; one empty string where none is left."""
    change = _CASES[case_change_action]
    fold: Callable[[str], str] = str if is_case_sensitive else str.lower
    dropped = {fold(word) for word in stopwords}
    kept = [change(word) for word in x.ravel() if fold(word) not in dropped] or [""]
    return _objects(kept, (*x.shape[:-1], len(kept)))
