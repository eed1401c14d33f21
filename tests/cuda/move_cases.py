"""Models of one operator that moves data; run over the emulation, and on a GPU."""

from __future__ import annotations

import attrs
import numpy as np
from tests.cuda.held import Case


def indices(name, shape, low, high, dtype=np.int64):
    return lambda spread: {name: spread.integers(low, high, shape).astype(dtype)}


def numbers(name, *values, dtype="int64"):
    return f"{dtype}[{len(values)}] {name} = {{{', '.join(map(str, values))}}}"


def slicing(dtype, sizes, out, starts, ends, axes=None, steps=None):
    given = [numbers("s", *starts), numbers("e", *ends)]
    names = ["x", "s", "e"]
    for name, values in (("a", axes), ("t", steps)):
        if values is not None:
            given.append(numbers(name, *values))
        names.append(name if values is not None else "")
    return Case(
        f"g ({dtype}{sizes} x) => ({dtype}{out} y) <{', '.join(given)}> "
        f"{{ y = Slice({', '.join(names).rstrip(', ')}) }}"
    )


TRANSPOSES = {
    "rows and columns": Case("g (float[17,35] x) => (float[35,17] y) { y = Transpose(x) }"),
    "bytes": Case("g (int8[66,17] x) => (int8[17,66] y) { y = Transpose(x) }"),
    "half precision": Case("g (float16[65,18] x) => (float16[18,65] y) { y = Transpose(x) }"),
    "doubles": Case("g (double[33,16] x) => (double[16,33] y) { y = Transpose(x) }"),
    "a batch of squares": Case(
        "g (float[2,16,3,17] x) => (float[2,17,3,16] y) { y = Transpose<perm = [0,3,2,1]>(x) }"
    ),
    "heads": Case(
        "g (float16[2,3,4,8] x) => (float16[2,4,3,8] y) { y = Transpose<perm = [0,2,1,3]>(x) }"
    ),
    "channels of few": Case(
        "g (float[2,5,5,3] x) => (float[2,3,5,5] y) { y = Transpose<perm = [0,3,1,2]>(x) }"
    ),
    "nothing moves": Case(
        "g (int64[1,6,1] x) => (int64[1,1,6] y) { y = Transpose<perm = [0,2,1]>(x) }"
    ),
    "complex": Case("g (complex64[3,5] x) => (complex64[5,3] y) { y = Transpose(x) }"),
    "a scalar": Case("g (float x) => (float y) { y = Transpose(x) }"),
    "no elements": Case("g (float[0,5] x) => (float[5,0] y) { y = Transpose(x) }"),
}  # fmt: skip

CUTS = {
    "rows": slicing("float", "[6,5]", "[2,5]", [1], [3]),
    "backwards": slicing("float", "[6,5]", "[3,5]", [-1], [-100], [0], [-2]),
    "every second of two axes": slicing(
        "float16", "[4,9,2]", "[2,5,2]", [0, 0], [99, 99], [-3, 1], [2, 2]
    ),
    "columns in pairs": slicing("int8", "[5,8]", "[5,4]", [2], [6], [1]),
    "none": slicing("float", "[6,5]", "[6,0]", [4], [2], [1]),
    "a bool": slicing("bool", "[7]", "[3]", [6], [-8], [0], [-3]),
    "by attributes": Case(
        "g (float[4,6] x) => (float[2,3] y) { y = Slice<starts = [1,-3], ends = [3,99]>(x) }",
        opset=9,
    ),
    "parts of the first axis": Case(
        "g (float[7,2] x) => (float[3,2] a, float[3,2] b, float[1,2] c) { a, b, c = Split<num_outputs = 3>(x) }"
    ),
    "parts of the last axis": Case(
        f"g (float16[3,6] x) => (float16[3,4] a, float16[3,2] b) <{numbers('s', 4, 2)}> {{ a, b = Split<axis = -1>(x, s) }}"
    ),
    "parts by an attribute": Case(
        "g (float[5,2] x) => (float[1,2] a, float[4,2] b) { a, b = Split<axis = 0, split = [1,4]>(x) }",
        opset=11,
    ),
    "joined rows": Case(
        "g (float[2,3] a, float[1,3] b) => (float[3,3] y) { y = Concat<axis = 0>(a, b) }"
    ),
    "joined columns": Case(
        "g (float16[4,5] a, float16[4,3] b, float16[4,0] c) => (float16[4,8] y) { y = Concat<axis = -1>(a, b, c) }"
    ),
    "one joined with itself": Case(
        "g (int64[2,3,4] a) => (int64[2,6,4] y) { y = Concat<axis = 1>(a, a) }"
    ),
}  # fmt: skip

