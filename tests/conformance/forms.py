"""
Inputs and attributes for one-node models of an operator at one of its since-versions.

A form is (inputs, attributes); an input of None is left out. ``forms_of`` gives the forms
that the version accepts: where an attribute became an input, each version gets its own.
"""

from __future__ import annotations

import ml_dtypes  # registers bfloat16 with NumPy
import numpy as np
import onnx

SHAPES = [(), (0, 3), (2, 3, 4)]
PAIRS = [((2, 3), (2, 3)), ((2, 1, 3), (4, 1)), ((), (2, 3)), ((0, 3), (1, 3))]
UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitwiseNot",
    "Ceil",
    "Celu",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Not",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shape",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Size",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
]
BINARY = [
    "Add",
    "And",
    "BitShift",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Mul",
    "Or",
    "PRelu",
    "Pow",
    "Sub",
    "Xor",
]
REDUCTIONS = [
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
]
NUMPY = {
    "float": np.float32, "double": np.float64, "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16, "bool": np.bool_,
    **{f"{sign}int{n}": np.dtype(f"{sign}int{n}") for sign in ("", "u") for n in (8, 16, 32, 64)},
}  # fmt: skip


def dtypes_of(schema, index=0):
    """Give the NumPy dtypes that an input accepts at a version."""
    found = []
    for said in sorted(schema.inputs[index].types):
        inner = said.removeprefix("tensor(").removesuffix(")")
        if inner in NUMPY:
            found.append(np.dtype(NUMPY[inner]))
    return sorted(found, key=lambda dtype: (dtype != np.float32, dtype.name))


def drawn(rng, shape, dtype=np.float32, low=-2.5, high=3.5):
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    low = max(low, 0) if dtype.kind == "u" else low
    value = np.asarray(rng.uniform(low, high, shape))
    return (np.floor(value) if dtype.kind in "iu" else value).astype(dtype)


def ints(*values):
    return np.array(values, np.int64)


def unary(schema, rng):
    low, high = {"Acosh": (1.1, 4), "Atanh": (-0.9, 0.9), "Acos": (-1, 1),
                 "Asin": (-1, 1), "Log": (0.1, 4), "Sqrt": (0, 4)}.get(schema.name, (-2.5, 3.5))  # fmt: skip
    dtypes = dtypes_of(schema)
    for shape in SHAPES:
        yield [drawn(rng, shape, dtypes[0], low, high)], {}
    for dtype in dtypes[1:]:
        yield [drawn(rng, (2, 3), dtype, low, high)], {}
    for name in sorted(schema.attributes.keys() & {"alpha", "lambd", "bias", "gamma"}):
        yield [drawn(rng, (3, 5))], {name: 0.75}


def binary(schema, rng):
    attributes = {"direction": "LEFT"} if schema.name == "BitShift" else {}
    low = 1 if schema.name in {"Div", "Pow"} else -2.5
    dtypes = dtypes_of(schema)
    for first, second in PAIRS:
        if schema.name == "PRelu" and np.broadcast_shapes(first, second) != first:
            continue
        yield [drawn(rng, first, dtypes[0], low), drawn(rng, second, dtypes[0], low)], attributes  # fmt: skip
    for dtype in dtypes[1:]:
        yield [drawn(rng, (2, 3), dtype, low), drawn(rng, (2, 3), dtype, low)], attributes  # fmt: skip


def mod(schema, rng):
    for dtype in dtypes_of(schema):
        x, y = drawn(rng, (2, 3), dtype, -9, 9), drawn(rng, (3,), dtype, 1, 4)
        for divisor in (y, -y) if dtype.kind != "u" else (y,):
            yield [x, divisor], {"fmod": int(dtype.kind not in "iu")}


def variadic(schema, rng):
    dtypes = dtypes_of(schema)
    groups = [[(2, 3)], [(2, 3)] * 3, [(0, 3)] * 2]
    if schema.since_version >= 8:
        groups += [[(2, 3), (3,)], [(2, 1), (), (1, 3)], [(0, 3), (1, 3)]]
    for shapes in groups:
        yield [drawn(rng, shape, dtypes[0]) for shape in shapes], {}
    for dtype in dtypes[1:]:
        yield [drawn(rng, (2, 3), dtype), drawn(rng, (2, 3), dtype)], {}


