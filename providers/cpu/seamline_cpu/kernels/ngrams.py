"""TfIdfVectorizer: counts of known n-grams, weighed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seamline.provider import Array, NodeView
from seamline.tensors import INDICES, STRING
from seamline_cpu.table import TABLE

__all__: list[str] = []


def _unfit(node: NodeView) -> str | None:
    a = node.attributes
    if a["mode"] not in {"TF", "IDF", "TFIDF"}:
        return f"mode {a['mode']!r} is not known"
    pool = a.get("pool_strings") or a.get("pool_int64s")
    return None if pool else "it has no pool of n-grams"


def _pool(
    items: Sequence[Any], starts: Sequence[int], columns: Sequence[int]
) -> dict[tuple[Any, ...], int]:
    """Give the output column of each n-gram; n-grams of one length lie together."""
    found: dict[tuple[Any, ...], int] = {}
    count = 0
    for size, start in enumerate(starts, 1):
        stop = starts[size] if size < len(starts) else len(items)
        for at in range(start, stop, size):
            found[tuple(items[at : at + size])] = columns[count]
            count += 1
    return found


@TABLE.simple("TfIdfVectorizer", dtypes=INDICES + STRING, when=_unfit)
def tf_idf_vectorizer(
    x: Array,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[str] = (),
    weights: Sequence[float] = (),
) -> Array:
    """
    Count n-grams of each row, with up to ``max_skip_count`` elements skipped between two.

    TF gives counts, IDF the weight of what occurs, TFIDF counts times weights.
    """
    columns = _pool(pool_strings or pool_int64s, ngram_counts, ngram_indexes)
    width = max(ngram_indexes) + 1
    factors = np.ones(width, np.float32)
    if weights:
        factors[list(ngram_indexes)] = weights
    rows = x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x.reshape(1, -1)
    out = np.zeros((len(rows), width), np.float32)
    for counts, row in zip(out, rows.tolist(), strict=True):
        for size in range(min_gram_length, max_gram_length + 1):
            # A single element has nothing to skip between.
            for stride in range(1, 2 if size == 1 else max_skip_count + 2):
                for at in range(len(row) - (size - 1) * stride):
                    column = columns.get(tuple(row[at : at + size * stride : stride]))
                    if column is not None:
                        counts[column] += 1
    if mode == "IDF":
        out = (out > 0) * factors
    elif mode == "TFIDF":
        out *= factors
    return out.reshape((*x.shape[:-1], width))
