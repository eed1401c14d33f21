"""
ONNX's operators under Seamline's domain, for models whose opset does not have them yet.

Graph optimization makes them where a model writes one out in older operators. They mean
what the newest version of ONNX says.
"""

from __future__ import annotations

from seamline.attention_types import attention_types
from seamline.provider import NodeView
from seamline.tensors import FLOATS, ValueType
from seamline_cpu.kernels import formulas
from seamline_cpu.kernels.attention import attention, unfit_heads, unrecorded_heads
from seamline_cpu.kernels.elementwise import COMPILED
from seamline_cpu.kernels.layer_normalization import layer_normalization
from seamline_cpu.kernels.normalization_fitting import unfit_trailing
from seamline_cpu.kernels.recorded import OF_FLOAT32
from seamline_cpu.kernels.rotary import FLOAT_KINDS, REFUSED, rotary_embedding
from seamline_cpu.table import TABLE

__all__: list[str] = []

OWN = "seamline"
_SIXTH = 1 / 6

TABLE.kernel(
    "HardSwish", domain=OWN, dtypes=FLOATS, aliases=((0, 0),), variant="numba",
    because=COMPILED, not_capturable=OF_FLOAT32,
)(lambda call: formulas.HARD_SWISH.bind(call, _SIXTH, 0.5))  # fmt: skip
TABLE.kernel(
    "LayerNormalization", domain=OWN, dtypes={0: FLOATS, 1: FLOATS}, aliases=((0, 0),),
    when=unfit_trailing, not_capturable=OF_FLOAT32,
)(layer_normalization)  # fmt: skip
TABLE.kernel(
    "Attention", domain=OWN, dtypes={0: FLOATS, 1: FLOATS, 2: FLOATS}, when=unfit_heads,
    not_capturable=unrecorded_heads,
)(attention)  # fmt: skip


TABLE.infer("Attention", domain=OWN)(attention_types)


def _same(node: NodeView) -> list[ValueType | None]:
    """Give the input's type."""
    return [node.tensor(0)]


TABLE.kernel("RotaryEmbedding", domain=OWN, dtypes=FLOAT_KINDS, when=REFUSED)(
    rotary_embedding
)

for _op in ("HardSwish", "LayerNormalization", "RotaryEmbedding"):
    TABLE.infer(_op, domain=OWN)(_same)
