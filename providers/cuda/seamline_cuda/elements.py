"""
Element types on the device: how a value is stored, and what it is computed with.

Values of 16-bit floats are stored as their bits and computed with in float32; truth values
are stored as bytes. Everything else is computed with as it is stored.
"""

from __future__ import annotations

import attrs

from seamline.tensors import ANY, INTEGERS

__all__ = ["ELEMENTS", "FLOATS", "MOVED", "STORED", "Element", "converted"]

FLOATS = ("float32", "float16", "bfloat16")  #: what every floating-point kernel takes
MOVED = tuple(name for name in ANY if name != "string")  #: what can be copied
#: Types that stand for any of so many bytes, where elements are only moved.
STORED = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


@attrs.frozen
class Element:
    """
    One element type.

    Attributes
    ----------
    stored, computed
        Names of the types in memory and in registers.
    load, store
        Expressions from what is stored to what is computed with, and back.
    rounded
        Expression that gives a computed value the precision of the type.
    """

    name: str
    stored: str
    computed: str
    load: str = "{}"
    store: str = "{}"
    rounded: str = "{}"


def _half(name: str, kind: str) -> Element:
    load, store = f"{kind}_to_float({{}})", f"float_to_{kind}({{}})"
    return Element(name, "uint16", "float32", load, store, load.format(store))


ELEMENTS = {
    **{
        name: Element(name, name, name, rounded=f"np.{name}({{}})")
        for name in ("float32", "float64", *INTEGERS)
    },
    "float16": _half("float16", "half"),
    "bfloat16": _half("bfloat16", "bfloat"),
    "bool": Element(
        "bool", "uint8", "bool", "({} != 0)", "(np.uint8(1) if {} else np.uint8(0))"
    ),
}  #: by ONNX's name


def converted(value: str, source: Element, target: Element) -> str:
    """
    Give the expression for a Cast, before it is rounded to the target.

    Numbers beyond an integer type wrap around from 64 bits, as NumPy's do on most
    machines; ONNX leaves them undefined.
    """
    if target.name == "bool":
        return value if source.name == "bool" else f"({value} != 0)"
    if source.name == "bool":
        return f"(np.{target.computed}(1) if {value} else np.{target.computed}(0))"
    if target.name == "float16" and source.name == "float64":
        # Through float32 it would be rounded twice.
        return f"half_to_float(double_to_half({value}))"
    if target.name in INTEGERS and source.name not in INTEGERS:
        wide = "uint64" if target.name == "uint64" else "int64"
        return f"np.{target.name}(np.{wide}({value}))"
    return f"np.{target.computed}({value})"
