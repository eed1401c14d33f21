"""
What the twin claims: the host's kernels under a device's conditions.

The arithmetic is that of a host provider's table (``cpu`` unless another is named), run
on device memory by a stream. What makes
it a device's is decided here: fewer operators and element types, no strings, and some
kernels whose launch waits for the device, so that they cannot be recorded. They do wait:
see :class:`~seamline_testing.twin.segment.TwinSegment`.
"""

from __future__ import annotations

import attrs

from seamline.answers import Claim, NodeView, Refusal
from seamline.devices import HOST
from seamline.discovery import discover
from seamline.errors import ProviderOptionError
from seamline.kernel import Kernel
from seamline.kernel_table import KernelTable
from seamline.kernels import KernelProvider
from seamline.settings import Settings
from seamline.tensors import TensorType

__all__ = ["DTYPES", "OPERATORS", "WAITS", "claim_of", "host_table", "kernel_for"]

#: Element types that the device has.
DTYPES = ("float32", "float16", "int64", "int32", "int8", "uint8", "bool")

_NAMES = """
    Abs Add And ArgMax ArgMin Attention AveragePool BatchNormalization Cast Ceil Clip
    Concat ConstantOfShape Conv Cos CumSum Div Dropout Elu Equal Erf Exp Expand Flatten
    Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool
    Greater GreaterOrEqual HardSigmoid HardSwish Identity InstanceNormalization
    LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul Max MaxPool Mean
    Min Mod Mul Neg NonZero Not Or PRelu Pad Pow RMSNormalization Range Reciprocal
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape
    ScatterElements ScatterND Shape Sigmoid Sign Sin Size Slice Softmax Softplus
    Softsign Split Sqrt Squeeze Sub Sum Tanh TensorScatter Tile TopK Transpose Trilu
    Unsqueeze Where Xor
"""
OPERATORS = frozenset(_NAMES.split())

#: Operators whose launch waits for the device, and why.
WAITS = {
    "CumSum": "it waits for the device before it reads its axis",
    "TopK": "it waits for the device to size its scratch",
}
_FOUND_BY_RUNNING = "its output's size is found by running it"


def host_table(name: str) -> KernelTable:
    """
    Give the kernels of an installed host provider.

    Raises
    ------
    ProviderError
        There is none of that name, it is not usable, or it has no table of kernels.
    """
    # No list of the session's applies: it names what may run nodes, and this does not.
    provider = discover(Settings()).find(name).open()
    try:
        if not isinstance(provider, KernelProvider) or provider.device != HOST:
            why = f"{name!r} has no table of kernels of the host, so it has no twin"
            raise ProviderOptionError("twin", why)
        return provider.table
    finally:
        provider.close()


def kernel_for(node: NodeView, host: KernelTable, own: KernelTable) -> Kernel | Refusal:
    """Give the kernel for a node, or say why the twin does not take it."""
    if node.domain == own.name:
        return own.find(node)
    if node.domain or node.op_type not in OPERATORS:
        said = f"the twin has no kernel for {node.node.qualified_op}"
        return Refusal(said, f"{len(OPERATORS)} operators of ai.onnx")
    for what, kinds in (("input", node.inputs), ("output", node.outputs)):
        for index, kind in enumerate(kinds):
            if isinstance(kind, TensorType) and kind.dtype not in DTYPES:
                return Refusal(f"{what} {index} is {kind.dtype}", ", ".join(DTYPES))
    return host.find(node)


def claim_of(kernel: Kernel, node: NodeView) -> Claim:
    """Give the twin's claim for a kernel that takes the node."""
    claim = kernel.claim(node)
    reason = claim.not_capturable if kernel.domain else WAITS.get(kernel.op_type)
    if kernel.sizes_at_run:
        reason = _FOUND_BY_RUNNING
    return attrs.evolve(
        claim,
        variant="twin",
        because="the simulated device has one variant of each kernel",
        not_capturable=reason,
    )
