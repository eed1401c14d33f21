"""
Convolutions of few channels a group, such as depthwise ones: a thread for each pixel.

There is too little to sum for a product of matrices, and columns would be read once only.
The window's sizes are part of the text, so that its loops are unrolled; neighbouring threads
take neighbouring pixels, which share most of what they read. The transposed form asks for
each tap which pixel of the input reaches this one, if any.
"""

from __future__ import annotations

from collections.abc import Sequence

from seamline.windows import Window
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.works import KernelWork

__all__ = ["direct", "direct_integers", "direct_kernel", "integer_kernel"]

_HEAD = """def {name}(x, weights, {more}, out, n, outputs, makes, takes, {flags}, d, h, w, od, oh, ow, sd, sh, sw, dd, dh, dw, pd, ph, pw):
    i = cuda.grid(1)
    step = cuda.gridsize(1)
    while i < n:
        row = quotient32(np.uint32(i), np.uint32(ow))
        v = np.int32(i - np.int64(row) * ow)
        slab = quotient32(row, np.uint32(oh))
        y = np.int32(np.int64(row) - np.int64(slab) * oh)
        plane = quotient32(slab, np.uint32(od))
        z = np.int32(np.int64(slab) - np.int64(plane) * od)
        image = quotient32(plane, np.uint32(outputs))
        channel = np.int64(plane) - np.int64(image) * outputs
        group = np.int64(quotient32(np.uint32(channel), np.uint32(makes)))
        total = np.{computed}(0)
{begin}        from_group = group * takes
        source = (np.int64(image) * quotient32(np.uint32(outputs), np.uint32(makes)) * takes + from_group) * d * h * w
        tap = {first_tap}
        for channel_in in range(takes):
"""
_BIASED = """        if biased:
            total = {bias}
"""
_ZEROS = """        x_point = np.int32(0)
        if x_pointed:
            x_point = np.int32(x_zero[0])
        w_point = np.int32(0)
        if w_pointed:
            w_point = np.int32(w_zero[channel * w_step])
"""
_PLAIN = """            for a in range({kd}):
                at_d = z * sd - pd + a * dd
                for b in range({kh}):
                    at_h = y * sh - ph + b * dh
                    line = source + (np.int64(at_d) * h + at_h) * w
                    inside = 0 <= at_d and at_d < d and 0 <= at_h and at_h < h
                    for c in range({kw}):
                        at_w = v * sw - pw + c * dw
                        if inside and 0 <= at_w and at_w < w:
                            total += {value} * {weight}
                        tap += 1
"""
_TURNED = """            for a in range({kd}):
                from_d = z + pd - a * dd
                at_d = truncated32(np.int32(from_d), np.int32(sd))
                for b in range({kh}):
                    from_h = y + ph - b * dh
                    at_h = truncated32(np.int32(from_h), np.int32(sh))
                    line = source + (np.int64(at_d) * h + at_h) * w
                    inside = 0 <= from_d and at_d < d and at_d * sd == from_d
                    inside = inside and 0 <= from_h and at_h < h and at_h * sh == from_h
                    for c in range({kw}):
                        from_w = v + pw - c * dw
                        at_w = truncated32(np.int32(from_w), np.int32(sw))
                        if inside and 0 <= from_w and at_w < w and at_w * sw == from_w:
                            total += {value} * {weight}
                        tap += 1
"""
_FOOT = """            source += np.int64(d) * h * w
{next_tap}        out[i] = {store}
        i += step
"""


def direct_kernel(
    dtype: str, kernel: Sequence[int], *, transposed: bool = False
) -> DeviceKernel:
    """Give the kernel for an element type and a window over three axes."""
    element = ELEMENTS[dtype]
    kd, kh, kw = kernel
    taps = kd * kh * kw
    name = "direct_transposed" if transposed else "direct_convolution"
    # Weights are (C, M / groups, taps) where it is transposed, else (M, C / groups, taps).
    first = f"np.int64(channel) * takes * {taps}"
    following = ""
    if transposed:
        first = f"(from_group * makes + channel - group * makes) * {taps}"
        following = f"            tap += (makes - 1) * {taps}\n"
    text = (_HEAD + (_TURNED if transposed else _PLAIN) + _FOOT).format(
        name=name,
        computed=element.computed,
        more="bias",
        flags="biased",
        begin=_BIASED.format(bias=element.load.format("bias[channel]")),
        value=element.load.format("x[line + at_w]"),
        weight=element.load.format("weights[tap]"),
        store=element.store.format("total"),
        first_tap=first,
        next_tap=following,
        kd=kd, kh=kh, kw=kw,
    )  # fmt: skip
    pointers = (f"{element.stored}*",) * 4
    return DeviceKernel(name, text, (*pointers, "int64", *["int32"] * 19))


def integer_kernel(x: str, weights: str, kernel: Sequence[int]) -> DeviceKernel:
    """Give the kernel of bytes less their zero points, summed in 32 bits, which wrap."""
    kd, kh, kw = kernel
    text = (_HEAD + _PLAIN + _FOOT).format(
        name="direct_integers",
        computed="int32",
        more="x_zero, w_zero",
        flags="x_pointed, w_pointed, w_step",
        begin=_ZEROS,
        value="np.int32(np.int32(x[line + at_w]) - x_point)",
        weight="np.int32(np.int32(weights[tap]) - w_point)",
        store="np.int32(total)",
        first_tap=f"np.int64(channel) * takes * {kd * kh * kw}",
        next_tap="",
        kd=kd, kh=kh, kw=kw,
    )  # fmt: skip
    pointers = (f"{x}*", f"{weights}*", f"{x}*", f"{weights}*", "int32*")
    return DeviceKernel("direct_integers", text, (*pointers, "int64", *["int32"] * 21))


def direct_integers(
    places: Sequence[int], dtypes: tuple[str, str], window: Window, *, images: int,
    outputs: int, groups: int, takes: int, w_step: int,
) -> KernelWork:  # fmt: skip
    """
    Convolve bytes, every group by itself.

    Parameters
    ----------
    places
        Addresses of input, weights, their zero points (0 for none) and output.
    dtypes
        Of input and weights.
    w_step
        Zero points of the weights from one channel to the next: 0 or 1.
    """
    outs = window.outs
    total = images * outputs * outs[0] * outs[1] * outs[2]
    arguments = (
        *places, total, outputs, outputs // groups, takes, int(places[2] != 0),
        int(places[3] != 0), w_step, *window.sizes, *outs, *window.strides,
        *window.dilations, *window.begins,
    )  # fmt: skip
    return KernelWork(integer_kernel(*dtypes, window.kernel), arguments, total)


def direct(
    places: Sequence[int], dtype: str, window: Window, *, images: int, outputs: int,
    groups: int, takes: int, transposed: bool = False,
) -> KernelWork:  # fmt: skip
    """
    Convolve, every group by itself.

    Parameters
    ----------
    places
        Addresses of input, weights, bias (0 for none) and output.
    window
        Over three axes.
    outputs
        Channels of the result, of all groups.
    takes
        Channels of the input that a group reads.
    """
    outs = window.outs
    total = images * outputs * outs[0] * outs[1] * outs[2]
    arguments = (
        *places, total, outputs, outputs // groups, takes, int(places[2] != 0),
        *window.sizes, *outs, *window.strides, *window.dilations, *window.begins,
    )  # fmt: skip
    kernel = direct_kernel(dtype, window.kernel, transposed=transposed)
    return KernelWork(kernel, arguments, total)
