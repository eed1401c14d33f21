"""
Small models that mutations start from, each holding something that loading looks at.

Most are written in ONNX's own text form; what it has no words for is added to the proto.
"""

from __future__ import annotations

import attrs
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

__all__ = ["WEIGHTS", "Seed", "node_suite_seeds", "written_seeds"]

WEIGHTS = np.arange(64, dtype=np.float32).tobytes()  #: what ``weights.bin`` holds
_LARGEST = 1 << 15  # bytes of a node suite's model; above it mutations are slow


@attrs.frozen
class Seed:
    """A model, and the files that lie beside it."""

    name: str
    model: bytes
    files: tuple[tuple[str, bytes], ...] = ()

    def proto(self) -> onnx.ModelProto:
        """Give the model as a proto of the caller's own."""
        return onnx.ModelProto.FromString(self.model)


_HEAD = '<ir_version: 10, opset_import: ["" : 21, "own" : 1, "com.microsoft" : 1]>'
_TEXTS = {
    "layers": """g (float[N, 4] x) => (float[N, 2] y)
        <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[2] b = {1, 2}> {
        h = MatMul(x, w)  s = Add(h, b)  r = Relu(s)  y = Softmax<axis = -1>(r) }""",
    "sizes": """g (float[A, B, 4] x) => (float[C, D] y, float[E] z)
        <int64[1] one = {1}, int64[2] at = {0, 1}, int64 first = {0}, int64 step = {1}> {
        all = Shape(x)  ab = Gather(all, at)  n = Gather(all, first)
        minus = Constant<value_ints = [-1]>()  whole = Concat<axis = 0>(one, minus)
        flat = Reshape(x, whole)  y = Tile(flat, at)
        count = Range(first, n, step)  f = Cast<to = 1>(count)
        full = ConstantOfShape<value = float[1] {2}>(one)  z = Add(f, full) }""",
    "folded": """g (float[2, 3] x) => (float[2, 3] y)
        <float[2, 3] w = {1, 2, 3, 4, 5, 6}, int64[2] p = {1, 2},
         int64[2] shape = {2, 3}, int64[1] axis = {0}, int64[4] r = {0, 1, 0, 1}> {
        t = Transpose<perm = [1, 0]>(w)  u = Transpose(t)  k = Tile(u, p)
        a, b = Split<axis = 1, num_outputs = 2>(k)  c = Unsqueeze(a, axis)
        d = Squeeze(c, axis)  s = Slice(d, axis, shape)  e = Expand(b, shape)
        m = ReduceSum<keepdims = 0>(e, axis)  q = Pad(b, r)  o = OneHot(p, axis, m)
        y = Add(x, e) }""",
    "branches": """g (bool c, float[N] x) => (float[M] y) {
        y = If(c) <then_branch = a () => (float[N] p) { p = Neg(x) },
                   else_branch = b () => (float[N] q) { r = If(c) <
                     then_branch = d () => (float[N] s) { s = Abs(x) },
                     else_branch = e () => (float[N] t) { t = Identity(x) }>
                     q = Add(r, x) }> }""",
    "turns": """g (int64 n, float[2] x) => (float[2] y, float[K, 2] all) {
        go = Constant<value = bool {1}>()
        y, all = Loop(n, go, x) <body = b (int64 i, bool c, float[2] h)
            => (bool d, float[2] k, float[2] o) {
            d = Identity(c)  k = Add(h, x)  o = Mul(k, h) }> }""",
    "scanned": """g (float[2] x, float[T, 2] xs) => (float[2] y, float[T, 2] ys) {
        y, ys = Scan(x, xs) <num_scan_inputs = 1, body = b (float[2] h, float[2] e)
            => (float[2] k, float[2] o) { k = Add(h, e)  o = Identity(k) }> }""",
    "lists": """g (float[6, 2] x, int64 at) => (float[K, 2] y, int64 n)
        <seq(float[1, 2]) t> {
        s = SplitToSequence<axis = 0>(x)  e = SequenceAt(s, at)
        t = SequenceInsert(s, e)  n = SequenceLength(t)
        m = SequenceMap(t) <body = b (float[1, 2] p) => (float[1, 2] q) {
            q = Neg(p) }>
        y = ConcatFromSequence<axis = 0>(m) }""",
    "maybe": """g (float[2] x) => (float[2] y, bool z) {
        o = Optional(x)  z = OptionalHasElement(o)  y = OptionalGetElement(o) }""",
    "text": """g (string[3] x) => (string[K] y, string[2] z) {
        y = StringNormalizer<case_change_action = "LOWER", stopwords = ["a", "b"]>(x)
        z = Constant<value_strings = ["p", "q"]>() }""",
    "quantised": """g (float[2, 4] x) => (float[2, 2] y)
        <uint8[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float scale = {0.5}, uint8 zero = {1}> {
        d = DequantizeLinear(w, scale, zero)  q = QuantizeLinear(x, scale, zero)
        p = DequantizeLinear(q, scale, zero)  y = MatMul(p, d) }""",
    "pictures": """g (float[1, 2, 8, 8] x) => (float[N, M] y)
        <float[3, 2, 3, 3] w, int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1},
         float[4] scales = {1, 1, 2, 2}> {
        p = Pad(x, pads)  c = Conv<strides = [2, 2], group = 1>(p, w)
        m, at = MaxPool<kernel_shape = [2, 2], ceil_mode = 1>(c)
        r = Resize<mode = "nearest">(m, , scales)  a = GlobalAveragePool(r)
        y = Flatten(a) }""",
    "others": """g (float[N] x, float[2] w) => (float[N] y, float[2] w) {
        h = com.microsoft.FastGelu(x)  k = own.Unknown<a = 1>(h)  y = Neg(k) }""",
}
_FUNCTIONS = (
    """g (float[N] x) => (float[N] y) {
        h = own.outer<alpha = 0.5>(x)  y, z = own.pair(h) }
    <domain: "own", opset_import: ["" : 21, "own" : 1]>
    outer <alpha: float = 1.0, beta> (x) => (y) {
        h = own.inner<slope: float = @alpha>(x)  y = Add(h, x) }
    <domain: "own", opset_import: ["" : 21]>
    inner <slope> (x) => (y) { y = LeakyRelu<alpha: float = @slope>(x) }
    <domain: "own", opset_import: ["" : 21]>
    pair (x) => (x, y) { c = Constant<value = bool {1}>()
        y = If(c) <then_branch = t () => (p) { p = Neg(x) },
                   else_branch = e () => (q) { q = Identity(x) }> }""",
)


