"""
Rows of heads, brought to where attention reads them: moved, added to, normalised, rotated.

A warp takes a row of one head. Positions, and where an entry's new rows begin, are read on
the device, so that one recording serves every step of a decoder. A row is never written
where it is read from.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import attrs

from seamline_cuda.attention_places import Operand
from seamline_cuda.attention_spans import FIXED, Span, widened
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.elements import ELEMENTS
from seamline_cuda.templates import filled, indented
from seamline_cuda.works import Complaint, KernelWork

__all__ = ["Rotation", "RowsForm", "moved", "rows_work"]

_THREADS = 128
_TEXT = """\
lane = np.int64(cuda.threadIdx.x % 32)
place = np.int64(cuda.grid(1)) // 32
if place < total:
    whole = quotient32(np.uint32(place), np.uint32(heads))
    head = place - np.int64(whole) * heads
    entry = np.int64(quotient32(whole, np.uint32(rows)))
    row = np.int64(whole) - entry * rows
    SPAN
    MISFIT
    if row < fresh:
        source = entry * x_batch + row * x_row + head * x_head
        target = entry * y_batch + (row + to) * y_row + head * y_head
        FACTOR
        PLACE
        d = lane
        while d < size:
            value = VALUE
            ROTATED
            y[target + d] = STORED
            d += 32
"""
_FACTOR = """\
square = np.float32(0)
d = lane
while d < size:
    value = GIVEN
    square += value * value
    d += 32
square += cuda.shfl_xor_sync(0xFFFFFFFF, square, 16)
square += cuda.shfl_xor_sync(0xFFFFFFFF, square, 8)
square += cuda.shfl_xor_sync(0xFFFFFFFF, square, 4)
square += cuda.shfl_xor_sync(0xFFFFFFFF, square, 2)
square += cuda.shfl_xor_sync(0xFFFFFFFF, square, 1)
mean = square / np.float32(size)
factor = np.float32(1) / libdevice.fsqrt_rn(mean + epsilon)
"""
_PLACE = """\
at = POSITION
if at < 0 or at >= tables:
    outside[0] = np.uint32(1)
    at = np.int64(0)
at *= half
"""
_ROTATED = """\
if d < 2 * half:
    if interleaved:
        pair = d >> 1
        other = d ^ 1
        second = (d & 1) != 0
    else:
        second = d >= half
        pair = d - half if second else d
        other = pair if second else pair + half
    c = COS
    s = SIN
    beside = OTHER
    value = value * c + beside * s if second else value * c - beside * s
"""


@attrs.frozen
class Rotation:
    """
    Rotary tables, and where the position of a row is found.

    Attributes
    ----------
    kind
        Element type of the tables.
    positions
        Element type of the positions, empty where every row has a line of its own.
    starts
        What the positions are: ``each`` row's, ``one`` where every entry starts, ``past``
        for rows that follow what an entry has, or ``first`` for each row's, unless
        ``total`` says that this is a first prompt, which starts at the first of them.
    """

    kind: str
    positions: str = ""
    starts: str = "each"
    total: str = ""

    def parameters(self) -> dict[str, str]:
        """Give the kernel's parameters by name, with their types."""
        stored = ELEMENTS[self.kind].stored
        found = {"cos": f"{stored}*", "sin": f"{stored}*", "half": "int64"}
        found |= {"interleaved": "int64", "tables": "int64", "outside": "uint32*"}
        if self.positions:
            found |= {"positions": f"{self.positions}*", "places": "int64"}
        if self.total:
            found["together"] = f"{self.total}*"
        return found

    def position(self) -> str:
        """Give the expression for a row's line of the tables."""
        index = "entry * rows + row"
        each = f"(np.int64(positions[{index}]) if {index} < places else np.int64(-1))"
        if self.starts == "first":
            first = "np.int64(positions[0]) + row"
            return f"{first} if np.int64(together[0]) == rows else {each}"
        return {
            "one": "np.int64(positions[0]) + row",
            "past": "first + row",
            "each": each if self.positions else f"({index}) % tables",
        }[self.starts]


