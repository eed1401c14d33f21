"""Whether a window fits what it slides over: convolutions, their transpose, and pools."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seamline.fitting import Check, dims, unlike
from seamline.provider import NodeView
from seamline.tensors import Dim

__all__ = [
    "unfit_columns",
    "unfit_convolution",
    "unfit_pool",
    "unfit_transposed",
    "unfit_unpool",
]


def _unfit_window(view: NodeView, rank: int) -> str | None:
    """Refuse attributes that are not for ``rank`` axes, or that no window has."""
    for name, count, least in (
        ("kernel_shape", rank, 1),
        ("strides", rank, 1),
        ("dilations", rank, 1),
        ("pads", 2 * rank, 0),
        ("output_padding", rank, 0),
        ("output_shape", rank, 0),
    ):
        given: Sequence[int] = view.attributes.get(name) or ()
        if given and (len(given) != count or min(given) < least):
            return (
                f"its {name} is {list(given)}, not {count} numbers of {least} or more"
            )
    return None


def _sized(view: NodeView, *indices: int) -> list[tuple[int, ...]] | None:
    """Give shapes whose sizes are all known, or None."""
    kinds = [view.tensor(index) for index in indices]
    if any(kind is None or not kind.is_sized for kind in kinds):
        return None
    return [kind.sizes for kind in kinds if kind is not None]


def _unfit_weights(view: NodeView, weights: int) -> str | None:
    """Refuse weights of another rank than the input's, or of other sizes than named."""
    x, w = view.tensor(0), view.tensor(weights)
    if x is None or w is None or x.shape is None or w.shape is None:
        return None
    if len(x.shape) != len(w.shape) or len(w.shape) < 3:
        return f"its input is {x} and its weights are {w}, of another rank"
    if 0 in w.shape[2:]:
        return f"its weights are {w}, whose kernel has no places"
    kernel: tuple[Dim, ...] = tuple(view.attributes.get("kernel_shape") or w.shape[2:])
    if w.is_sized and kernel != w.shape[2:]:
        return f"its kernel_shape is {list(kernel)} and its weights are {w}"
    return _unfit_window(view, len(w.shape) - 2)


def unfit_convolution(weights: int = 1, bias: int | None = 2) -> Check:
    """Give the check of a convolution whose weights and bias are these inputs."""

    def check(view: NodeView) -> str | None:
        sizes = _sized(view, 0, weights)
        if reason := _unfit_weights(view, weights):
            return reason
        if sizes is None:
            return None
        x, w = sizes
        groups = view.attributes.get("group", 1)
        if x[1] != w[1] * groups or w[0] % groups:
            return (
                f"its input is {view.tensor(0)} and its weights are "
                f"{view.tensor(weights)}, in {groups} groups"
            )
        return None if bias is None else unlike(view, bias, "bias", w[:1])

    return check


def unfit_transposed(view: NodeView) -> str | None:
    """Refuse what does not fit in a transposed convolution."""
    sizes = _sized(view, 0, 1)
    if reason := _unfit_weights(view, 1):
        return reason
    if sizes is None:
        return None
    x, w = sizes
    groups = view.attributes.get("group", 1)
    if x[1] != w[0] or w[0] % groups:
        return (
            f"its input is {view.tensor(0)} and its weights are {view.tensor(1)}, "
            f"in {groups} groups"
        )
    return unlike(view, 2, "bias", (w[1] * groups,)) or _unfit_output(view, x, w)


