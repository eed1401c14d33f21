"""Inputs of the fuzzer: each is made from a seed and a number, and can be made again."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import attrs
import onnx
from tests.fuzz.fields import mutate_bytes
from tests.fuzz.mutations import mutate
from tests.fuzz.seeds import WEIGHTS, Seed

__all__ = ["Input", "input_at"]

_LARGEST = 1 << 22  # bytes of a model; larger ones only make the run slower


@attrs.frozen
class Input:
    """
    One input.

    Attributes
    ----------
    origin
        The seed model that it was made from.
    model
        The bytes of the model file.
    form
        How it is given to the loader: as "path", "bytes" or "proto".
    files
        What lies beside the model.
    """

    origin: str
    model: bytes
    form: str
    files: tuple[tuple[str, bytes], ...] = ()


def input_at(seeds: Sequence[Seed], seed: int, index: int) -> Input:
    """Give an input; the same for the same seeds, seed and index."""
    rng = Random(f"{seed}/{index}")
    # The node suite has many models of one node; the others hold what is rare.
    written = [one for one in seeds if "/" not in one.name]
    suite = [one for one in seeds if "/" in one.name]
    origin = rng.choice(suite if suite and rng.random() < 0.6 else written)
    data, form = origin.model, rng.choice(("path", "path", "bytes", "proto"))
    if rng.random() < 0.95:
        model = origin.proto()
        mutate(model, rng)
        if model.ByteSize() <= _LARGEST:
            data = model.SerializeToString()
    if rng.random() < 0.12 or data == origin.model:
        data = mutate_bytes(data, rng)
        form = "path" if rng.random() < 0.6 else "bytes"
    files = dict(origin.files) or {"weights.bin": WEIGHTS}
    if rng.random() < 0.05:
        files["weights.bin"] = WEIGHTS[: rng.choice((0, 1, 40))]
    if form == "proto" and not _parses(data):
        form = "bytes"
    return Input(origin.name, data, form, tuple(files.items()))


def _parses(data: bytes) -> bool:
    try:
        onnx.ModelProto.FromString(data)
    except Exception:
        return False
    return True
