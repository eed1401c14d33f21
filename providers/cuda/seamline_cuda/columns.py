"""
Columns: for each place of a window, the values under it, so that a product convolves them.

``gathered`` lays out a convolution's input: one column for each place of the window, one row
for each channel and tap. A thread takes one channel at one place and walks over the taps:
neighbours in a warp read and write neighbours in memory at each of them.

``folded`` is the other way round, for a transposed convolution: a product has made columns,
and every pixel of the result adds up the taps that reach it, in float32, in one order.
"""

from __future__ import annotations

from seamline.windows import Window
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.works import KernelWork

__all__ = ["folded", "folding_kernel", "gathered", "gathering_kernel"]

_GATHER = """def gathered(x, out, n, first, count, channels, taken, d, h, w, oh, ow, kd, kh, kw, sd, sh, sw, dd, dh, dw, pd, ph, pw):
    i = cuda.grid(1)
    step = cuda.gridsize(1)
    while i < n:
        plane = quotient32(np.uint32(i), np.uint32(count))
        at = np.int64(i) - np.int64(plane) * count
        image = quotient32(plane, np.uint32(taken))
        channel = np.int64(plane) - np.int64(image) * taken
        place = np.uint32(first + at)
        row = quotient32(place, np.uint32(ow))
        slab = quotient32(row, np.uint32(oh))
        from_d = np.int64(slab) * sd - pd
        from_h = (np.int64(row) - np.int64(slab) * oh) * sh - ph
        from_w = (np.int64(place) - np.int64(row) * ow) * sw - pw
        source = (np.int64(image) * channels + channel) * d * h * w
        target = np.int64(plane) * kd * kh * kw * count + at
        for a in range(kd):
            z = from_d + a * dd
            for b in range(kh):
                y = from_h + b * dh
                line = source + (z * h + y) * w
                inside = 0 <= z and z < d and 0 <= y and y < h
                for c in range(kw):
                    v = from_w + c * dw
                    value = np.{stored}(0)
                    if inside and 0 <= v and v < w:
                        value = x[line + v]
                    out[target] = value
                    target += count
        i += step
"""

_FOLD = """def folded(columns, bias, out, n, groups, taken, first, channels, biased, d, h, w, od, oh, ow, kd, kh, kw, sd, sh, sw, dd, dh, dw, pd, ph, pw):
    i = cuda.grid(1)
    step = cuda.gridsize(1)
    while i < n:
        row = quotient32(np.uint32(i), np.uint32(ow))
        v = np.int64(i) - np.int64(row) * ow
        slab = quotient32(row, np.uint32(oh))
        y = np.int64(row) - np.int64(slab) * oh
        plane = quotient32(slab, np.uint32(od))
        z = np.int64(slab) - np.int64(plane) * od
        group = quotient32(plane, np.uint32(taken))
        channel = first + np.int64(plane) - np.int64(group) * taken
        image = quotient32(group, np.uint32(groups))
        channel += (np.int64(group) - np.int64(image) * groups) * channels
        total = np.{computed}(0)
        if biased:
            total = {bias}
        source = np.int64(plane) * kd * kh * kw * d * h * w
        for a in range(kd):
            from_d = z + pd - a * dd
            at_d = truncated32(np.int32(from_d), np.int32(sd))
            for b in range(kh):
                from_h = y + ph - b * dh
                at_h = truncated32(np.int32(from_h), np.int32(sh))
                inside = 0 <= from_d and at_d < d and at_d * sd == from_d
                inside = inside and 0 <= from_h and at_h < h and at_h * sh == from_h
                for c in range(kw):
                    from_w = v + pw - c * dw
                    at_w = truncated32(np.int32(from_w), np.int32(sw))
                    if inside and 0 <= from_w and at_w < w and at_w * sw == from_w:
                        total += columns[source + (np.int64(at_d) * h + at_h) * w + at_w]
                    source += d * h * w
        at = (np.int64(image) * groups * channels + channel) * od * oh * ow
        out[at + (z * oh + y) * ow + v] = {store}
        i += step
"""
_STORED = {2: "uint16", 4: "uint32", 8: "uint64"}


def gathering_kernel(width: int) -> DeviceKernel:
    """Give the kernel that lays out elements of so many bytes."""
    stored = _STORED[width]
    signature = (f"{stored}*", f"{stored}*", *["int64"] * 22)
    return DeviceKernel("gathered", _GATHER.format(stored=stored), signature)


def gathered(
    source: int, target: int, width: int, window: Window, *, images: int, channels: int,
    taken: int, first: int, count: int,
) -> KernelWork:  # fmt: skip
    """
    Lay out ``images`` matrices of ``taken`` channels times taps, and ``count`` places.

    Parameters
    ----------
    source
        The first channel's pixels.
    window
        Over three axes.
    channels
        Of each image; ``taken`` of them are laid out.
    first
        The first place.
    """
    sizes, outs = window.sizes, window.outs
    total = images * taken * count
    arguments = (
        source, target, total, first, count, channels, taken, *sizes, *outs[1:],
        *window.kernel, *window.strides, *window.dilations, *window.begins,
    )  # fmt: skip
    return KernelWork(gathering_kernel(width), arguments, total)


def folding_kernel(dtype: str) -> DeviceKernel:
    """Give the kernel for an element type of the result."""
    element = ELEMENTS[dtype]
    text = _FOLD.format(
        computed=element.computed,
        bias=element.load.format("bias[channel]"),
        store=element.store.format("total"),
    )
    pointers = (f"{element.computed}*", f"{element.stored}*", f"{element.stored}*")
    return DeviceKernel("folded", text, (*pointers, *["int64"] * 24))


def folded(
    columns: int, bias: int, target: int, dtype: str, window: Window, *, images: int,
    groups: int, channels: int, first: int, taken: int,
) -> KernelWork:  # fmt: skip
    """
    Add up columns, ``taken`` channels from ``first`` on of each group.

    Parameters
    ----------
    bias
        Address of one value a channel, or 0.
    target
        Where the first of ``images`` begins.
    channels
        Of each group.
    """
    outs = window.outs
    total = images * groups * taken * outs[0] * outs[1] * outs[2]
    arguments = (
        columns, bias, target, total, groups, taken, first, channels, int(bias != 0),
        *window.sizes, *outs, *window.kernel, *window.strides, *window.dilations,
        *window.begins,
    )  # fmt: skip
    return KernelWork(folding_kernel(dtype), arguments, total)
