"""Small models for onnxruntime's quantiser: a convolutional one, an encoder's block, an LSTM."""

from __future__ import annotations

import numpy as np
from onnx import checker, shape_inference
from onnxruntime.quantization import CalibrationDataReader
from tests.cpu.rewritten import model_of

R = np.random.default_rng(41)


def weight(*shape):
    depth = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
    return (R.standard_normal(shape) / np.sqrt(depth)).astype(np.float32)


def small(*shape):
    return (R.standard_normal(shape) * 0.1).astype(np.float32)


def convolutional():
    """Give a model of every operator that the quantiser turns into one over bytes."""
    text = """g (float[1,3,32,32] x) => (float[1,10] y) {
        c1 = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w1, b1) r1 = Relu(c1)
        p1 = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r1)
        c2 = Conv <pads = [1,1,1,1]> (p1, w2, b2) r2 = LeakyRelu <alpha = 0.1> (c2)
        c3 = Conv <pads = [1,1,1,1], group = 16> (r2, w3, b3) s3 = Sigmoid(c3)
        m3 = Mul(s3, r2) c4 = Conv(m3, w4, b4) a4 = Add(c4, r2) k4 = Clip(a4, low, high)
        p4 = AveragePool <kernel_shape = [2,2], strides = [2,2]> (k4)
        j = Concat <axis = 1> (p4, p4) t = GlobalAveragePool(j) f = Flatten(t)
        o = Gemm(f, fc, fb) y = Softmax(o) }"""
    return model_of(
        text, w1=weight(8, 3, 3, 3), b1=small(8), w2=weight(16, 8, 3, 3), b2=small(16),
        w3=weight(16, 1, 3, 3), b3=small(16), w4=weight(16, 16, 1, 1), b4=small(16),
        fc=weight(32, 10), fb=small(10), low=np.float32(0), high=np.float32(6),
    )  # fmt: skip


def encoder():
    """Give a block of attention and two products, as exporters write it."""
    heads = " ".join(
        f"m{t} = MatMul(x, w{t}) a{t} = Add(b{t}, m{t}) r{t} = Reshape(a{t}, apart)"
        f" t{t} = Transpose <perm = {perm}> (r{t})"
        for t, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))
    )
    text = f"""g (float[1,L,32] x) => (float[1,L,32] y) {{ {heads}
        s = MatMul(tq, tk) d = Div(s, root) p = Softmax <axis = -1> (d) c = MatMul(p, tv)
        tc = Transpose <perm = [0,2,1,3]> (c) rc = Reshape(tc, whole) mo = MatMul(rc, wo)
        ao = Add(mo, bo) res = Add(ao, x) n = LayerNormalization(res, g1, e1)
        m1 = MatMul(n, w1) h = Add(m1, b1) z = Div(h, two) e = Erf(z) o = Add(e, one)
        gm = Mul(h, o) gl = Mul(gm, half) m2 = MatMul(gl, w2) a2 = Add(m2, b2)
        res2 = Add(a2, n) y = LayerNormalization(res2, g1, e1) }}"""
    numbers = {"root": 8**0.5, "two": 2**0.5, "one": 1, "half": 0.5}
    constants = {name: np.float32(value) for name, value in numbers.items()}
    for t in "qkvo":
        constants |= {f"w{t}": weight(32, 32), f"b{t}": small(32)}
    return model_of(
        text, w1=weight(32, 96), b1=small(96), w2=weight(96, 32), b2=small(32),
        g1=np.ones(32, np.float32), e1=np.zeros(32, np.float32),
        apart=np.array([0, 0, 4, 8]), whole=np.array([0, 0, 32]), **constants,
    )  # fmt: skip


def recurrent():
    text = """g (float[12,1,16] x) => (float[12,1,5] y) {
        h, last, cell = LSTM <hidden_size = 24> (x, W, R, B) s = Squeeze(h, axes)
        m = MatMul(s, fc) y = Add(m, fb) }"""
    return model_of(
        text, W=small(1, 96, 16), R=small(1, 96, 24), B=small(1, 192),
        axes=np.array([1]), fc=weight(24, 5), fb=small(5),
    )  # fmt: skip


#: Each model, and the shape of its input.
MODELS = {
    "convolutional": (convolutional, (1, 3, 32, 32)),
    "encoder": (encoder, (1, 11, 32)),
    "recurrent": (recurrent, (12, 1, 16)),
}


def inferred(model):
    """Give a model with the types of its values, which the quantiser asks for."""
    made = shape_inference.infer_shapes(model)
    checker.check_model(made)
    return made


def fed(shape, seed=0):
    x = np.random.default_rng(seed).standard_normal(shape)
    return {"x": x.astype(np.float32)}


class Feeds(CalibrationDataReader):
    """What the quantiser calibrates with."""

    def __init__(self, shape):
        self.left = [fed(shape, seed) for seed in (0, 1, 7)]

    def get_next(self):
        return self.left.pop() if self.left else None