def _unfit_output(view: NodeView, x: tuple[int, ...], w: tuple[int, ...]) -> str | None:
    """Refuse pixels that lie behind what the last window covers by a stride or more."""
    rank = len(x) - 2
    given = view.attributes
    strides = given.get("strides") or (1,) * rank
    dilations = given.get("dilations") or (1,) * rank
    extra = given.get("output_padding") or (0,) * rank
    wanted = given.get("output_shape")
    for i, (s, d, e) in enumerate(zip(strides, dilations, extra, strict=True)):
        if e and e >= max(s, d):
            return f"its output_padding is {list(extra)}, no less than a stride or dilation"
        covered = s * (x[2 + i] - 1) + (w[2 + i] - 1) * d + 1
        if wanted and wanted[i] >= covered + max(s, d):
            return (
                f"its output_shape is {list(wanted)}, and windows cover {covered} "
                f"places along axis {2 + i}"
            )
    return None


def unfit_pool(view: NodeView) -> str | None:
    """Refuse a window of another rank, or one that lies in the padding alone."""
    shape = dims(view, 0)
    if shape is None:
        return None
    if len(shape) < 3:
        return f"its input has {len(shape)} axes: no batch, channels and pixels"
    rank = len(shape) - 2
    kernel = view.attributes.get("kernel_shape") or ()
    if len(kernel) != rank:
        return f"its kernel_shape is {list(kernel)}, and its input has {rank} axes of pixels"
    if reason := _unfit_window(view, rank):
        return reason
    if 0 in shape[2:]:
        return f"its input is {list(shape)}, which has no pixels"
    if view.attributes.get("p", 1) <= 0:
        return f"its p is {view.attributes['p']}, which gives no norm"
    pads = view.attributes.get("pads") or ()
    for i, pad in enumerate(pads):
        if pad >= kernel[i % rank]:
            return f"its pads are {list(pads)}, as wide as its kernel of {list(kernel)}"
    return None


def unfit_unpool(view: NodeView) -> str | None:
    """Refuse places that are not one a value, and an output smaller than implied."""
    shape, kernel = dims(view, 0), view.attributes.get("kernel_shape") or ()
    if shape is None:
        return None
    rank = len(shape) - 2
    if len(kernel) != rank or rank < 1:
        return f"its kernel_shape is {list(kernel)}, and its input is {list(shape)}"
    if reason := _unfit_window(view, rank) or unlike(view, 1, "indices", shape):
        return reason
    strides = view.attributes.get("strides") or (1,) * rank
    pads = view.attributes.get("pads") or (0,) * 2 * rank
    given = view.constant(2)
    for i, (size, k, s) in enumerate(zip(shape[2:], kernel, strides, strict=True)):
        if not isinstance(size, int):
            continue
        implied = (size - 1) * s - pads[i] - pads[rank + i] + k
        if implied < 0 or (
            given is not None and (given.shape != (rank + 2,) or given[2 + i] < implied)
        ):
            wanted = None if given is None else given.tolist()
            return f"its output_shape is {wanted}, and it unpools to {implied} places"
    return None


def _spans(kernel: Sequence[int], dilations: Sequence[int]) -> tuple[int, ...]:
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))


def unfit_columns(view: NodeView) -> str | None:
    """Refuse columns that are not one for each place of the block in the image."""
    image, block, x = view.constant(1), view.constant(2), dims(view, 0)
    if image is None or block is None or x is None:
        return None
    sizes, kernel = image.reshape(-1).tolist(), block.reshape(-1).tolist()
    rank = len(kernel)
    if (
        max(image.ndim, block.ndim) != 1
        or len(sizes) != rank
        or min(kernel, default=1) < 1
    ):
        return f"its image_shape is {sizes} and its block_shape {kernel}"
    if reason := _unfit_window(view, rank):
        return reason
    pads = view.attributes.get("pads") or (0,) * 2 * rank
    strides = view.attributes.get("strides") or (1,) * rank
    spans = _spans(kernel, view.attributes.get("dilations") or (1,) * rank)
    places = [
        (n + pads[i] + pads[rank + i] - spans[i]) // strides[i] + 1
        for i, n in enumerate(sizes)
    ]
    if min(places, default=1) < 0:
        return f"its block covers {list(spans)} of an image of {sizes}"
    return unlike(view, 0, "input", (None, None, math.prod(places)))
