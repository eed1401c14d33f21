"""Windows, Fourier transforms and points between elements, by their definitions."""

import numpy as np
import onnx
import pytest
from tests.node_cases import check, run_node

from seamline_cpu.kernels import TABLE

R = np.random.default_rng(3)


def gives(op, inputs, want, *, opset=22, rtol=1e-5, atol=1e-5, **attributes):
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    node = onnx.helper.make_node(op, names, [f"y{i}" for i in range(len(want))], **attributes)  # fmt: skip
    got = run_node(TABLE, node, inputs, want, opset=opset)
    assert isinstance(got, list), got
    wrong = check(got, [np.asarray(w) for w in want], rtol, atol)
    assert wrong is None, wrong


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_transform_is_the_sum_over_roots_of_unity(dtype):
    x = R.normal(size=(2, 6, 2)).astype(dtype)
    n = np.arange(6)
    roots = np.exp(-2j * np.pi * np.outer(n, n) / 6)
    signal = x[..., 0] + 1j * x[..., 1]
    found = signal @ roots
    want = np.stack([found.real, found.imag], -1).astype(dtype)
    gives("DFT", [x, None, np.int64(1)], [want])
    gives("DFT", [x, None, np.int64(-2)], [want])


def test_a_one_sided_transform_is_inverted():
    x = R.normal(size=(1, 8, 1)).astype(np.float32)
    spectrum = np.fft.rfft(x[..., 0])
    pairs = np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32)
    gives("DFT", [x, None, np.int64(1)], [pairs], onesided=1)
    gives("DFT", [pairs, None, np.int64(1)], [x], onesided=1, inverse=1)


def test_frames_overlap_by_what_the_step_leaves():
    x, window = (
        R.normal(size=(1, 9, 1)).astype(np.float32),
        np.float32([0.5, 1, 1, 0.5]),
    )
    frames = np.stack([x[0, s : s + 4, 0] * window for s in (0, 2, 4)])
    found = np.fft.rfft(frames)
    want = np.stack([found.real, found.imag], -1).astype(np.float32)[None]
    gives("STFT", [x, np.int64(2), window], [want], opset=17)


@pytest.mark.parametrize("periodic", [0, 1])
def test_a_window_is_a_raised_cosine(periodic):
    n, turn = np.arange(8), 8 if periodic else 7
    want = np.sin(np.pi * n / turn) ** 2
    gives("HannWindow", [np.int64(8)], [want.astype(np.float32)], periodic=periodic)
    gives("HannWindow", [np.int64(8)], [want], periodic=periodic, output_datatype=11)


def test_a_window_of_one_lets_it_pass_and_of_none_is_empty():
    gives("HammingWindow", [np.int64(1)], [np.float32([1])], periodic=0)
    gives("HammingWindow", [np.int64(0)], [np.zeros(0, np.float32)])


def test_nearest_sampling_moves_integers_without_rounding_them():
    x = np.array([2**53 + 1, -(2**53) - 1, 3, 4], np.int64).reshape(1, 1, 2, 2)
    grid = np.float32([[[-1, -1], [1, -1], [5, 0]]])[None]
    want = np.array([2**53 + 1, -(2**53) - 1, 0]).reshape(1, 1, 1, 3)
    gives("GridSample", [x, grid], [want], mode="nearest", align_corners=1)


def test_a_point_that_is_no_number_reads_nothing():
    x = np.ones((1, 1, 2, 2), np.float32)
    grid = np.float32([[[np.nan, 0], [np.inf, 0], [0, 0]]])[None]
    want = np.float32([0, 0, 1]).reshape(1, 1, 1, 3)
    gives("GridSample", [x, grid], [want], mode="linear")


def test_a_deformed_convolution_of_no_offset_is_a_convolution():
    x = R.normal(size=(1, 2, 4, 5)).astype(np.float32)
    w = R.normal(size=(3, 2, 2, 2)).astype(np.float32)
    offset = np.zeros((1, 8, 3, 4), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3))
    want = np.einsum("nchwij,ocij->nohw", windows, w)
    gives("DeformConv", [x, w, offset], [want])


def test_no_regions_give_nothing():
    x = np.ones((1, 2, 4, 4), np.float32)
    none = np.zeros((0, 2, 2, 2), np.float32)
    gives("RoiAlign", [x, np.zeros((0, 4), np.float32), np.zeros(0, np.int64)], [none],
          output_height=2, output_width=2)  # fmt: skip
    gives("MaxRoiPool", [x, np.zeros((0, 5), np.float32)], [none], pooled_shape=[2, 2])


def test_a_region_of_no_such_image_is_named():
    rois, image = np.zeros((1, 4), np.float32), np.array([3])
    x, out = np.ones((2, 1, 4, 4), np.float32), np.zeros((1, 1, 1, 1), np.float32)
    with pytest.raises(Exception, match="batch index 3 is outside 2 images"):
        gives("RoiAlign", [x, rois, image], [out])


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_is_its_recurrence(rule):
    q, k, v = (R.normal(size=(2, 5, 6)).astype(np.float32) for _ in range(3))
    decay = -R.uniform(0, 1, (2, 5, 6)).astype(np.float32) if "gated" in rule else None
    beta = R.uniform(0, 1, (2, 5, 2)).astype(np.float32) if "delta" in rule else None
    out, states = np.zeros((2, 5, 2, 3)), np.zeros((2, 2, 3, 3))
    for b, h in np.ndindex(2, 2):
        s, part = states[b, h], slice(3 * h, 3 * h + 3)
        for t in range(5):
            if decay is not None:
                s = np.exp(decay[b, t, part])[:, None] * s
            new = v[b, t, part].astype(np.float64)
            if beta is not None:
                new = beta[b, t, h] * (new - s.T @ k[b, t, part])
            s = s + np.outer(k[b, t, part], new)
            out[b, t, h] = s.T @ q[b, t, part] / np.sqrt(3)
        states[b, h] = s
    want = [out.reshape(2, 5, 6).astype(np.float32), states.astype(np.float32)]
    gives("LinearAttention", [q, k, v, None, decay, beta], want, opset=27,
          update_rule=rule, q_num_heads=2, kv_num_heads=2)  # fmt: skip


def test_a_convolution_goes_on_from_its_state():
    x, w = R.normal(size=(1, 2, 7)).astype(np.float32), R.normal(size=(2, 1, 3)).astype(np.float32)  # fmt: skip
    padded = np.pad(x, ((0, 0), (0, 0), (2, 0)))
    want = sum(padded[:, :, j : j + 7] * w[:, :, j] for j in range(3))
    gives("CausalConvWithState", [x, w], [want, x[:, :, -2:]], opset=27)
    gives("CausalConvWithState", [x[:, :, 4:], w, None, x[:, :, 2:4]],
          [want[:, :, 4:], x[:, :, -2:]], opset=27)  # fmt: skip