SPREADS = {
    "rows and columns": Case(
        f"g (float[3,1] x) => (float[2,3,4] y) <{numbers('s', 2, 1, 4)}> {{ y = Expand(x, s) }}"
    ),
    "to fewer": Case(
        f"g (bool[2,1,3] x) => (bool[2,1,3] y) <{numbers('s', 1, 3)}> {{ y = Expand(x, s) }}"
    ),
    "a scalar": Case(
        f"g (bfloat16 x) => (bfloat16[2,2] y) <{numbers('s', 2, 2)}> {{ y = Expand(x, s) }}",
        want=lambda feeds: {"y": np.full((2, 2), feeds["x"])},
    ),
    "tiles": Case(
        f"g (float[2,3] x) => (float[4,9] y) <{numbers('s', 2, 3)}> {{ y = Tile(x, s) }}"
    ),
    "no tile": Case(
        f"g (float[2,3] x) => (float[0,3] y) <{numbers('s', 0, 1)}> {{ y = Tile(x, s) }}"
    ),
    "depth": Case(
        "g (float[2,8,2,3] x) => (float[2,2,4,6] y) { y = DepthToSpace<blocksize = 2>(x) }"
    ),
    "depth in columns": Case(
        'g (int8[1,8,2,3] x) => (int8[1,2,4,6] y) { y = DepthToSpace<blocksize = 2, mode = "CRD">(x) }'
    ),
    "space": Case(
        "g (float[2,2,4,6] x) => (float[2,8,2,3] y) { y = SpaceToDepth<blocksize = 2>(x) }"
    ),
}  # fmt: skip

_FOLDS = {
    "none": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum,
    "min": np.minimum,
}  # fmt: skip


def scattered(axis, how="none"):
    """Give ScatterElements by its definition, one update after the other."""

    def want(feeds):
        y, fold = feeds["x"].copy(), _FOLDS[how]
        for at in np.ndindex(feeds["i"].shape):
            to = (*at[:axis], int(feeds["i"][at]), *at[axis + 1 :])
            y[to] = fold(y[to], feeds["u"][at])
        return {"y": y}

    return want


def picked(axis):
    """Give GatherElements by its definition."""

    def want(feeds):
        y = np.empty(feeds["i"].shape, feeds["x"].dtype)
        for at in np.ndindex(y.shape):
            y[at] = feeds["x"][(*at[:axis], int(feeds["i"][at]), *at[axis + 1 :])]
        return {"y": y}

    return want


