"""
SmolLM2 135M as exporters for onnxruntime write a decoder, from the file that its package ships.

The weights stay as quantised as they are there: blocks of 32 codes of 4 bits with a scale and
a smallest value, which is a zero point that is no whole number, and codes of 8 bits for the
table of tokens, which is the last layer's matrix too. Rows of queries and keys come in the
order in which neighbours are rotated.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32
CONTRIB = "com.microsoft"
F32, Q4_1, Q8_0 = 0, 3, 8
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # fmt: skip
_TEXT, _ARRAY = 8, 9


class Gguf:
    """What a GGUF file of version 3 says, and its tensors as they are stored."""

    def __init__(self, path: Path) -> None:
        self._data = np.memmap(path, np.uint8, "r")
        self._at = 4
        _, tensors, fields = self._take("<IQQ")
        self.facts = {
            self._text(): self._value(self._take("<I")[0]) for _ in range(fields)
        }
        found = [self._tensor() for _ in range(tensors)]
        align = self.facts.get("general.alignment", 32)
        start = -(-self._at // align) * align
        self._tensors = {name: (*kind, start + offset) for name, *kind, offset in found}

    def _take(self, form):
        size = struct.calcsize(form)
        self._at += size
        return struct.unpack(form, self._data[self._at - size : self._at].tobytes())

    def _text(self):
        (size,) = self._take("<Q")
        self._at += size
        return self._data[self._at - size : self._at].tobytes().decode("utf-8")

    def _value(self, kind):
        if kind == _TEXT:
            return self._text()
        if kind == _ARRAY:
            inner, count = self._take("<IQ")
            return [self._value(inner) for _ in range(count)]
        return self._take("<" + _NUMBERS[kind])[0]

    def _tensor(self):
        name, (rank,) = self._text(), self._take("<I")
        shape = self._take(f"<{rank}Q")[::-1]
        kind, offset = self._take("<IQ")
        return name, kind, shape, offset

    def floats(self, name):
        kind, shape, start = self._tensors[name]
        assert kind == F32
        return (
            self._data[start : start + 4 * math.prod(shape)]
            .view(np.float32)
            .reshape(shape)
        )

    def codes(self, name):
        """Give bits, codes (rows, blocks, 32), scales and zero points, or None for these."""
        kind, (rows, depth), start = self._tensors[name]
        size, count = {Q4_1: 20, Q8_0: 34}[kind], rows * depth // BLOCK
        raw = self._data[start : start + size * count].reshape(rows, -1, size)
        scale = raw[..., :2].copy().view(np.float16)[..., 0].astype(np.float32)
        if kind == Q8_0:
            codes = raw[..., 2:].view(np.int8).astype(np.int16) + 128
            return 8, codes.astype(np.uint8), scale, None
        least = raw[..., 2:4].copy().view(np.float16)[..., 0].astype(np.float32)
        codes = np.concatenate([raw[..., 4:] & 15, raw[..., 4:] >> 4], -1)
        none = scale == 0  # a block of one value: a code of 1 times that value
        zero = np.where(none, 0, -least / np.where(none, 1, scale)).astype(np.float32)
        codes = np.where(none[..., None], 1, codes).astype(np.uint8)
        return 4, codes, np.where(none, least, scale).astype(np.float32), zero


class _Decoder:
    def __init__(self, file: Gguf, rows: int) -> None:
        self.file, facts = file, file.facts
        self.heads = facts["llama.attention.head_count"]
        self.kv = facts["llama.attention.head_count_kv"]
        self.hidden = facts["llama.embedding_length"]
        self.size = self.hidden // self.heads
        self.layers = facts["llama.block_count"]
        self.epsilon = facts["llama.attention.layer_norm_rms_epsilon"]
        self.nodes, self.constants = [], []
        angles = np.outer(
            np.arange(rows),
            facts["llama.rope.freq_base"] ** -(np.arange(0, self.size, 2) / self.size),
        )
        self.keep("cos", np.cos(angles).astype(np.float32))
        self.keep("sin", np.sin(angles).astype(np.float32))

    def keep(self, name, array):
        self.constants.append(
            numpy_helper.from_array(np.ascontiguousarray(array), name)
        )
        return name

    def node(self, op, inputs, outputs, domain="", **attributes):
        made = helper.make_node(
            op, inputs, outputs, outputs[0], domain=domain, **attributes
        )
        self.nodes.append(made)
        return outputs[0]

    def product(self, x, weight, out):
        bits, codes, scales, zero = self.file.codes(weight)
        rows, blocks, _ = codes.shape
        if bits == 4:
            codes = codes[..., 0::2] | codes[..., 1::2] << 4
        inputs = [
            x,
            self.keep(f"{weight}.codes", codes),
            self.keep(f"{weight}.scales", scales),
        ]
        if zero is not None:
            inputs.append(self.keep(f"{weight}.zero", zero))
        return self.node(
            "MatMulNBits", inputs, [out], CONTRIB, K=blocks * BLOCK, N=rows, bits=bits,
            block_size=BLOCK, accuracy_level=0,
        )  # fmt: skip

    def layer(self, i, total, x):
        """Add one layer's nodes to the sum of those before and what it normalised."""
        name, past = f"blk.{i}", f"past_key_values.{i}"
        parts = [
            self.product(x, f"{name}.attn_{p}.weight", f"{name}.{p}") for p in "qkv"
        ]
        y = f"{name}.attention"
        self.node(
            "GroupQueryAttention",
            [*parts, f"{past}.key", f"{past}.value", "last", "total", "cos", "sin"],
            [y, f"present.{i}.key", f"present.{i}.value"], CONTRIB, num_heads=self.heads,
            kv_num_heads=self.kv, do_rotary=1, rotary_interleaved=1,
        )  # fmt: skip
        y = self.product(y, f"{name}.attn_output.weight", f"{name}.projected")
        x, total = self.normalized(y, total, f"{name}.ffn_norm.weight")
        gate = self.product(x, f"{name}.ffn_gate.weight", f"{name}.gate")
        up = self.product(x, f"{name}.ffn_up.weight", f"{name}.up")
        soft = self.node("Sigmoid", [gate], [f"{name}.sigmoid"])
        gate = self.node("Mul", [gate, soft], [f"{name}.swish"])
        both = self.node("Mul", [gate, up], [f"{name}.gated"])
        y = self.product(both, f"{name}.ffn_down.weight", f"{name}.down")
        last = i + 1 == self.layers
        after = "output_norm.weight" if last else f"blk.{i + 1}.attn_norm.weight"
        return self.normalized(y, total, after)

    def normalized(self, y, total, weight):
        self.keep(weight, self.file.floats(weight))
        out, both = f"{weight}.out", f"{weight}.sum"
        self.node(
            "SkipSimplifiedLayerNormalization", [total, y, weight], [out, "", "", both],
            CONTRIB, epsilon=self.epsilon,
        )  # fmt: skip
        return out, both

    def model(self):
        self.keep("one", np.array([1], np.int64))
        self.keep("second", np.array(1, np.int64))
        counted = self.node(
            "ReduceSum", ["attention_mask", "one"], ["counted"], keepdims=0
        )
        less = self.node("Sub", [counted, "one"], ["less"])
        self.node("Cast", [less], ["last"], to=TensorProto.INT32)
        sizes = self.node("Shape", ["attention_mask"], ["sizes"])
        length = self.node("Gather", [sizes, "second"], ["length"])
        self.node("Cast", [length], ["total"], to=TensorProto.INT32)
        _, codes, scales, _ = self.file.codes("token_embd.weight")
        self.keep("tokens", codes.reshape(len(codes), -1))
        self.keep("token_scales", scales)
        total = self.node(
            "GatherBlockQuantized", ["tokens", "input_ids", "token_scales"], ["embedded"],
            CONTRIB, gather_axis=0, quantize_axis=1, block_size=BLOCK, bits=8,
        )  # fmt: skip
        first = self.keep(
            "blk.0.attn_norm.weight", self.file.floats("blk.0.attn_norm.weight")
        )
        x = self.node(
            "SimplifiedLayerNormalization", [total, first], ["first"],
            epsilon=self.epsilon, axis=-1,
        )  # fmt: skip
        for i in range(self.layers):
            x, total = self.layer(i, total, x)
        self.product(x, "token_embd.weight", "logits")
        return helper.make_model(
            helper.make_graph(
                self.nodes, "smollm2", *self.ends(len(codes)), self.constants
            ),
            opset_imports=[
                helper.make_opsetid("", 21),
                helper.make_opsetid(CONTRIB, 1),
            ],
            ir_version=10,
        )

    def ends(self, vocabulary):
        def cache(name, rows):
            shape = ["batch", self.kv, rows, self.size]
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

        inputs = [
            helper.make_tensor_value_info(
                "input_ids", TensorProto.INT64, ["batch", "rows"]
            ),
            helper.make_tensor_value_info(
                "attention_mask", TensorProto.INT64, ["batch", "all"]
            ),
        ]
        outputs = [
            helper.make_tensor_value_info(
                "logits", TensorProto.FLOAT, ["batch", "rows", vocabulary]
            )
        ]
        for i in range(self.layers):
            inputs += [
                cache(f"past_key_values.{i}.{kind}", "past")
                for kind in ("key", "value")
            ]
            outputs += [
                cache(f"present.{i}.{kind}", "all") for kind in ("key", "value")
            ]
        return inputs, outputs


def build(source: Path, target: Path, rows: int = 512) -> Path:
    """Write the model of a GGUF file; ``rows`` is how many positions it can rotate by."""
    onnx.save(_Decoder(Gguf(source), rows).model(), target)
    return target
