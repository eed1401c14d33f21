"""Inputs for a model that nobody fed: from files, values and sizes given as text."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seamline.errors import FeedError, near
from seamline.tensors import TensorType, ValueType, numpy_dtype

__all__ = ["parse_pairs", "sample_feeds", "weightless_feeds"]


def parse_pairs(given: Sequence[str] | None, what: str) -> dict[str, str]:
    """
    Split ``NAME=VALUE`` texts; the name may hold ``=`` as long as the value does not.

    Raises
    ------
    FeedError
        One has no ``=``.

    Examples
    --------
    >>> parse_pairs(["x:0=1,3"], "--shape")
    {'x:0': '1,3'}
    """
    pairs = {}
    for text in given or ():
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            raise FeedError(f"{what} {text!r}: write NAME=VALUE")
        pairs[name] = value
    return pairs


def sample_feeds(
    types: Mapping[str, ValueType | None],
    *,
    files: Mapping[str, str] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """
    Make feeds for inputs of the given types.

    Parameters
    ----------
    files
        Input name -> a ``.npy`` file, or a value written as JSON.
    shapes
        Input name -> sizes.
    dims
        Symbol -> size; 1 where not given.
    seed
        For the random rest: normal numbers, small integers, ``true``, empty strings. An
        input has the same values whatever the others are.

    Raises
    ------
    FeedError
        A name that is no input, or an input that cannot be made up.
    """
    for name in (*(files or {}), *(shapes or {})):
        if name not in types:
            raise FeedError(
                f"{name!r} is no input{near(name, types)} (inputs: {', '.join(types)})"
            )
    feeds: dict[str, Any] = {}
    for name, kind in types.items():
        if files and name in files:
            feeds[name] = _read(name, files[name], kind)
            continue
        if not isinstance(kind, TensorType):
            raise FeedError(
                f"input {name!r} is {kind or 'of unknown type'}: give it with --input"
            )
        sizes = (shapes or {}).get(name)
        if sizes is None:
            sizes = [
                d if isinstance(d, int) else (dims or {}).get(str(d), 1)
                for d in kind.shape or ()
            ]
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        feeds[name] = _made_up(rng, numpy_dtype(kind.dtype), tuple(sizes))
    return feeds


def _read(name: str, text: str, kind: ValueType | None) -> Any:
    if text.endswith(".npy"):
        try:
            return np.load(text, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise FeedError(f"input {name!r}: {text}: {error}") from error
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise FeedError(
            f"input {name!r}: {text!r} is neither a .npy file nor JSON"
        ) from error
    dtype = numpy_dtype(kind.dtype) if isinstance(kind, TensorType) else None
    try:
        return np.array(value, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise FeedError(f"input {name!r}: {text!r} is no {kind}: {error}") from error


def _made_up(
    rng: np.random.Generator, dtype: np.dtype[Any], sizes: tuple[int, ...]
) -> Any:
    if dtype.kind == "O":
        return np.full(sizes, "", dtype=object)
    if dtype.kind == "b":
        return np.ones(sizes, dtype)
    if dtype.kind in "iu":
        return rng.integers(0, 2, sizes).astype(dtype)
    return rng.standard_normal(sizes).astype(dtype)


def weightless_feeds(
    types: Mapping[str, ValueType | None], shapes: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """
    Make feeds that take no memory, for planning; sizes that are not given count as 1.

    Examples
    --------
    >>> weightless_feeds({"x": TensorType("float32", ("n", 4))}, {})["x"].shape
    (1, 4)
    """
    feeds: dict[str, Any] = {}
    for name, kind in types.items():
        if not isinstance(kind, TensorType):
            feeds[name] = []
            continue
        declared = tuple(d if isinstance(d, int) else 1 for d in kind.shape or ())
        sizes = tuple(shapes.get(name, declared))
        feeds[name] = np.broadcast_to(np.zeros((), numpy_dtype(kind.dtype)), sizes)
    return feeds