def written_seeds() -> tuple[Seed, ...]:
    """Give the models of this file."""
    protos = {name: _parsed(text) for name, text in _TEXTS.items()}
    _give_weights(protos["pictures"])
    protos["functions"] = _parsed(_FUNCTIONS[0])
    protos["small floats"] = _small_floats()
    protos["sparse"] = _sparse()
    protos["defaults"] = _defaults()
    protos["inline"] = _inline()
    seeds = [Seed(name, one.SerializeToString()) for name, one in protos.items()]
    outside = _external().SerializeToString()
    return (*seeds, Seed("external", outside, (("weights.bin", WEIGHTS),)))


def _parsed(text: str) -> onnx.ModelProto:
    return parser.parse_model(f"{_HEAD}\n{text}")


def _give_weights(model: onnx.ModelProto) -> None:
    """Give values to initializers that the text only declares; it takes them for inputs."""
    array = np.ones((3, 2, 3, 3), np.float32)
    inputs = [one for one in model.graph.input if one.name != "w"]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    kept = [one for one in model.graph.initializer if one.name != "w"]
    del model.graph.initializer[:]
    model.graph.initializer.extend([*kept, numpy_helper.from_array(array, "w")])


def _small_floats() -> onnx.ModelProto:
    model = _parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    graph = model.graph
    names = ("FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT4E2M1", "INT4", "UINT4", "BFLOAT16")
    for name in names:
        kind = getattr(TensorProto, name)
        tensor = helper.make_tensor(f"t_{name}", kind, [2, 3], [0, 1, 1, 0, 1, 0])
        graph.initializer.append(tensor)
        graph.node.append(
            helper.make_node("Cast", [tensor.name], [f"y_{name}"], to=TensorProto.FLOAT)
        )
        graph.output.add(name=f"y_{name}")
    return model