def with_axes(schema, inputs, axes, **attributes):
    """Put axes where the version has them."""
    if axes is None:
        return inputs, attributes
    if "axes" in schema.attributes:
        return inputs, {"axes": list(axes), **attributes}
    return [*inputs, ints(*axes)], attributes


def reduction(schema, rng):
    low = 0.1 if "Log" in schema.name else -2.5
    negative = (-1,) if schema.since_version >= 11 else (2,)
    for axes in (None, (0,), (0, 2), negative):
        for keepdims in (0, 1):
            x = drawn(rng, (2, 3, 4), np.float32, low)
            yield with_axes(schema, [x], axes, keepdims=keepdims)
    yield with_axes(schema, [drawn(rng, (0, 3))], (1,), keepdims=1)
    yield [drawn(rng, (), np.float32, 0.1)], {"keepdims": 0}
    if "noop_with_empty_axes" in schema.attributes:
        yield [drawn(rng, (2, 3), np.float32, low)], {"noop_with_empty_axes": 1}
        yield [drawn(rng, (2, 3), np.float32, low), ints()], {"keepdims": 0}
    for dtype in dtypes_of(schema)[1:]:
        if dtype != np.bool_:
            x = drawn(rng, (2, 3), dtype, 1)
            yield with_axes(schema, [x], (1,), keepdims=0)


def extremum_place(schema, rng):
    for dtype in dtypes_of(schema):
        x = drawn(rng, (3, 4), dtype, 0, 3)
        for axis in (0, 1) if schema.since_version < 11 else (0, -1):
            yield [x], {"axis": axis, "keepdims": 0}
            if "select_last_index" in schema.attributes:
                yield [x], {"axis": axis, "select_last_index": 1}


def along_axis(schema, rng):
    shapes = [(2, 3, 4), (0, 3)]
    if (
        schema.since_version >= 13
    ):  # before, the default axis is 1, which a vector lacks
        shapes.append((3,))
    for shape in shapes:
        yield [drawn(rng, shape)], {}
    for axis in (0, 1, 2) if schema.since_version < 11 else (0, -2, 2):
        yield [drawn(rng, (2, 3, 4))], {"axis": axis}


def squeeze(schema, rng):
    x = drawn(rng, (1, 3, 1, 2))
    for axes in (None, (0,), (0, 2), *([(-2,)] if schema.since_version >= 11 else [])):
        yield with_axes(schema, [x], axes)


def unsqueeze(schema, rng):
    for axes in ((0,), (1, 2), *([(-1, 0)] if schema.since_version >= 11 else [])):
        yield with_axes(schema, [drawn(rng, (2, 3))], axes)
        yield with_axes(schema, [drawn(rng, (0, 3))], axes)
    yield with_axes(schema, [drawn(rng, ())], (0,))


def split(schema, rng):
    for sizes, axis in (((1, 3), 1), ((2, 0), 0)):
        x = drawn(rng, (2, 4))
        if "split" in schema.attributes:
            yield [x], {"split": list(sizes), "axis": axis}
        else:
            yield [x, ints(*sizes)], {"axis": axis}
    count = {"num_outputs": 2} if "num_outputs" in schema.attributes else {}
    yield [drawn(rng, (4, 3))], count
    if count:
        yield [drawn(rng, (5, 3))], count


def slices(schema, rng):
    x = drawn(rng, (4, 5))
    for starts, ends, axes in (((1,), (3,), None), ((-3, 0), (100, -1), (0, 1)), ((3,), (1,), (1,))):  # fmt: skip
        if "starts" in schema.attributes:
            given = {"starts": list(starts), "ends": list(ends)}
            yield [x], {**given, "axes": list(axes)} if axes else given
        else:
            yield [x, ints(*starts), ints(*ends), ints(*axes) if axes else None], {}
    if "starts" not in schema.attributes:
        yield [x, ints(-1, 4), ints(-9, 0), ints(0, 1), ints(-1, -2)], {}
        yield [x, ints(1), ints(4), None, ints(2)], {}


def pad(schema, rng):
    for mode in ("constant", "reflect", "edge", *(["wrap"] if schema.since_version >= 19 else [])):  # fmt: skip
        x = drawn(rng, (3, 4))
        pads = (1, 0, 0, 2)
        if "pads" in schema.attributes:
            yield [x], {"pads": list(pads), "mode": mode, "value": 1.5}
        else:
            yield [x, ints(*pads), np.float32(1.5) if mode == "constant" else None], {"mode": mode}  # fmt: skip
            if schema.since_version >= 18:
                yield [x, ints(1, 2), None, ints(-1)], {"mode": mode}


