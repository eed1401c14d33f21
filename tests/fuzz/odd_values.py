"""Sizes, places, numbers and attributes that a loader should not believe."""

from __future__ import annotations

__all__ = ["ATTRIBUTES", "NUMBERS", "PLACES", "SIZES"]

SIZES = (0, 1, 2, 3, 5, 64, 1 << 16, 1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1, -1, -(1 << 63))  # fmt: skip
PLACES = (
    "../secret.bin", "/etc/hostname", "/dev/zero", "..", ".", "", "weights.bin/",
    "./weights.bin", "link.bin", "x/../../secret.bin", "weights.bin\0", "/proc/self/mem",
    "model.onnx", "~/secret.bin", "C:\\secret.bin", "file:weights.bin", "out/secret.bin",
    "pipe",
)  # fmt: skip
NUMBERS = ("0", "-1", "1", "15", "16", "17", "256", str(1 << 31), str(1 << 63), "9" * 40, "", "1.0", "0x10", "\u0661", " 4")  # fmt: skip
ATTRIBUTES = (
    ("axis", -9), ("axis", 1 << 62), ("axes", [0, 0]), ("axes", [-99]), ("perm", [1, 1]),
    ("perm", [5, -1]), ("to", 0), ("to", 99), ("to", 8), ("to", 16), ("kernel_shape", [0, 0]),
    ("kernel_shape", [1 << 40] * 2), ("strides", [0, 0]), ("strides", [-1, -1]),
    ("pads", [-5] * 4), ("pads", [1 << 60] * 4), ("dilations", [0, 0]), ("group", 0),
    ("group", -1), ("alpha", 1.5), ("keepdims", 7), ("num_outputs", 0),
    ("num_outputs", 1 << 40), ("split", [0, -1]), ("blocksize", 0), ("blocksize", 1 << 40),
    ("num_scan_inputs", -1), ("num_scan_inputs", 9), ("hidden_size", -1), ("mode", "zzz"),
    ("auto_pad", "SAME_UPPER"), ("equation", "ii,jk->kkk"), ("shape", [-1, -1]),
    ("value_ints", [1 << 62] * 3), ("value_string", "s"), ("block_size", 0),
    ("block_size", -1), ("dtype", 77), ("size", 0), ("ceil_mode", 9), ("k", -1),
    ("starts", [9]), ("ends", [-9]), ("direction", "sideways"), ("num_heads", 0),
    ("group", 3), ("strides", [1 << 60, 1]), ("pads", [2, 2, 2, 2]), ("pads", [1 << 31] * 4),
    ("dilations", [1 << 40, 2]), ("kernel_shape", [3]), ("kernel_shape", [9, 9]),
    ("output_shape", [0, 1 << 40]), ("output_padding", [-3, 9]), ("detect_positive", 5),
    ("batch_dims", 7), ("reduction", "max"), ("largest", 4), ("exclude_outside", 3),
    ("storage_order", 1), ("p", 0), ("lambd", 2.0), ("num_groups", 3), ("block_size", 2),
    ("q_num_heads", 3), ("kv_num_heads", 5), ("layout", 1), ("seed", 1.0), ("fmod", 1),
)  # fmt: skip
