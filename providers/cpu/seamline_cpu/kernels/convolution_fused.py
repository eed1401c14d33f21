"""FusedConv: a convolution, a residual added to it, and an activation of the sum."""

from __future__ import annotations

from seamline.fitting import Check, all_of
from seamline.kernels import Call, Run
from seamline.provider import NodeView
from seamline.tensors import Dim, TensorType, ValueType
from seamline.windows_fitting import unfit_convolution
from seamline_cpu.kernels.convolution import bind_conv, conv_workspace
from seamline_cpu.kernels.epilogues import epilogue_of, unknown_activation
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.table import TABLE

__all__ = ["infer_convolution", "unlike_output"]

CONTRIB, OWN = "com.microsoft", "seamline"


def unlike_output(index: int) -> Check:
    """Give the check that refuses a residual that is not of the output's shape."""

    def check(view: NodeView) -> str | None:
        more, kinds = view.tensor(index), view.outputs
        out = kinds[0] if kinds else None
        if more is None or not isinstance(out, TensorType):
            return None
        if not (more.is_sized and out.is_sized) or more.shape == out.shape:
            return None
        return f"its Z is {more}, and its output {out}"

    return check


_unfit = all_of(unfit_convolution(), unknown_activation, unlike_output(3))


@TABLE.kernel(
    "FusedConv", domain=CONTRIB, dtypes=("float32",), when=_unfit,
    workspace=conv_workspace, variant="tiles",
    because="a convolution's tiles, activated while they are in the cache",
    not_capturable=OF_FLOAT32,
)  # fmt: skip
@TABLE.kernel(
    "FusedConv", domain=OWN, dtypes=("float32",), when=_unfit,
    workspace=conv_workspace, variant="tiles",
    because="a convolution's tiles, activated while they are in the cache",
    not_capturable=OF_FLOAT32,
)  # fmt: skip
def fused_conv(call: Call) -> Run:
    """
    Bind ``activation(Conv(X, W, B) + Z)``, with B and Z left out or not.

    The form of onnxruntime, which Seamline's own domain widens: ``activation`` may also be
    Gelu, FastGelu, QuickGelu or HardSwish, with ``activation_params`` as those define.
    """
    return bind_conv(call, epilogue_of(call, 3))


@TABLE.infer("FusedConv", domain=CONTRIB)
@TABLE.infer("FusedConv", domain=OWN)
def infer_fused_conv(node: NodeView) -> list[ValueType | None]:
    """Give a convolution's sizes, as ONNX's Conv defines them."""
    x = node.tensor(0)
    return infer_convolution(node, 1, None if x is None else x.dtype)


def infer_convolution(
    node: NodeView, weights: int, dtype: str | None
) -> list[ValueType | None]:
    """Give the type of a convolution of input 0 by another one."""
    x, w = node.tensor(0), node.tensor(weights)
    if x is None or dtype is None:
        return [None]
    if x.shape is None or w is None or w.shape is None or len(x.shape) != len(w.shape):
        return [TensorType(dtype, None)]
    rank = len(x.shape) - 2
    kernel = tuple(node.attributes.get("kernel_shape") or w.shape[2:])
    strides = tuple(node.attributes.get("strides") or (1,) * rank)
    dilations = tuple(node.attributes.get("dilations") or (1,) * rank)
    pads = tuple(node.attributes.get("pads") or (0,) * (2 * rank))
    mode = node.attributes.get("auto_pad", "NOTSET")
    spans = {len(kernel), len(strides), len(dilations), len(pads) / 2}
    if rank < 0 or spans != {rank}:  # its kernel refuses such a node, and says why
        return [TensorType(dtype, None)]
    sizes: list[Dim] = []
    for axis, size in enumerate(x.shape[2:]):
        around = pads[axis] + pads[axis + rank] if mode == "NOTSET" else 0
        span = (kernel[axis], strides[axis], dilations[axis])
        sizes.append(_extent(size, *span, around, mode.startswith("SAME")))
    return [TensorType(dtype, (x.shape[0], w.shape[0], *sizes))]


def _extent(
    size: Dim, kernel: Dim, stride: int, dilation: int, around: int, same: bool
) -> Dim:
    if not isinstance(kernel, int):
        return None
    if stride == 1 and (same or around == (kernel - 1) * dilation):
        return size
    if not isinstance(size, int):
        return None
    if same:
        return -(-size // stride)
    return max(0, (size + around - (kernel - 1) * dilation - 1) // stride + 1)