def clip(schema, rng):
    if "min" in schema.attributes:
        x = drawn(rng, (3, 4))
        return [([x], {"min": -1.0, "max": 2.0}), ([x], {"max": 0.5}), ([x], {})]
    forms = []
    for dtype in dtypes_of(schema):
        x = drawn(rng, (3, 4), dtype)
        low, high = np.asarray(0, dtype), np.asarray(2, dtype)
        forms += [
            ([x, low, high], {}),
            ([x, None, high], {}),
            ([x, low], {}),
            ([x], {}),
        ]
    return forms


def topk(schema, rng):
    x = drawn(rng, (3, 5))
    if "k" in schema.attributes:
        return [([x], {"k": 2}), ([x], {"k": 3, "axis": 0})]
    return [([x, ints(2)], {}), ([x, ints(3)], {"axis": 0}), ([x, ints(0)], {}),
            *([([x, ints(2)], {"largest": 0})] if schema.since_version >= 11 else [])]  # fmt: skip


def dropout(schema, rng):
    x = drawn(rng, (3, 4))
    return [([x], {}), ([drawn(rng, (0, 4))], {})]


def cast(schema, rng):
    kinds = [np.dtype(d) for d in (np.float32, np.float64, np.float16, np.int8, np.int32,
                                   np.int64, np.uint8, np.bool_)]  # fmt: skip
    for source in kinds:
        for target in kinds:
            to = onnx.helper.np_dtype_to_tensor_dtype(target)
            yield [drawn(rng, (2, 3), source, 0, 100)], {"to": to}


def gather(schema, rng):
    x = drawn(rng, (3, 4))
    at = ints(0, 2) if schema.since_version < 11 else ints(0, -1)
    return [([x, at], {}), ([x, at.reshape(1, 2)], {"axis": 1}),
            ([x, np.int32(1)], {"axis": 0}), ([x, ints()], {"axis": 1})]  # fmt: skip


def concat(schema, rng):
    shapes = [(2, 3), (1, 3), (0, 3)]
    return [([drawn(rng, s, d) for s in shapes], {"axis": 0}) for d in dtypes_of(schema)] + [
        ([drawn(rng, (2, 3)), drawn(rng, (2, 1))], {"axis": 1 if schema.since_version < 11 else -1})]  # fmt: skip


def reshape(schema, rng):
    x = drawn(rng, (2, 3, 4))
    forms = [([x, ints(*to)], {}) for to in ((6, 4), (0, -1), (-1,), (2, 0, 2, 2))]
    if "allowzero" in schema.attributes:
        forms.append(([drawn(rng, (0, 3)), ints(3, 0)], {"allowzero": 1}))
    return [
        *forms,
        ([drawn(rng, ()), ints(1, 1)], {}),
        ([drawn(rng, (1,)), ints()], {}),
    ]


def flatten(schema, rng):
    return [([drawn(rng, (2, 3, 4))], {"axis": axis}) for axis in (0, 1, 2, 3)]


def transpose(schema, rng):
    return [([drawn(rng, (2, 3, 4))], {}), ([drawn(rng, (2, 3, 4))], {"perm": [1, 0, 2]}),
            ([drawn(rng, (0, 3))], {}), ([drawn(rng, ())], {})]  # fmt: skip


def expand(schema, rng):
    return [([drawn(rng, shape), ints(*to)], {})
            for shape, to in (((3, 1), (2, 1, 4)), ((), (2, 3)), ((1, 3), (0, 3)), ((2, 3), (1, 1)))]  # fmt: skip


def tile(schema, rng):
    return [([drawn(rng, (2, 3)), ints(*by)], {}) for by in ((2, 1), (1, 0), (2, 3))]


def where(schema, rng):
    return [([drawn(rng, c, np.bool_), drawn(rng, x), drawn(rng, y)], {})
            for c, x, y in (((2, 1), (3,), ()), ((), (2, 3), (2, 3)), ((0, 1), (3,), (1, 3)))]  # fmt: skip


