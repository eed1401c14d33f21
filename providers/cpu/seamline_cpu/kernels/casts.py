"""Cast, CastLike and BitCast."""

from __future__ import annotations

import functools

import numpy as np
import onnx_ir as ir

from seamline.fitting import all_of
from seamline.kernels import Call, Run
from seamline.provider import NodeView
from seamline.tensors import ANY, dtype_name, numpy_dtype
from seamline_cpu.binding import same_bytes
from seamline_cpu.kernels.cast_commands import CAST, bind_cast
from seamline_cpu.kernels.conversions import converter, is_direct
from seamline_cpu.kernels.pointwise import (
    BLOCK,
    MOVING_FROM,
    cuts,
    in_parallel,
    in_sequence,
    share_count,
)
from seamline_cpu.kernels.recorded import in_python, moved, only
from seamline_cpu.table import TABLE

__all__: list[str] = []

_COMPLEX = ("complex64", "complex128")
_SMALL_FLOATS = ("float6_e2m3fn", "float6_e3m2fn")
_TYPES = tuple(name for name in ANY if name not in _COMPLEX) + _SMALL_FLOATS
_BITS = tuple(name for name in ANY if name != "string") + _SMALL_FLOATS


def _target(node: NodeView) -> str | None:
    """Give the type that a node casts to, or None where it is not known."""
    if node.op_type == "CastLike":
        like = node.tensor(1)
        return like.dtype if like else None
    return dtype_name(ir.DataType(node.attributes["to"]))


def _changes(node: NodeView) -> str | None:
    source, target = node.tensor(0), _target(node)
    if target == "string" or source is None or source.dtype != target:
        return "it changes the element type"
    return None


def _cannot(node: NodeView) -> str | None:
    target = _target(node)
    if target is None:
        return "the type to cast to is not known"
    return None if target in _TYPES else f"it casts to {target}"


def _keep_bytes(call: Call) -> Run:
    x, out = call.inputs[0], call.outputs[0].view(call.inputs[0].dtype)
    return same_bytes(x, out)


def cast(call: Call) -> Run:
    """Bind a cast to another type."""
    x, out = call.inputs[0], call.outputs[0]
    native = bind_cast(call, x, out)
    if native is not None:
        return native
    source, target = dtype_name(x.dtype), dtype_name(out.dtype)
    convert = converter(
        source,
        target,
        bool(call.attr("saturate", 1)),
        call.attr("round_mode", "up"),
    )
    direct = is_direct(source, target)
    if direct and x.size < MOVING_FROM:
        return functools.partial(np.copyto, out, x, casting="unsafe")
    if x.size <= BLOCK or "string" in (source, target):
        return functools.partial(convert, x, out)
    flat, result = x.reshape(-1), out.reshape(-1)
    # Where there is scratch, it stays in the cache.
    width = x.size if direct else BLOCK
    parts = []
    for share in cuts(x.size, share_count(call, x.size, MOVING_FROM)):
        mine, his = flat[share], result[share]
        starts = range(0, mine.size, width)
        pieces = [slice(at, at + width) for at in starts]
        parts.append(
            in_sequence([functools.partial(convert, mine[s], his[s]) for s in pieces])
        )
    return in_parallel(parts)


def _target_in_commands(node: NodeView) -> str | None:
    target = _target(node)
    return None if target in CAST else in_python(f"it casts to {target}")


for _op in ("Cast", "CastLike"):
    TABLE.kernel(
        _op, dtypes=_TYPES, when=_changes, views=((0, 0),), not_capturable=moved
    )(_keep_bytes)
    TABLE.kernel(
        _op,
        dtypes=_TYPES,
        when=_cannot,
        not_capturable=all_of(only(*CAST), _target_in_commands),
    )(cast)


def _width(name: str) -> int:
    return ir.DataType.from_numpy(numpy_dtype(name)).bitwidth


def _other_width(node: NodeView) -> str | None:
    source, target = node.tensor(0), _target(node)
    if source is None or target is None or target == "string":
        return f"it reads {source} as {target}"
    if _width(source.dtype) != _width(target):
        return f"{source.dtype} and {target} are not of one width"
    return None


TABLE.kernel(
    "BitCast", dtypes=_BITS, when=_other_width, views=((0, 0),), not_capturable=moved
)(_keep_bytes)