GATHERS = {
    "rows": Case(
        "g (float[5,6] x, int64[2,3] i) => (float[2,3,6] y) { y = Gather(x, i) }",
        indices("i", (2, 3), -5, 5),
    ),
    "of the middle axis": Case(
        "g (float16[2,5,3] x, int32[4] i) => (float16[2,4,3] y) { y = Gather<axis = -2>(x, i) }",
        indices("i", 4, -5, 5, np.int32),
    ),
    "of the last axis": Case(
        "g (uint8[3,7] x, int64 i) => (uint8[3] y) { y = Gather<axis = 1>(x, i) }",
        indices("i", (), -7, 7),
    ),
    "a constant row": Case(
        "g (float[4,5] x) => (float[5] y) <int64 i = {-1}> { y = Gather(x, i) }"
    ),
    "constant neighbours backwards": Case(
        f"g (float[4,5] x) => (float[4,3] y) <{numbers('i', 3, 2, 1)}> {{ y = Gather<axis = 1>(x, i) }}"
    ),
    "constants in no order": Case(
        f"g (float[4,5] x) => (float[4,3] y) <{numbers('i', 3, -5, 1)}> {{ y = Gather<axis = 1>(x, i) }}"
    ),
    "no indices": Case("g (float[4,5] x, int64[0] i) => (float[0,5] y) { y = Gather(x, i) }"),
    "complex rows": Case(
        "g (complex128[5,2] x, int64[3] i) => (complex128[3,2] y) { y = Gather(x, i) }",
        indices("i", 3, -5, 5),
    ),
    "elements": Case(
        "g (float[3,4,5] x, int64[2,6,5] i) => (float[2,6,5] y) { y = GatherElements<axis = 1>(x, i) }",
        indices("i", (2, 6, 5), -4, 4),
        picked(1),
    ),
    "elements of one axis": Case(
        "g (int8[9] x, int32[4] i) => (int8[4] y) { y = GatherElements(x, i) }",
        indices("i", 4, -9, 9, np.int32),
    ),
    "tuples": Case(
        "g (float[3,4,5] x, int64[2,3,2] i) => (float[2,3,5] y) { y = GatherND(x, i) }",
        indices("i", (2, 3, 2), -3, 3),
    ),
    "whole tuples": Case(
        "g (bool[3,4] x, int64[6,2] i) => (bool[6] y) { y = GatherND(x, i) }",
        indices("i", (6, 2), -3, 3),
    ),
    "tuples in batches": Case(
        "g (float[2,4,3] x, int64[2,5,1] i) => (float[2,5,3] y) { y = GatherND<batch_dims = 1>(x, i) }",
        indices("i", (2, 5, 1), -4, 4),
    ),
}  # fmt: skip


def apart(name, shape, axis, size):
    """Draw indices of which none meet along an axis."""

    def make(spread):
        return {name: spread.permuted(np.broadcast_to(np.arange(size).reshape([-1 if a == axis else 1 for a in range(len(shape))]), [size if a == axis else n for a, n in enumerate(shape)]), axis=axis).take(range(shape[axis]), axis) - size * spread.integers(0, 2, shape)}  # fmt: skip

    return make


def tuples_apart(name, count, sizes):
    """Draw tuples of indices of which none meet."""

    def make(spread):
        flat = spread.permutation(int(np.prod(sizes)))[:count]
        return {name: np.stack(np.unravel_index(flat, sizes), -1).astype(np.int64)}

    return make


SCATTERS = {
    "elements": Case(
        "g (float[3,6] x, int64[2,4] i, float[2,4] u) => (float[3,6] y) { y = ScatterElements<axis = 1>(x, i, u) }",
        apart("i", (2, 4), 1, 6),
        scattered(1),
    ),
    "elements of one axis": Case(
        "g (int8[9] x, int32[4] i, int8[4] u) => (int8[9] y) { y = ScatterElements(x, i, u) }",
        lambda spread: {"i": spread.permutation(9)[:4].astype(np.int32)},
    ),
    "elements in place": Case(
        "g (float[3,6] z, int64[2,4] i, float[2,4] u) => (float[3,6] y) { x = Neg(z)  y = ScatterElements<axis = 1>(x, i, u) }",
        apart("i", (2, 4), 1, 6),
    ),
    "data as its own updates": Case(
        "g (float[4,3] z, int64[4,3] i) => (float[4,3] y) { x = Neg(z)  y = ScatterElements(x, i, x) }",
        apart("i", (4, 3), 0, 4),
    ),
    "tuples": Case(
        "g (float16[4,5,6] x, int64[7,2] i, float16[7,6] u) => (float16[4,5,6] y) { y = ScatterND(x, i, u) }",
        tuples_apart("i", 7, (4, 5)),
    ),
    "whole tuples": Case(
        "g (int64[4,5] x, int64[3,2] i, int64[3] u) => (int64[4,5] y) { y = ScatterND(x, i, u) }",
        tuples_apart("i", 3, (4, 5)),
    ),
    "no updates": Case(
        "g (float[4,5] x, int64[0,1] i, float[0,5] u) => (float[4,5] y) { y = ScatterND(x, i, u) }"
    ),
}  # fmt: skip
for _how in ("add", "mul", "max", "min"):
    for _kind in ("float", "float16", "int32", "double"):
        SCATTERS[f"{_how} of {_kind} elements"] = Case(
            f'g ({_kind}[3,4,2] x, int64[2,6,2] i, {_kind}[2,6,2] u) => ({_kind}[3,4,2] y) {{ y = ScatterElements<axis = 1, reduction = "{_how}">(x, i, u) }}',
            indices("i", (2, 6, 2), -4, 4),
            scattered(1, _how),
            rtol=1e-5 if _kind != "float16" else 1e-2,
        )  # fmt: skip
    SCATTERS[f"{_how} of tuples"] = Case(
        f'g (float[4,5] x, int64[7,1] i, float[7,5] u) => (float[4,5] y) {{ y = ScatterND<reduction = "{_how}">(x, i, u) }}',
        indices("i", (7, 1), -4, 4),
        rtol=1e-5,
    )  # fmt: skip