def matmul(schema, rng):
    shapes = [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((3,), (3,)), ((3,), (2, 3, 4)),
              ((2, 1, 2, 3), (5, 3, 2)), ((0, 3), (3, 2)), ((2, 0), (0, 3))]  # fmt: skip
    for first, second in shapes:
        yield [drawn(rng, first), drawn(rng, second)], {}
    for dtype in dtypes_of(schema)[1:]:
        yield [drawn(rng, (2, 3), dtype), drawn(rng, (3, 4), dtype)], {}


def gemm(schema, rng):
    a, b = drawn(rng, (2, 3)), drawn(rng, (3, 4))
    yield [a, b, drawn(rng, (4,))], {}
    yield [a.T.copy(), b.T.copy(), drawn(rng, (2, 1))], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}  # fmt: skip
    yield [a, b, drawn(rng, ())], {}
    if schema.since_version >= 11:
        yield [a, b], {}


def batch_normalization(schema, rng):
    for shape in ((2, 3, 4, 5), (2, 3), (1, 3, 4)):
        per = [drawn(rng, (3,)) for _ in range(3)] + [drawn(rng, (3,), np.float32, 0.5)]
        yield [drawn(rng, shape), *per], {"epsilon": 1e-3}


def upsample(schema, rng):
    x, scales = drawn(rng, (1, 1, 2, 3)), np.array([1, 1, 2, 1.5], np.float32)
    for mode in ("nearest", "linear"):
        if "scales" in schema.attributes:
            yield [x], {"scales": scales.tolist(), "mode": mode}
        else:
            yield [x, scales], {"mode": mode}


def resize(schema, rng):
    x, scales = drawn(rng, (1, 1, 4, 3)), np.array([1, 1, 2, 0.7], np.float32)
    for mode in ("nearest", "linear", "cubic"):
        if schema.since_version < 11:
            if mode != "cubic":
                yield [x, scales], {"mode": mode}
            continue
        roi = np.zeros(0, np.float32)
        for way in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
            attributes = {"mode": mode, "coordinate_transformation_mode": way}
            # ONNX's cases divide by the length times the scale, which onnxruntime rounds.
            whole = np.float32([1, 1, 2, 3]) if way == "align_corners" else scales
            yield [x, roi, whole], attributes
            nothing = np.zeros(0, np.float32) if schema.since_version < 13 else None
            yield [x, roi, nothing, ints(1, 1, 3, 5)], attributes


def depth_to_space(schema, rng):
    modes = ("DCR", "CRD") if "mode" in schema.attributes else (None,)
    for mode in modes:
        for shape in ((2, 8, 2, 3), (0, 4, 1, 1)):
            attributes = {"blocksize": 2, "mode": mode} if mode else {"blocksize": 2}
            yield [drawn(rng, shape)], attributes


def global_pool(schema, rng):
    for shape in ((2, 3, 4, 5), (1, 2, 6), (2, 1, 2, 3, 2)):
        yield [drawn(rng, shape)], {"p": 3} if "p" in schema.attributes else {}


def grid_sample(schema, rng):
    new = schema.since_version >= 20
    modes = (
        ("nearest", "linear", "cubic") if new else ("nearest", "bilinear", "bicubic")
    )
    for mode in modes:
        for padding in ("zeros", "border", "reflection"):
            for align in (0, 1):
                x, grid = drawn(rng, (2, 3, 4, 5)), drawn(rng, (2, 3, 6, 2), np.float32, -1.9, 1.9)  # fmt: skip
                yield [x, grid], {"mode": mode, "padding_mode": padding, "align_corners": align}  # fmt: skip
    if new:
        yield [drawn(rng, (1, 2, 3, 4, 2)), drawn(rng, (1, 2, 2, 2, 3))], {}


def roi_align(schema, rng):
    x = drawn(rng, (2, 3, 9, 7))
    rois = np.float32(
        [[0, 0, 5, 6], [1.5, 2, 4, 8.5], [-3, -2, 2, 3], [2, 2, 2.1, 2.1]]
    )
    for ratio in (0, 2):
        for scale in (1.0, 0.5):
            sizes = {"output_height": 3, "output_width": 2, "sampling_ratio": ratio}
            yield [x, rois, ints(0, 1, 1, 0)], {**sizes, "spatial_scale": scale}
    if schema.since_version >= 16:
        way = {"coordinate_transformation_mode": "output_half_pixel"}
        yield [x, rois, ints(0, 1, 1, 0)], {**way, "output_height": 2}


