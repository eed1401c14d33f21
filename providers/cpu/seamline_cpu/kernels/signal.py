"""
Windows, Fourier transforms and the mel scale.

Formulas after ONNX's text, https://onnx.ai/onnx/operators/onnx__STFT.html and its
neighbours; all are worked out in float64 or float32 and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from seamline.provider import Array
from seamline.tensors import FLOATS, INDICES, dtype_name, numpy_dtype
from seamline_cpu.table import TABLE

__all__: list[str] = []

#: Weights of the cosines of 0, 1 and 2 turns over a window.
_WINDOWS = {
    "BlackmanWindow": (0.42, -0.5, 0.08),
    "HammingWindow": (25 / 46, -21 / 46, 0.0),
    "HannWindow": (0.5, -0.5, 0.0),
}


def _output(code: int) -> np.dtype[Any]:
    return numpy_dtype(dtype_name(ir.DataType(code)))


def _register(name: str, weights: tuple[float, float, float]) -> None:
    @TABLE.simple(name, dtypes=INDICES, host_inputs={0}, sizes_at_run=True)
    def window(size: Array, *, output_datatype: int = 1, periodic: int = 1) -> Array:
        """Give a cosine window; a periodic one is a symmetric one of one more, cut."""
        count = int(size.reshape(()))
        turn = count if periodic else count - 1
        phase = 2 * np.pi * np.arange(count) / max(turn, 1)
        made = sum(w * np.cos(k * phase) for k, w in enumerate(weights))
        if count == 1:
            made = np.ones(1)  # as in every library: a window of one lets it pass
        return np.asarray(made, np.float64).astype(_output(output_datatype))


for _name, _weights in _WINDOWS.items():
    _register(_name, _weights)


@TABLE.simple(
    "MelWeightMatrix", dtypes=INDICES, host_inputs=range(5), sizes_at_run=True
)
def mel_weight_matrix(
    num_mel_bins: Array,
    dft_length: Array,
    sample_rate: Array,
    lower_edge_hertz: Array,
    upper_edge_hertz: Array,
    *,
    output_datatype: int = 1,
) -> Array:
    """
    Give triangles over the spectrum, evenly spaced on the mel scale.

    Returns
    -------
    Array
        ``[dft_length // 2 + 1, num_mel_bins]``.
    """
    bins, length = int(num_mel_bins.reshape(())), int(dft_length.reshape(()))
    low, high = (
        2595 * np.log10(1 + float(edge.reshape(())) / 700)
        for edge in (lower_edge_hertz, upper_edge_hertz)
    )
    mels = low + np.arange(bins + 2) * (high - low) / (bins + 2)
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = ((length + 1) * hertz // int(sample_rate.reshape(()))).astype(np.int64)
    out = np.zeros((length // 2 + 1, bins))
    for column, (left, middle, right) in enumerate(
        zip(edges[:-2], edges[1:-1], edges[2:], strict=True)
    ):
        if middle == left:
            out[middle, column] = 1
        rising = np.arange(left, middle + 1)
        if middle > left:
            out[rising, column] = (rising - left) / (middle - left)
        falling = np.arange(middle, right)
        if right > middle:
            out[falling, column] = (right - falling) / (right - middle)
    return out.astype(_output(output_datatype))


def _wide(x: Array) -> Array:
    return x if x.dtype == np.float64 else x.astype(np.float32)


def _complex(x: Array) -> Array:
    """Join pairs along the last axis to complex numbers; a single is real."""
    if x.shape[-1] not in (1, 2):
        raise ValueError(f"the last axis has size {x.shape[-1]}; 1 or 2 is needed")
    wide = np.ascontiguousarray(_wide(x))
    if x.shape[-1] == 1:
        return wide[..., 0]
    kind = np.complex128 if wide.dtype == np.float64 else np.complex64
    return wide.view(kind)[..., 0]


def _pairs(x: Array, dtype: np.dtype[Any]) -> Array:
    return np.stack([x.real, x.imag], -1).astype(dtype)


def _transform(
    x: Array, length: Array | None, axis: int, inverse: int, onesided: int
) -> Array:
    signal = _complex(x)
    if not -x.ndim <= axis < x.ndim or axis % x.ndim == x.ndim - 1:
        raise ValueError(f"axis {axis} is none of a signal of shape {list(x.shape)}")
    axis %= x.ndim
    count = signal.shape[axis] if length is None else int(length.reshape(()))
    if inverse and onesided:
        count = 2 * (signal.shape[axis] - 1) if length is None else count
        return np.fft.irfft(signal, count, axis)[..., None].astype(x.dtype)
    if inverse:
        return _pairs(np.fft.ifft(signal, count, axis), x.dtype)
    if onesided and not np.iscomplexobj(signal):
        return _pairs(np.fft.rfft(signal, count, axis), x.dtype)
    found = np.fft.fft(signal, count, axis)
    if onesided:
        found = np.take(found, range(count // 2 + 1), axis)
    return _pairs(found, x.dtype)


@TABLE.simple("DFT", since=(17, 19), dtypes=FLOATS, host_inputs={1})
def dft_17(
    x: Array,
    length: Array | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Array:
    """Transform along the axis of an attribute."""
    return _transform(x, length, axis, inverse, onesided)


@TABLE.simple("DFT", since=20, dtypes=FLOATS, host_inputs={1, 2})
def dft(
    x: Array,
    length: Array | None = None,
    axis: Array | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Array:
    """Transform along the axis of an input; the last but one where it is left out."""
    at = -2 if axis is None else int(axis.reshape(()))
    return _transform(x, length, at, inverse, onesided)


@TABLE.simple("STFT", dtypes=FLOATS, host_inputs={1, 3})
def stft(
    signal: Array,
    frame_step: Array,
    window: Array | None = None,
    frame_length: Array | None = None,
    *,
    onesided: int = 1,
) -> Array:
    """
    Transform windows of a signal.

    Parameters
    ----------
    signal
        ``[batch, length, 1 or 2]``, or ``[batch, length]``, which exporters write and
        onnxruntime takes as real.

    Returns
    -------
    Array
        ``[batch, frames, bins, 2]``.
    """
    signal = signal[..., None] if signal.ndim == 2 else signal
    if frame_length is None and window is None:
        raise ValueError("neither a window nor a frame length is given")
    step = int(frame_step.reshape(()))
    size = int(frame_length.reshape(())) if frame_length is not None else window.size  # type: ignore[union-attr]
    if window is not None and window.shape != (size,):
        raise ValueError(f"the window is {list(window.shape)}, frames are {size} long")
    values = _complex(signal)
    if not 0 < size <= values.shape[1] or step <= 0:
        raise ValueError(
            f"frames of {size} every {step} do not fit a signal of {values.shape[1]}"
        )
    frames = np.lib.stride_tricks.sliding_window_view(values, size, 1)[:, ::step]
    if window is not None:
        frames = frames * _wide(window)
    if onesided and not np.iscomplexobj(values):
        return _pairs(np.fft.rfft(frames), signal.dtype)
    found = np.fft.fft(frames)
    return _pairs(found[..., : size // 2 + 1] if onesided else found, signal.dtype)