def padding(dtype, sizes, out, pads, mode="constant", value="", axes=None):
    given, names = [numbers("p", *pads)], "x, p"
    feed = f", {dtype} v" if value else ""
    if value or axes:
        names += ", v" if value else ", "
    if axes:
        given.append(numbers("a", *axes))
        names += ", a"
    return Case(
        f"g ({dtype}{sizes} x{feed}) => ({dtype}{out} y) <{', '.join(given)}> "
        f'{{ y = Pad<mode = "{mode}">({names}) }}'
    )


PADS = {
    "zeros around an image": padding(
        "float", "[1,2,3,4]", "[1,2,6,6]", [0, 0, 1, 1, 0, 0, 2, 1]
    ),
    "a value that comes with a run": padding(
        "float16", "[3,2]", "[4,2]", [1, 0, 0, 0], value="v"
    ),
    "cropped and padded": attrs.evolve(
        padding("int32", "[5,4]", "[4,7]", [-2, 3, 1, 0]),
        want=lambda feeds: {"y": np.pad(feeds["x"][2:], ((0, 1), (3, 0)))},
    ),
    "of one axis": padding("int8", "[2,3,2]", "[2,5,2]", [1, 1], axes=[-2]),
    "edges": padding("float", "[2,3]", "[4,6]", [1, 2, 1, 1], "edge"),
    "reflected": padding("double", "[2,4,3]", "[2,7,5]", [0, 1, 1, 0, 2, 1], "reflect"),
    "reflected more than once": padding(
        "float", "[3,1]", "[12,2]", [5, 0, 4, 1], "reflect"
    ),
    "wrapped more than once": padding("float", "[3]", "[11]", [7, 1], "wrap"),
    "wrapped": padding("uint8", "[3,4]", "[5,9]", [2, 3, 0, 2], "wrap"),
    "all of nothing": padding("float", "[0,2]", "[3,2]", [1, 0, 2, 0]),
    "by attributes": Case(
        "g (float[2,3] x) => (float[4,3] y) { y = Pad<pads = [1,0,1,0], value = 2.5>(x) }",
        opset=10,
        want=lambda feeds: {
            "y": np.pad(feeds["x"], ((1, 1), (0, 0)), constant_values=2.5)
        },
    ),
    "cropped and padded around the middle": Case(
        f"g (float[5,4] x) => (float[3,7] y) <{numbers('s', 3, 7)}> {{ y = CenterCropPad(x, s) }}"
    ),
}