@attrs.frozen
class RowsForm:
    """
    What the text of a kernel depends on.

    Attributes
    ----------
    source, target
        Element types; of integers, where rows are only moved.
    bias
        Element type of a value for each element of all heads that is added, or empty.
    weight
        Element type of the weights that follow a division by the root of the mean square,
        or empty.
    behind
        Rows go behind what their entry has, not to the beginning.
    told
        Lengths that do not fit are complained about.
    """

    source: str
    target: str
    span: Span = FIXED
    rotation: Rotation | None = None
    bias: str = ""
    weight: str = ""
    behind: bool = False
    told: bool = False

    def parameters(self) -> dict[str, str]:
        """Give the kernel's parameters by name, with their types."""
        found = {"x": f"{ELEMENTS[self.source].stored}*"}
        found["y"] = f"{ELEMENTS[self.target].stored}*"
        found |= self.span.parameters()
        if self.told:
            found["misfit"] = "uint32*"
        if self.bias:
            found["bias"] = f"{ELEMENTS[self.bias].stored}*"
        if self.weight:
            found |= {
                "weight": f"{ELEMENTS[self.weight].stored}*",
                "epsilon": "float32",
            }
        if self.rotation is not None:
            found |= self.rotation.parameters()
        steps = (f"{name}_{by}" for name in "xy" for by in ("batch", "head", "row"))
        return found | dict.fromkeys(
            (*steps, "total", "heads", "size", "shift"), "int64"
        )

    def value(self, index: str) -> str:
        """Give the expression for an element before it is rotated."""
        value = self.given(index)
        if self.weight:
            value = f"{value} * factor * {widened(self.weight, f'weight[{index}]')}"
        return value

    def given(self, index: str) -> str:
        """Give the expression for an element as it is given."""
        value = ELEMENTS[self.source].load.format(f"x[source + {index}]")
        if self.bias:
            value += f" + {widened(self.bias, f'bias[head * size + {index}]')}"
        return f"({value})"


@functools.lru_cache(256)
def _kernel(form: RowsForm) -> DeviceKernel:
    parameters = form.parameters()
    rotation = form.rotation
    rotated, place = [], []
    if rotation is not None:
        place = filled(_PLACE, POSITION=rotation.position())
        tables = {
            n.upper(): widened(rotation.kind, f"{n}[at + pair]") for n in ("cos", "sin")
        }
        rotated = filled(_ROTATED, OTHER=form.value("other"), **tables)
    lines = filled(
        _TEXT,
        SPAN=[*form.span.text(), "to = first" if form.behind else "to = shift"],
        MISFIT=["if not fits:", "    misfit[0] = np.uint32(1)"] if form.told else [],
        FACTOR=filled(_FACTOR, GIVEN=form.given("d")) if form.weight else [],
        PLACE=place, ROTATED=rotated, VALUE=form.value("d"),
        STORED=ELEMENTS[form.target].store.format("value"),
    )  # fmt: skip
    head = f"def attention_rows({', '.join(parameters)}):"
    text = "\n".join([head, *indented(lines)]) + "\n"
    return DeviceKernel("attention_rows", text, tuple(parameters.values()))


def rows_work(
    form: RowsForm, source: Operand, target: Operand, sizes: tuple[int, int, int, int],
    given: Mapping[str, float | Complaint] | None = None,
) -> KernelWork:  # fmt: skip
    """
    Give the launch that brings rows from one place to another.

    Parameters
    ----------
    sizes
        Entries, heads, rows, and values of a head; none of them 0.
    given
        Values of the other parameters; ``shift`` counts rows before the first one's place.
    """
    batch, heads, rows, size = sizes
    total = batch * heads * rows
    values: dict[str, float | Complaint] = {
        "x": source.address, "y": target.address, "total": total, "heads": heads,
        "rows": rows, "size": size, "shift": 0, "before": 0, "limit": 0,
    }  # fmt: skip
    for name, operand in (("x", source), ("y", target)):
        by = zip(("batch", "head", "row"), operand.steps, strict=True)
        values |= {f"{name}_{axis}": step for axis, step in by}
    values |= given or {}
    arguments = tuple(values[name] for name in form.parameters())
    blocks = -(-total * 32 // _THREADS)
    return KernelWork(_kernel(form), arguments, total * 32, _THREADS, blocks)


def moved(
    source: Operand, target: Operand, sizes: tuple[int, int, int, int], shift: int = 0
) -> list[KernelWork]:
    """Give the launch that moves rows as they are, eight bytes at a time where they lie so."""
    if not all(sizes):
        return []
    nbytes = {"float32": 4, "float64": 8}.get(source.kind, 2)
    ends = (source.address, target.address)
    steps = (*source.steps, *target.steps, sizes[3])
    for unit, kind in ((8, "uint64"), (4, "uint32"), (2, "uint16")):
        aligned = all(
            at % unit == 0 for at in (*ends, *(nbytes * step for step in steps))
        )
        if not aligned:
            continue
        first, second = (
            Operand(o.address, kind, tuple(nbytes * step // unit for step in o.steps))  # type: ignore[arg-type]
            for o in (source, target)
        )
        whole = (*sizes[:3], nbytes * sizes[3] // unit)
        return [rows_work(RowsForm(kind, kind), first, second, whole, {"shift": shift})]
    raise AssertionError("elements are aligned to themselves")
