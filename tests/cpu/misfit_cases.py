"""Valid nodes, one for each operator whose kernel is compiled code over addresses."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

__all__ = ["CASES", "Case"]

_RNG = np.random.default_rng(11)
_MS = "com.microsoft"


def _arrays(inputs) -> tuple[np.ndarray | None, ...]:
    return tuple(None if x is None else np.asarray(x) for x in inputs)


@attrs.frozen(eq=False)
class Case:
    """
    A valid node.

    Attributes
    ----------
    host
        Inputs that output sizes follow from: initializers in every form.
    indices
        Inputs that are mutated in value too.
    choices
        Other values of an attribute, where its neighbours would not do.
    lawful
        Tells of a mutation that no oracle runs whether it is defined all the same.
    codes
        The output are rounded codes, which may be one off.
    """

    name: str
    op: str
    inputs: tuple[np.ndarray | None, ...] = attrs.field(converter=_arrays)
    attributes: dict = attrs.field(factory=dict)
    outputs: tuple[int, ...] = (0,)
    domain: str = ""
    version: int = 1
    opset: int = 21
    host: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()
    choices: dict = attrs.field(factory=dict)
    rtol: float = 1e-3
    codes: bool = False
    lawful: Callable[..., bool] = lambda made: False


def f(*shape):
    return _RNG.normal(size=shape).astype(np.float32)


def positive(*shape):
    return _RNG.uniform(0.5, 1.5, shape).astype(np.float32)


def u8(*shape):
    # Below 120 no two products saturate the 16 bits that onnxruntime adds some in.
    return _RNG.integers(0, 120, shape).astype(np.uint8)


def i8(*shape):
    return _RNG.integers(-100, 100, shape).astype(np.int8)


def i64(*values):
    return np.array(values, np.int64)


def i32(*values):
    return np.array(values, np.int32)


def _changes(*beginnings):
    """Tell of the mutations whose labels begin so."""
    return lambda made: made.label.startswith(beginnings)


_DIRECTIONS = {"direction": ["forward", "reverse", "bidirectional"]}


def _recurrent(name, op, gates, states, ways=1, layout=0, **more):
    t, b, i, h = 3, 2, 5, 4
    state = (b, ways, h) if layout else (ways, b, h)
    x = f(b, t, i) if layout else f(t, b, i)
    inputs = [x, f(ways, gates * h, i), f(ways, gates * h, h), f(ways, 2 * gates * h)]
    inputs += [i32(3, 2), *[f(*state) for _ in range(states)]]
    given = {"hidden_size": h, "layout": layout, **more}
    given["direction"] = "bidirectional" if ways == 2 else "forward"
    if op == "LSTM" and more.pop("peepholes", 0):
        del given["peepholes"]
        inputs.append(f(ways, 3 * h))
    return Case(
        name, op, tuple(inputs), given, tuple(range(1 + states)), choices=_DIRECTIONS,
        indices=(4,), lawful=lambda made: bool(layout),  # no oracle runs batches first
    )  # fmt: skip


def _scalars(numbers, points):
    """Say that scalars may have one axis, and points be left out, which onnxruntime refuses."""

    def lawful(made):
        number, _, change = made.label.removeprefix("input ").partition(" ")
        if change == "left out":
            return number in points
        axis = change in ("with an axis in front", "with an axis behind")
        return axis and number in numbers

    return lawful


CASES = [
    Case("Conv/of nothing", "Conv", (f(1, 0, 6, 7), f(6, 0, 3, 3))),
    Case("Conv", "Conv", (f(1, 4, 6, 7), f(6, 2, 3, 3), f(6)),
         {"group": 2, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1], "dilations": [1, 1]}),
    Case("ConvTranspose", "ConvTranspose", (f(2, 4, 5, 6), f(4, 3, 3, 3), f(6)),
         {"group": 2, "kernel_shape": [3, 3], "pads": [1, 0, 1, 1], "strides": [2, 2], "dilations": [1, 1],
          "output_padding": [1, 0]}),
    Case("ConvTranspose/output_shape", "ConvTranspose", (f(1, 2, 5, 6), f(2, 3, 3, 3)), {"output_shape": [9, 11], "strides": [2, 2]}),
    Case("Col2Im", "Col2Im", (f(1, 9, 9), i64(5, 5), i64(3, 3)), {"dilations": [1, 1], "pads": [0, 0, 0, 0], "strides": [1, 1]}, host=(1, 2), indices=(1, 2)),
    Case("ConvInteger", "ConvInteger", (u8(1, 4, 6, 7), u8(6, 2, 3, 3), np.uint8(3), np.uint8(5)),
         {"group": 2, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1], "dilations": [1, 1]}),
    Case("QLinearConv", "QLinearConv",
         (u8(1, 4, 6, 7), np.float32(0.1), np.uint8(3), i8(6, 2, 3, 3), positive(6), np.zeros(6, np.int8), np.float32(0.9), np.uint8(7),
          _RNG.integers(-100, 100, 6).astype(np.int32)),
         {"group": 2, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1], "dilations": [1, 1]}, codes=True),
    Case("MaxPool", "MaxPool", (f(1, 3, 6, 7),),
         {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1], "dilations": [1, 2], "ceil_mode": 0}),
    Case("MaxPool/indices", "MaxPool", (f(1, 3, 6, 7),), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}, (0, 1)),
    Case("AveragePool", "AveragePool", (f(1, 3, 6, 7),),
         {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1], "count_include_pad": 1, "ceil_mode": 1}),
    Case("LpPool", "LpPool", (f(1, 3, 6, 7),), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1], "p": 2}),
    Case("GlobalAveragePool", "GlobalAveragePool", (f(2, 3, 4, 5),), lawful=lambda made: 0 in made.inputs[0].shape),
    Case("MaxUnpool", "MaxUnpool", (f(1, 1, 2, 2), i64(5, 7, 13, 15).reshape(1, 1, 2, 2), i64(1, 1, 4, 4)),
         {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 0, 0]}, host=(2,), indices=(1,)),
    _recurrent("LSTM", "LSTM", 4, 2),
    _recurrent("LSTM/bidirectional", "LSTM", 4, 2, 2),
    _recurrent("LSTM/peepholes", "LSTM", 4, 2, peepholes=1),
    _recurrent("GRU", "GRU", 3, 1, 1, linear_before_reset=1),
    _recurrent("GRU/bidirectional", "GRU", 3, 1, 2),
    _recurrent("RNN", "RNN", 1, 1),
    _recurrent("LSTM/batch first", "LSTM", 4, 2, 1, 1),
    Case("BatchNormalization", "BatchNormalization", (f(2, 5, 3, 4), f(5), f(5), f(5), positive(5)), {"training_mode": 0}, choices={"training_mode": []}),
    Case("BatchNormalization/training", "BatchNormalization", (f(2, 5, 3, 4), f(5), f(5), f(5), positive(5)), {"training_mode": 1}, (0, 1, 2)),
    Case("InstanceNormalization", "InstanceNormalization", (f(2, 5, 3, 4), f(5), f(5))),
    Case("GroupNormalization", "GroupNormalization", (f(2, 6, 3, 4), f(6), f(6)), {"num_groups": 3}),
    Case("LayerNormalization", "LayerNormalization", (f(2, 3, 8), f(8), f(8)), {"axis": -1}, (0, 1, 2)),
    Case("LayerNormalization/two axes", "LayerNormalization", (f(2, 3, 8), f(3, 8), f(3, 8)), {"axis": 1}),
    Case("RMSNormalization", "RMSNormalization", (f(2, 3, 8), f(8)), {"axis": -1}, opset=23),
    Case("SimplifiedLayerNormalization", "SimplifiedLayerNormalization", (f(2, 3, 8), f(8)), {"axis": -1}),
    Case("SkipLayerNormalization", "SkipLayerNormalization", (f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)), {}, (0, 3), domain=_MS),
    Case("SkipSimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", (f(2, 3, 8), f(2, 3, 8), f(8), f(8)), {}, (0, 3), domain=_MS),
    Case("MatMul", "MatMul", (f(2, 5, 7), f(7, 18))),
    Case("MatMul/few rows", "MatMul", (f(2, 7), f(7, 18))),
    Case("MatMul/stack", "MatMul", (f(2, 64, 64), f(2, 64, 130))),
    Case("Gemm", "Gemm", (f(7, 5), f(18, 7), f(18)), {"transA": 1, "transB": 1, "alpha": 0.5}),
    Case("FusedMatMul", "FusedMatMul", (f(2, 7, 5), f(2, 18, 7)), {"transA": 1, "transB": 1, "alpha": 0.5}, domain=_MS),
    Case("MatMulNBits", "MatMulNBits", (f(2, 70), u8(18, 3, 16), positive(54), u8(36), None, f(18)),
         {"K": 70, "N": 18, "bits": 4, "block_size": 32}, domain=_MS, choices={"block_size": [16, 64, 0, -32, 31], "bits": [2, 8, 3, 0]}),
    Case("MatMulNBits/many rows", "MatMulNBits", (f(9, 70), u8(18, 3, 16), positive(54), u8(36)),
         {"K": 70, "N": 18, "bits": 4, "block_size": 32}, domain=_MS, choices={"block_size": [16, 64, 0, -32, 31], "bits": [2, 8, 3, 0]}),
    Case("MatMulBnb4", "MatMulBnb4", (f(2, 64), u8(18 * 32), positive(36)), {"K": 64, "N": 18, "block_size": 32, "quant_type": 1}, domain=_MS,
         choices={"block_size": [16, 64, 0, -32, 31, 128], "quant_type": [0, 2]}),
    Case("QMoE", "QMoE", (f(5, 32), f(5, 3), u8(3, 32, 16), positive(3, 32, 2), f(3, 32), u8(3, 32, 16), positive(3, 32, 2), f(3, 32), None, None, None, u8(3, 32, 1), u8(3, 32, 1)),
         {"k": 2, "expert_weight_bits": 4, "block_size": 16, "activation_type": "silu", "normalize_routing_weights": 1}, domain=_MS,
         choices={"expert_weight_bits": [2, 8, 3], "k": [1, 3, 4, 0], "block_size": [32, 8],
                  "normalize_routing_weights": [1]}),  # onnxruntime normalises all the same
    Case("MatMulInteger", "MatMulInteger", (u8(5, 7), i8(7, 18), np.uint8(3), i8(18)), lawful=_changes("input 1 with an axis in front")),
    Case("QLinearMatMul", "QLinearMatMul", (u8(5, 7), np.float32(0.1), np.uint8(3), u8(7, 18), np.float32(0.2), np.uint8(9), np.float32(0.9), np.uint8(7)), codes=True),
    Case("QLinearMatMul/stacks", "QLinearMatMul", (u8(2, 5, 7), np.float32(0.1), np.uint8(3), u8(2, 7, 18), np.float32(0.2), np.uint8(9), np.float32(0.9), np.uint8(7)), codes=True),
    Case("QLinearAdd", "QLinearAdd", (u8(3, 8), np.float32(0.11), np.uint8(3), u8(8), np.float32(0.23), np.uint8(9), np.float32(0.31), np.uint8(7)), domain=_MS, codes=True, lawful=_scalars("124567", "257")),
    Case("QLinearMul", "QLinearMul", (u8(3, 1), np.float32(0.11), np.uint8(3), u8(3, 8), np.float32(0.23), np.uint8(9), np.float32(2.31), np.uint8(7)), domain=_MS, codes=True, lawful=_scalars("124567", "257")),
    Case("QLinearSigmoid", "QLinearSigmoid", (u8(3, 8), np.float32(0.11), np.uint8(3), np.float32(0.01), np.uint8(7)), domain=_MS, codes=True),
    Case("QLinearLeakyRelu", "QLinearLeakyRelu", (u8(3, 8), np.float32(0.11), np.uint8(93), np.float32(0.13), np.uint8(7)), {"alpha": 0.17}, domain=_MS, codes=True),
    Case("QLinearConcat", "QLinearConcat", (np.float32(0.31), np.uint8(7), u8(3, 4, 2), np.float32(0.11), np.uint8(3), u8(3, 5, 2), np.float32(0.23), np.uint8(9)), {"axis": 1}, domain=_MS, codes=True, lawful=_changes("input 1 left out")),
    Case("QLinearAveragePool", "QLinearAveragePool", (u8(1, 3, 6, 7), np.float32(0.11), np.uint8(3), np.float32(0.13), np.uint8(7)),
         {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1], "count_include_pad": 1}, domain=_MS, codes=True, lawful=_scalars("1234", "24")),
    Case("QLinearGlobalAveragePool", "QLinearGlobalAveragePool", (u8(2, 3, 4, 5), np.float32(0.11), np.uint8(3), np.float32(0.07), np.uint8(7)), {"channels_last": 0}, domain=_MS, codes=True, lawful=_changes("input 2 left out", "input 4 left out")),
    Case("MaxPool/bytes", "MaxPool", (u8(1, 3, 6, 7),),
         {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1], "dilations": [1, 2], "ceil_mode": 0}),
    Case("QuantizeLinear", "QuantizeLinear", (f(3, 8), np.float32(0.1), np.uint8(3)), {"axis": 1}, codes=True),
    Case("QuantizeLinear/long", "QuantizeLinear", (f(64, 513), np.float32(0.1), np.uint8(3)), {"axis": 1}, codes=True),
    Case("QuantizeLinear/axis", "QuantizeLinear", (f(3, 8), positive(8), u8(8)), {"axis": 1}, codes=True, lawful=_changes("input 0 without")),
    Case("QuantizeLinear/blocks", "QuantizeLinear", (f(3, 8), positive(3, 2), u8(3, 2)), {"axis": 1, "block_size": 4}, codes=True),
    Case("DequantizeLinear", "DequantizeLinear", (u8(3, 8), np.float32(0.1), np.uint8(3)), {"axis": 1}),
    Case("DequantizeLinear/long", "DequantizeLinear", (u8(64, 513), np.float32(0.1), np.uint8(3)), {"axis": 1}),
    Case("DequantizeLinear/axis", "DequantizeLinear", (u8(3, 8), positive(3), u8(3)), {"axis": 0}),
    Case("DequantizeLinear/blocks", "DequantizeLinear", (u8(3, 8), positive(3, 2), u8(3, 2)), {"axis": 1, "block_size": 4}),
    Case("GatherBlockQuantized", "GatherBlockQuantized", (u8(6, 16), i64(1, 5, 0), positive(6, 2), u8(6, 1)),
         {"gather_axis": 0, "quantize_axis": 1, "block_size": 16, "bits": 4}, domain=_MS, indices=(1,), choices={"block_size": [32, 0, -16, 15], "bits": [8, 2, 3, 0]}),
    Case("Resize", "Resize", (f(1, 2, 4, 5), None, None, i64(1, 2, 7, 9)), {"mode": "linear"}, host=(1, 2, 3), indices=(3,), lawful=_changes("input 0 with ")),
    Case("Resize/nearest", "Resize", (f(1, 2, 4, 5), None, np.array([1, 1, 2, 2], np.float32)), {"mode": "nearest"}, host=(1, 2, 3)),
    Case("Resize/axes", "Resize", (f(1, 2, 4, 5), None, None, i64(7, 9)), {"mode": "linear", "axes": [2, 3]}, host=(1, 2, 3), indices=(3,), lawful=_changes("axes=[1, 3]")),
    Case("TopK", "TopK", (f(3, 9), i64(4)), {"axis": -1}, (0, 1), host=(1,), indices=(1,), lawful=_changes("input 1 with")),
    Case("Transpose", "Transpose", (f(33, 40, 3),), {"perm": [1, 0, 2]}),
    Case("Softmax", "Softmax", (f(3, 9),), {"axis": -1}),
    Case("LogSoftmax/11", "LogSoftmax", (f(3, 9),), {"axis": 1}, opset=11, lawful=_changes("input 0", "axis=2")),
    Case("ReduceSum", "ReduceSum", (f(9, 17, 33), i64(1)), {"keepdims": 1}, host=(1,), indices=(1,), lawful=_changes("input 1 with")),
    Case("Attention", "Attention", (f(2, 4, 3, 8), f(2, 2, 5, 8), f(2, 2, 5, 8), f(3, 5)), {"is_causal": 0}, opset=23,
         lawful=_changes("input 3 without its first axis", "input 3 with 4 instead of 5")),
    Case("Attention/three axes", "Attention", (f(2, 3, 32), f(2, 5, 16), f(2, 5, 16)), {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1}, opset=23),
    Case("Attention/past", "Attention", (f(2, 4, 3, 8), f(2, 2, 5, 8), f(2, 2, 5, 8), None, f(2, 2, 4, 8), f(2, 2, 4, 8)), {"is_causal": 1}, (0, 1, 2), opset=23, lawful=_changes("input 0 with 0")),
    Case("MultiHeadAttention", "MultiHeadAttention", (f(2, 3, 32), f(2, 5, 32), f(2, 5, 32), f(96)), {"num_heads": 4}, domain=_MS),
    Case("contrib Attention", "Attention", (f(2, 3, 12), f(12, 24), f(24)), {"num_heads": 2}, domain=_MS),
    Case("GroupQueryAttention", "GroupQueryAttention",
         (f(2, 1, 64), f(2, 1, 32), f(2, 1, 32), f(2, 2, 6, 16), f(2, 2, 6, 16), i32(5, 5), i32(6), f(8, 8), f(8, 8)),
         {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}, (0, 1, 2), domain=_MS, host=(6,), indices=(5,)),
    Case("RotaryEmbedding", "RotaryEmbedding", (f(2, 4, 3, 8), f(10, 4), f(10, 4), np.array([[0, 1, 2], [3, 4, 5]], np.int64)), {"interleaved": 0}, opset=23, indices=(3,)),
    Case("Gather", "Gather", (f(6, 5), i64(1, 5, -6)), {"axis": 0}, indices=(1,)),
    Case("TreeEnsemble", "TreeEnsemble", (f(4, 3),),
         {"n_targets": 2, "aggregate_function": 1, "post_transform": 0, "tree_roots": [0, 2], "nodes_featureids": [0, 1, 2],
          "nodes_truenodeids": [1, 0, 2], "nodes_falsenodeids": [0, 1, 3], "nodes_trueleafs": [0, 1, 1], "nodes_falseleafs": [1, 1, 1],
          "nodes_modes": np.zeros(3, np.uint8), "nodes_splits": np.zeros(3, np.float32),
          "leaf_targetids": [0, 1, 0, 1], "leaf_weights": f(4)}, domain="ai.onnx.ml", version=5, choices={"post_transform": []}, lawful=_changes("input 0 without", "input 0 flat")),
]  # fmt: skip