MASKS = {
    "upper": Case("g (float[2,4,5] x) => (float[2,4,5] y) { y = Trilu(x) }"),
    "lower": Case(
        "g (float16[4,3] x, int64 k) => (float16[4,3] y) { y = Trilu<upper = 0>(x, k) }",
        indices("k", (), -3, 3),
    ),
    "upper from below": Case(
        "g (int64[3,4] x, int64 k) => (int64[3,4] y) { y = Trilu(x, k) }",
        indices("k", (), -2, 4),
    ),
    "one hot": Case(
        "g (int64[2,3] i, float[2] v) => (float[2,3,4] y) <int64 d = {4}> { y = OneHot(i, d, v) }",
        indices("i", (2, 3), -4, 4),
    ),
    "one hot of the first axis": Case(
        "g (int32[5] i, int8[2] v) => (int8[3,5] y) <int64 d = {3}> { y = OneHot<axis = 0>(i, d, v) }",
        indices("i", 5, -3, 3, np.int32),
    ),
    "nothing hot": Case(
        "g (float[2] i, float16[2] v) => (float16[2,3] y) <int64 d = {3}> { y = OneHot(i, d, v) }",
        lambda spread: {"i": np.array([7, 1], np.float32)},
        lambda feeds: {"y": feeds["v"][[[0, 0, 0], [0, 1, 0]]]},
    ),
    "sequences in columns": Case(
        "g (float[4,3,2] x, int64[3] n) => (float[4,3,2] y) { y = ReverseSequence(x, n) }",
        indices("n", 3, 1, 5),
    ),
    "sequences in rows": Case(
        "g (int8[3,5] x, int64[3] n) => (int8[3,5] y) { y = ReverseSequence<time_axis = 1, batch_axis = 0>(x, n) }",
        indices("n", 3, 1, 6),
    ),
}

FILLS = {
    "float zeros": Case(
        "g (float[3] x, int64[2] s) => (float[2,3] y) { z = ConstantOfShape(s) y = Add(z, x) }",
        lambda spread: {"s": np.array([2, 3])},
    ),
    "odd bytes": Case(
        "g (int64[1] s) => (int8[5] y) { y = ConstantOfShape<value = int8[1] {-7}>(s) }",
        lambda spread: {"s": np.array([5])},
    ),
    "a range of integers": Case(
        "g (int64 a, int64 b, int64 c) => (int64[4] y) { y = Range(a, b, c) }",
        lambda spread: (
            lambda a: {
                "a": np.array(a),
                "b": np.array(a - 11),
                "c": np.array(-3),
            }
        )(int(spread.integers(-9, 9))),
    ),
    "a range of floats": Case(
        "g (float a, float b, float c) => (float[4] y) { y = Range(a, b, c) }",
        lambda spread: {
            "a": np.array(0.5, np.float32),
            "b": np.array(2.4, np.float32),
            "c": np.array(0.5, np.float32),
        },
    ),
    "a diagonal": Case("g (int32[4,5] x) => (int32[4,5] y) { y = EyeLike<k = 1>(x) }"),
    "a diagonal of floats": Case(
        "g (float[4,4] x) => (float[4,4] y) { y = EyeLike(x) }"
    ),
    "a diagonal of another type": Case(
        "g (float[5,3] x) => (float16[5,3] y) { y = EyeLike<k = -2, dtype = 10>(x) }"
    ),
    "a shape": Case(
        "g (float[4,5,6] x) => (int64[2] y, int64 n) { y = Shape<start = -2>(x) n = Size(x) }"
    ),
}


def resizing(dtype, sizes, out, mode, *, scales=None, to=None, roi=None, **given):
    given = {"mode": mode, **given}
    listed = ", ".join(
        f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in given.items()
    )
    values = [numbers("r", *roi, dtype="float")] if roi else []
    values.append(numbers("s", *scales, dtype="float") if scales else numbers("s", *to))
    names = f"x, {'r' if roi else ''}, {'s' if scales else ', s'}"
    return Case(
        f"g ({dtype}{sizes} x) => ({dtype}{out} y) <{', '.join(values)}> "
        f"{{ y = Resize<{listed}>({names}) }}",
        rtol=0 if mode == "nearest" else 2e-2 if dtype == "float16" else 1e-5,
    )