def _sparse() -> onnx.ModelProto:
    model = _parsed("g (float[4, 1] x) => (float[3, 1] y) { y = MatMul(w, x) }")
    stored = onnx.SparseTensorProto(dims=[3, 4])
    stored.values.CopyFrom(numpy_helper.from_array(np.float32([5, -6, 7]), "w"))
    stored.indices.CopyFrom(numpy_helper.from_array(np.int64([1, 8, 11]), "at"))
    model.graph.sparse_initializer.append(stored)
    model.graph.node.append(
        helper.make_node("Constant", [], ["c"], sparse_value=stored)
    )
    model.graph.output.add(name="c")
    return model


def _defaults() -> onnx.ModelProto:
    """Inputs that have a default, outputs that are constants, a name given twice."""
    model = _parsed("g (float[2] x, float[2] w) => (float[2] y) { y = Mul(x, w) }")
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.float32([1, 2]), "w"))
    graph.initializer.append(
        helper.make_tensor("words", TensorProto.STRING, [2], [b"a\0", "é".encode()])
    )
    for name in ("w", "words", "y"):
        graph.output.add(name=name)
    return model


def _inline() -> onnx.ModelProto:
    """Hold one tensor large enough for the file to be read around it."""
    model = _parsed("g (float[2] x) => (float[2] y) { y = Gather(w, i) }")
    array = np.zeros(1 << 18, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(array, "w"))
    model.graph.initializer.append(numpy_helper.from_array(np.int64([1, 2]), "i"))
    return model


def _external() -> onnx.ModelProto:
    model = _parsed("g (float[4] x) => (float[4] y) { h = Add(x, v)  y = Mul(h, w) }")
    for name, offset in (("v", 0), ("w", 64)):
        tensor = TensorProto(name=name, data_type=1, dims=[4])
        tensor.data_location = TensorProto.EXTERNAL
        entries = {"location": "weights.bin", "offset": offset, "length": 16}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        model.graph.initializer.append(tensor)
    return model


def node_suite_seeds() -> tuple[Seed, ...]:
    """Give the models of ONNX's node suite, and each with its inputs as constants."""
    from seamline_testing.suites import node_cases

    seeds = []
    for case in node_cases():
        if case.model.ByteSize() <= _LARGEST:
            seeds.append(Seed(case.id, case.model.SerializeToString()))
        fixed = _with_inputs(case.model, case.data[0][0] if case.data else ())
        if fixed is not None and fixed.ByteSize() <= _LARGEST:
            seeds.append(Seed(f"{case.id} fixed", fixed.SerializeToString()))
    return tuple(seeds)


def _with_inputs(model: onnx.ModelProto, values) -> onnx.ModelProto | None:
    """Give a model whose inputs are constants, so that its nodes are folded."""
    graph = model.graph
    if len(values) != len(graph.input) or graph.initializer:
        return None
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for info, value in zip(graph.input, values, strict=True):
        if isinstance(value, TensorProto):
            tensor = TensorProto()
            tensor.CopyFrom(value)
            tensor.name = info.name
        elif isinstance(value, np.ndarray):
            tensor = numpy_helper.from_array(value, info.name)
        else:
            return None
        fixed.graph.initializer.append(tensor)
    del fixed.graph.input[:]
    return fixed
