"""
What sums and comparisons of each element type are made in, and the functions of it.

16-bit floats add up in float32, integers in 64 bits, where they wrap around as in their
own size. Truth values count as 0 and 1.
"""

from __future__ import annotations

import attrs

from seamline_cuda.elements import ELEMENTS

__all__ = ["Wide", "wide_of"]

_DOUBLES = {
    "expf": "exp", "logf": "log", "fsqrt_rn": "sqrt", "powf": "pow", "fabsf": "fabs",
    "log1pf": "log1p",
}  # fmt: skip


@attrs.frozen
class Wide:
    """
    An element type, and the wider one that it is computed in.

    Attributes
    ----------
    name
        ONNX's name of the element type.
    kind
        The type in registers: ``float32``, ``float64``, ``int64`` or ``uint64``.
    """

    name: str
    kind: str

    @property
    def pointer(self) -> str:
        """Give the type of a parameter that is an address of such elements."""
        return f"{ELEMENTS[self.name].stored}*"

    @property
    def is_float(self) -> bool:
        """Tell whether there are infinities and NaN."""
        return self.kind.startswith("float")

    def load(self, place: str) -> str:
        """Give the expression that reads an element, such as ``x[at0]``."""
        return f"np.{self.kind}({ELEMENTS[self.name].load.format(place)})"

    def store(self, value: str) -> str:
        """Give the expression for what is stored of a value in registers."""
        element = ELEMENTS[self.name]
        if self.name == "bool":
            return f"np.uint8({value} != 0)"
        if not self.is_float:
            return f"np.{element.stored}({value})"
        if self.kind == "float64":
            return value if self.name == "float64" else f"np.{element.stored}({value})"
        return element.store.format(value)

    def number(self, value: float) -> str:
        """Give the text of a constant."""
        return f"np.{self.kind}({value!r})"

    def call(self, function: str, *arguments: str) -> str:
        """Give the call of a function, named as it is for float32."""
        name = function if self.kind == "float32" else _DOUBLES[function]
        return f"libdevice.{name}({', '.join(arguments)})"

    def least(self) -> str:
        """Give what no element is below."""
        if self.is_float:
            return f"np.{self.kind}(-np.inf)"
        if self.kind == "uint64" or self.name in ("bool", "uint8", "uint16", "uint32"):
            return f"np.{self.kind}(0)"
        bits = 8 * _SIZES[self.name]
        # A literal of -2**63 would be taken for a float.
        return f"np.int64({-(1 << (bits - 1)) + 1} - 1)"

    def greatest(self) -> str:
        """Give what no element is above."""
        if self.is_float:
            return f"np.{self.kind}(np.inf)"
        if self.name == "bool":
            return "np.int64(1)"
        bits = 8 * _SIZES[self.name] - (not self.name.startswith("u"))
        return f"np.{self.kind}({(1 << bits) - 1})"


_SIZES = {
    f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def wide_of(name: str, *, floats: bool = False) -> Wide:
    """
    Give what an element type is computed in.

    Parameters
    ----------
    floats
        Whether the computation has fractions, so that integers become float64.
    """
    if name in ("float32", "float16", "bfloat16"):
        return Wide(name, "float32")
    if name == "float64" or floats:
        return Wide(name, "float64")
    return Wide(name, "uint64" if name == "uint64" else "int64")