RESIZES = {
    "twice as large": resizing(
        "float", "[1,2,3,4]", "[1,2,6,8]", "nearest", scales=[1.0, 1.0, 2.0, 2.0]
    ),
    "smaller, in a type of 16 bits": resizing(
        "float16", "[1,1,5,7]", "[1,1,3,4]", "nearest", to=[1, 1, 3, 4]
    ),
    "linear": resizing("float", "[2,3,4]", "[2,5,7]", "linear", to=[2, 5, 7]),
    "linear of halves": resizing(
        "float16", "[1,1,4,4]", "[1,1,7,3]", "linear", scales=[1.0, 1.0, 1.8, 0.8]
    ),
    "linear of a volume": resizing(
        "double", "[1,2,3,2]", "[1,4,5,3]", "linear", to=[1, 4, 5, 3]
    ),
    "cubic": resizing("float", "[1,1,4,5]", "[1,1,7,8]", "cubic", to=[1, 1, 7, 8]),
    "cubic without what is outside": resizing(
        "float", "[1,1,4,5]", "[1,1,6,4]", "cubic", to=[1, 1, 6, 4],
        cubic_coeff_a=-0.5, exclude_outside=1,
    ),
    "linear, stretched": resizing(
        "float", "[1,2,9,8]", "[1,2,4,3]", "linear", to=[1, 2, 4, 3], antialias=1
    ),
    "linear, stretched along one axis of two": resizing(
        "float", "[1,1,9,4]", "[1,1,4,7]", "linear", to=[1, 1, 4, 7], antialias=1
    ),
    "linear, stretched over a volume": resizing(
        "double", "[6,5,7]", "[3,2,4]", "linear", to=[3, 2, 4], antialias=1
    ),
    "linear of halves, stretched": resizing(
        "float16", "[1,1,7,9]", "[1,1,3,4]", "linear", to=[1, 1, 3, 4], antialias=1
    ),
    "cubic, stretched": resizing(
        "float", "[1,1,12,11]", "[1,1,5,4]", "cubic", to=[1, 1, 5, 4], antialias=1
    ),
    "cubic, stretched, without what is outside": resizing(
        "float", "[1,1,12,11]", "[1,1,5,4]", "cubic", scales=[1.0, 1.0, 0.42, 0.4],
        antialias=1, exclude_outside=1, cubic_coeff_a=-0.5,
        coordinate_transformation_mode="asymmetric",
    ),
    "stretched by nothing": resizing(
        "float", "[1,5]", "[1,10]", "linear", scales=[1.0, 2.0], antialias=1
    ),
    "cropped": resizing(
        "float", "[4,4]", "[3,5]", "linear", to=[3, 5], roi=[0.2, -0.4, 0.8, 1.3],
        coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=10.0,
    ),
    "the nearest, cropped": resizing(
        "float16", "[4,4]", "[3,5]", "nearest", to=[3, 5], roi=[0.3, -0.4, 0.6, 1.3],
        coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=10.0,
    ),
    "of one axis": resizing(
        "float", "[3,4]", "[3,8]", "linear", scales=[2.0], axes=[1]
    ),
    "no change": resizing("float", "[3,4]", "[3,4]", "linear", to=[3, 4]),
    "by attributes": Case(
        "g (float[1,1,2,2] x) => (float[1,1,4,6] y) { y = Upsample<scales = [1.0,1.0,2.0,3.0]>(x) }",
        want=lambda feeds: {"y": feeds["x"].repeat(2, 2).repeat(3, 3)},
        opset=8,
    ),
    "by the scales of version 10": Case(
        f"g (float[1,1,2,3] x) => (float[1,1,4,6] y) <{numbers('s', 1.0, 1.0, 2.0, 2.0, dtype='float')}> {{ y = Resize(x, s) }}",
        want=lambda feeds: {"y": feeds["x"].repeat(2, 2).repeat(2, 3)},
        opset=10,
    ),
}  # fmt: skip
for _way in (
    "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric",
):  # fmt: skip
    RESIZES[f"linear by {_way}"] = resizing(
        "float", "[1,4]", "[1,7]", "linear", scales=[1.0, 1.75],
        coordinate_transformation_mode=_way,
    )  # fmt: skip
    for _how in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        RESIZES[f"the nearest by {_way}, {_how}"] = resizing(
            "int32", "[5,6]", "[7,3]", "nearest", to=[7, 3], nearest_mode=_how,
            coordinate_transformation_mode=_way,
        )  # fmt: skip