def max_roi_pool(schema, rng):
    rois = np.float32(
        [[0, 0, 0, 4, 6], [1, 2, 3, 3, 8], [1, 5, 5, 12, 12], [0, -2, 1, 3, 3]]
    )
    for scale in (1.0, 0.6):
        yield [drawn(rng, (2, 3, 9, 7)), rois], {"pooled_shape": [3, 2], "spatial_scale": scale}  # fmt: skip


def dft(schema, rng):
    new = schema.since_version >= 20
    for shape in ((2, 8, 1), (2, 5, 2), (1, 6, 4, 1)):
        x = drawn(rng, shape)
        for length in (None, 4, 9):
            given = [x, None if length is None else np.int64(length)]
            for attributes in ({}, {"onesided": 1}, {"inverse": 1}):
                if attributes.get("onesided") and shape[-1] == 2:
                    continue
                if attributes.get("inverse") and shape[-1] == 1:
                    continue
                yield [*given, np.int64(1)] if new else given, attributes


def stft(schema, rng):
    for shape, window in (((2, 20, 1), 6), ((1, 17, 1), None)):
        frame = drawn(rng, (window,)) if window else None
        yield [drawn(rng, shape), np.int64(3), frame, np.int64(window or 5)], {"onesided": 1}  # fmt: skip


def window(schema, rng):
    for size in (2, 7, 10):
        for periodic in (0, 1):
            yield [np.int64(size)], {"periodic": periodic}


def affine_grid(schema, rng):
    for align in (0, 1):
        yield [drawn(rng, (2, 2, 3)), ints(2, 3, 4, 5)], {"align_corners": align}
        yield [drawn(rng, (1, 3, 4)), ints(1, 3, 2, 3, 4)], {"align_corners": align}


def deform_conv(schema, rng):
    x, weight = drawn(rng, (2, 4, 6, 7)), drawn(rng, (6, 2, 3, 2))
    shape = {"pads": [1, 0, 1, 1], "strides": [2, 1], "dilations": [1, 2]}
    offset, mask = drawn(rng, (2, 2 * 12, 3, 6)), drawn(rng, (2, 2 * 6, 3, 6))
    groups = {"group": 2, "offset_group": 2}
    yield [x, weight, offset, drawn(rng, (6,)), mask], {**shape, **groups}
    yield [x, weight, offset], {**shape, **groups}


FORMS = {
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), window),
    "AffineGrid": affine_grid, "DeformConv": deform_conv, "DFT": dft, "STFT": stft,
    "GridSample": grid_sample, "MaxRoiPool": max_roi_pool, "RoiAlign": roi_align,
    "DepthToSpace": depth_to_space,
    **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), global_pool),
    **dict.fromkeys(UNARY, unary), **dict.fromkeys(BINARY, binary),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), variadic),
    **dict.fromkeys(REDUCTIONS, reduction),
    **dict.fromkeys(("ArgMax", "ArgMin"), extremum_place),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), along_axis),
    "BatchNormalization": batch_normalization, "Cast": cast, "Clip": clip, "Concat": concat,
    "Dropout": dropout, "Expand": expand, "Flatten": flatten, "Gather": gather, "Gemm": gemm,
    "MatMul": matmul, "Mod": mod, "Pad": pad, "Reshape": reshape, "Resize": resize,
    "Slice": slices, "Split": split, "Squeeze": squeeze, "Tile": tile, "TopK": topk,
    "Transpose": transpose, "Unsqueeze": unsqueeze, "Upsample": upsample, "Where": where,
}  # fmt: skip


def forms_of(schema):
    """Give (node, opset, feeds) for each form of a version."""
    rng = np.random.default_rng(schema.since_version)
    made = []
    for inputs, attributes in FORMS.get(schema.name, lambda *_: ())(schema, rng):
        arrays = [None if x is None else np.asarray(x) for x in inputs]
        names = ["" if x is None else f"x{i}" for i, x in enumerate(arrays)]
        count = 2 if schema.name in {"Split", "TopK"} else 1
        outputs = [f"y{i}" for i in range(count)]
        node = onnx.helper.make_node(schema.name, names, outputs, **attributes)
        feeds = {n: x for n, x in zip(names, arrays, strict=True) if n}
        made.append((node, max(schema.since_version, 7), feeds))
    return made
