"""
Caps on what loading will do for a file that nobody vouches for.

A model of a few bytes can ask for any amount of work: a tensor that declares 2**60
elements, functions that call each other twice forty levels down, bodies in bodies. The
caps below are far above every model in use; each can be raised.
"""

from __future__ import annotations

import attrs

from seamline.errors import UnsafeModelError

__all__ = ["LoadLimits", "too_deep", "too_many_nodes"]

_AT_LEAST_ONE = attrs.validators.ge(1)


@attrs.frozen(kw_only=True)
class LoadLimits:
    """
    What a model may ask for while it is loaded.

    Attributes
    ----------
    max_nodes
        Nodes in the whole model, bodies included, after functions are inlined.
    max_depth
        Levels of bodies inside bodies, and of functions that call functions.
    max_nbytes
        Bytes that all tensors declare together; data shared in a file counts each time.
    max_sparse_expansion
        How many times its stored bytes a sparse tensor may take when it is dense; up to
        1 MiB is always allowed.

    Examples
    --------
    >>> LoadLimits(max_nodes=10).max_depth
    32
    """

    max_nodes: int = attrs.field(default=2_000_000, validator=_AT_LEAST_ONE)
    max_depth: int = attrs.field(default=32, validator=_AT_LEAST_ONE)
    max_nbytes: int = attrs.field(default=1 << 40, validator=_AT_LEAST_ONE)
    max_sparse_expansion: int = attrs.field(default=10_000, validator=_AT_LEAST_ONE)


def too_deep(
    file: str, subject: str, depth: int, limits: LoadLimits
) -> UnsafeModelError:
    """Say that bodies or calls nest past the limit."""
    return UnsafeModelError(
        file,
        subject,
        f"it nests {depth} deep and the limit is {limits.max_depth}; raise "
        "LoadLimits(max_depth=) if you trust the file",
    )


def too_many_nodes(file: str, count: int, limits: LoadLimits) -> UnsafeModelError:
    """Say that there are more nodes than the limit, functions expanded."""
    return UnsafeModelError(
        file,
        "",
        f"it has {count} nodes or more and the limit is {limits.max_nodes}; raise "
        "LoadLimits(max_nodes=) if you trust the file",
    )
