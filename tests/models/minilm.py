"""
MiniLM-L6 as a plain float32 graph, from the weights that its package ships.

Every operator is written out (Gelu by Erf, attention by MatMul and Softmax), as exporters
write them: it is the graph that a fusion would find something in.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


def build(folder: Path, target: Path) -> Path:
    """Write the model made from ``model.safetensors`` and ``config.json`` of a folder."""
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text("utf-8"))
    weights = load_file(folder / "model.safetensors")
    onnx.save(_Encoder(config, weights).model(), target)
    return target


class _Encoder:
    def __init__(self, config, weights):
        self.hidden = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.layers = config["num_hidden_layers"]
        self.epsilon = config["layer_norm_eps"]
        self.weights = {
            re.sub("^bert\\.", "", name): array for name, array in weights.items()
        }
        self.nodes, self.constants = [], {}

    # -- parts ---------------------------------------------------------------------------

    def node(self, op, *inputs, **attributes):
        name = f"{op.lower()}_{len(self.nodes)}"
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(op, names, [name], name=name, **attributes))
        return name

    def constant(self, array):
        array = np.asarray(array)
        for name, known in self.constants.items():
            if known is array or (
                known.size <= 4
                and known.dtype == array.dtype
                and known.shape == array.shape
                and np.array_equal(known, array)
            ):
                return name
        name = f"constant_{len(self.constants)}"
        self.constants[name] = array
        return name

    def weight(self, name, *, transposed=False):
        key = f"{name}.t" if transposed else name
        if key not in self.constants:
            array = self.weights[name].astype(np.float32)
            self.constants[key] = np.ascontiguousarray(array.T if transposed else array)
        return key

    def linear(self, x, name):
        product = self.node("MatMul", x, self.weight(f"{name}.weight", transposed=True))
        return self.node("Add", product, self.weight(f"{name}.bias"))

    def norm(self, x, name):
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.node(
            "LayerNormalization", x, scale, bias, axis=-1, epsilon=self.epsilon
        )

    def gelu(self, x):
        """Apply x/2 (1 + erf(x / sqrt 2))."""
        scaled = self.node("Mul", x, np.float32(1 / math.sqrt(2)))
        shifted = self.node("Add", self.node("Erf", scaled), np.float32(1))
        return self.node("Mul", self.node("Mul", x, shifted), np.float32(0.5))

    # -- the graph -----------------------------------------------------------------------

    def embeddings(self):
        """Sum three tables; positions are the first rows, as many as there are tokens."""
        table = "embeddings.{}_embeddings.weight".format
        words = self.node("Gather", self.weight(table("word")), "input_ids")
        kinds = self.node("Gather", self.weight(table("token_type")), "token_type_ids")
        length = self.node("Shape", "input_ids", start=1, end=2)
        zero = np.array([0], np.int64)
        places = self.node("Slice", self.weight(table("position")), zero, length, zero)
        total = self.node("Add", self.node("Add", words, kinds), places)
        return self.norm(total, "embeddings.LayerNorm")

    def mask(self):
        """Give 0 where a token is, a large negative number where padding is."""
        spread = self.node("Unsqueeze", "attention_mask", np.array([1, 2], np.int64))
        absent = self.node(
            "Sub", np.float32(1), self.node("Cast", spread, to=TensorProto.FLOAT)
        )
        return self.node("Mul", absent, np.float32(-1e9))

    def split(self, x, perm):
        width = self.hidden // self.heads
        parts = self.node("Reshape", x, np.array([0, 0, self.heads, width], np.int64))
        return self.node("Transpose", parts, perm=perm)

    def attention(self, x, mask, name):
        query = self.split(self.linear(x, f"{name}.self.query"), [0, 2, 1, 3])
        key = self.split(self.linear(x, f"{name}.self.key"), [0, 2, 3, 1])
        value = self.split(self.linear(x, f"{name}.self.value"), [0, 2, 1, 3])
        scale = np.float32(1 / math.sqrt(self.hidden // self.heads))
        scores = self.node("Mul", self.node("MatMul", query, key), scale)
        shares = self.node("Softmax", self.node("Add", scores, mask), axis=-1)
        mixed = self.node(
            "Transpose", self.node("MatMul", shares, value), perm=[0, 2, 1, 3]
        )
        flat = self.node("Reshape", mixed, np.array([0, 0, self.hidden], np.int64))
        result = self.node("Add", self.linear(flat, f"{name}.output.dense"), x)
        return self.norm(result, f"{name}.output.LayerNorm")

    def layer(self, x, mask, name):
        x = self.attention(x, mask, f"{name}.attention")
        inner = self.gelu(self.linear(x, f"{name}.intermediate.dense"))
        result = self.node("Add", self.linear(inner, f"{name}.output.dense"), x)
        return self.norm(result, f"{name}.output.LayerNorm")

    def model(self):
        x, mask = self.embeddings(), self.mask()
        for index in range(self.layers):
            x = self.layer(x, mask, f"encoder.layer.{index}")
        self.nodes.append(
            helper.make_node("Identity", [x], ["last_hidden_state"], name="last")
        )
        sizes = ["batch", "sequence"]
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, sizes)
            for name in ("input_ids", "attention_mask", "token_type_ids")
        ]
        output = helper.make_tensor_value_info(
            "last_hidden_state", TensorProto.FLOAT, [*sizes, self.hidden]
        )
        graph = helper.make_graph(
            self.nodes,
            "minilm",
            inputs,
            [output],
            [
                numpy_helper.from_array(array, name)
                for name, array in self.constants.items()
            ],
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
        )
        onnx.checker.check_model(model)
        return model
