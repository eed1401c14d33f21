"""
CumSum and CumProd: every prefix of a row, inclusive or exclusive, forward or in reverse.

A block takes a row, tile by tile. Each thread folds a few neighbours, warps exchange
registers, and the warps' results meet in shared memory; what came before is carried on. An
exclusive prefix is the inclusive one of the element before it, never a difference, which
infinities would spoil.

Rows side by side in memory have a thread each. Where rows are few and long, several blocks
share one: a first kernel folds each part, and each block of the second begins with the
parts before its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from seamline.kernel import Call
from seamline.kernel_table import KernelTable
from seamline.provider import Array, NodeView
from seamline_cuda.accumulating import Wide, wide_of
from seamline_cuda.claiming import elements_fit, sizes_of
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.folds import Folds, axes_within, taken_apart
from seamline_cuda.limits import rank_of
from seamline_cuda.row_programs import Fold, RowProgram, State
from seamline_cuda.row_teams import Team, places, team_for
from seamline_cuda.row_works import parts_work, workspace_of
from seamline_cuda.works import KernelWork, Work

__all__ = ["Prefixes", "add_to"]

_DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "int32",
    "int64",
    "uint32",
    "uint64",
)
_EACH = 4  # neighbours that a thread folds
_MASK = "0xffffffff"


@attrs.frozen
class Prefixes:
    """
    What the kernel of a node computes.

    Attributes
    ----------
    sign
        ``+`` or ``*``.
    team
        Threads for a row: ``alone`` or ``block``.
    ranks
        Axes that are kept and folded.
    """

    name: str
    wide: Wide
    sign: str
    exclusive: bool
    reverse: bool
    team: Team
    ranks: tuple[int, int]

    @property
    def start(self) -> str:
        """Give what is folded of no elements."""
        return f"np.{self.wide.kind}({0 if self.sign == '+' else 1})"

    def program(self) -> RowProgram:
        """Give the program that folds parts of rows."""
        state = State("s", self.wide.kind, self.start)
        fold = Fold((state,), (f"s {self.sign}= x{{u}}",), (f"s {self.sign}= o_s",))
        load = (f"x{{u}} = {self.wide.load('x[at{u}]')}",)
        parameters = (("x", self.wide.pointer), ("y", self.wide.pointer))
        return RowProgram(
            self.name, parameters, (("x", self.wide.kind),), load, (fold,)
        )

    def kernel(self, geometry: Sequence[tuple[str, str]]) -> DeviceKernel:
        """Write the kernel; ``geometry`` has the parameters that say sizes and steps."""
        parameters = [("x", self.wide.pointer), ("y", self.wide.pointer)]
        parameters += [("rows", "int64"), ("n", "int64"), *geometry]
        if self.team.parts > 1:
            parameters += [
                ("parts", "int64"),
                ("part", "int64"),
                ("left_s", f"{self.wide.kind}*"),
            ]
        walk = self._alone() if self.team.kind == "alone" else self._block()
        body = [*self._head(), *walk]
        names = ", ".join(name for name, _ in parameters)
        name = f"{self.name}_{self.team.kind}"
        text = f"def {name}({names}):\n" + "".join(f"    {line}\n" for line in body)
        return DeviceKernel(name, text, tuple(kind for _, kind in parameters))

    def _head(self) -> list[str]:
        parted = self.team.parts > 1
        lines = [
            *places(self.team, parted),
            "live = row < rows",
            "row = row if live else np.int64(0)",
        ]
        lines += [
            *taken_apart("row", "row", self.ranks[0], "base"),
            f"carry = {self.start}",
        ]
        if not parted:
            return [*lines, "begin = np.int64(0)", "end = n if live else np.int64(0)"]
        # Parts are cut in the order of memory; those before in the order of the walk
        # lie behind, where it is reversed.
        first, stop = ("mine + 1", "parts") if self.reverse else ("np.int64(0)", "mine")
        return [
            *lines, "low = mine * part", "high = min(low + part, n)",
            *(("begin = n - high", "end = n - low") if self.reverse else ("begin = low", "end = high")),
            "end = end if live else begin", f"i = {first}", f"while i < {stop}:",
            f"    carry {self.sign}= left_s[row * parts + i]", "    i += 1",
        ]  # fmt: skip

    def _loads(self, index: str) -> list[str]:
        """Load neighbours from a place of the walk on; what is behind its end is nothing."""
        lines = []
        for u in range(_EACH):
            lines += [f"j{u} = {index} + {u}", f"at{u} = base", f"v{u} = {self.start}"]
            turned = f"n - 1 - j{u}" if self.reverse else f"j{u}"
            inner = [
                f"t{u} = {turned}",
                *taken_apart(f"t{u}", "in", self.ranks[1], f"at{u}", f"_{u}"),
            ]
            inner += [f"at{u} = base + at{u}", f"v{u} = {self.wide.load(f'x[at{u}]')}"]
            lines += [f"if j{u} < end:", *(f"    {line}" for line in inner)]
        return lines

    def _stores(self) -> list[str]:
        """Store each neighbour's prefix, ``carry`` being what comes before them."""
        lines = []
        for u in range(_EACH):
            after = f"carry {self.sign}= v{u}"
            store = [f"if j{u} < end:", f"    y[at{u}] = {self.wide.store('carry')}"]
            lines += [*store, after] if self.exclusive else [after, *store]
        return lines

    def _alone(self) -> list[str]:
        inner = [*self._loads("j"), *self._stores(), f"j += {_EACH}"]
        return ["j = begin", "while j < end:", *(f"    {line}" for line in inner)]

    def _block(self) -> list[str]:
        sign, kind = self.sign, self.wide.kind
        whole = f" {sign} ".join(f"v{u}" for u in range(_EACH))
        inner = [*self._loads(f"tile + lane * {_EACH}"), f"s = {whole}", *self._up("s")]
        inner += [
            "if slot == 31:", "    shared_s[wave] = s", "cuda.syncthreads()",
            f"w = {self.start}", "if slot < waves:", "    w = shared_s[slot]", *self._up("w"),
            # What all warps before made, and all lanes before in this one.
            f"before = {self._from('w', 'max(wave - 1, 0)')}",
            f"whole = {self._from('w', 'waves - 1')}",
            f"back = {self._from('s', 'max(slot - 1, 0)')}",
            "kept = carry",
            f"carry = carry {sign} before if wave > 0 else carry",
            f"carry = carry {sign} back if slot > 0 else carry",
            *self._stores(),
            f"carry = kept {sign} whole", "cuda.syncthreads()",
            f"tile += lanes * {_EACH}",
        ]  # fmt: skip
        return [
            f"shared_s = cuda.shared.array(32, np.{kind})", "tile = begin", "while tile < end:",
            *(f"    {line}" for line in inner),
        ]  # fmt: skip

    def _up(self, name: str) -> list[str]:
        """Make a register of each lane what it and all lanes before it hold."""
        return [
            "distance = np.int64(1)",
            "while distance < 32:",
            f"    o = {self._from(name, 'max(slot - distance, 0)')}",
            f"    {name} = o {self.sign} {name} if slot >= distance else {name}",
            "    distance = distance << 1",
        ]

    def _from(self, name: str, lane: str) -> str:
        """Read a register of a lane; 64 unsigned bits are exchanged as signed ones."""
        lane = f"np.int32({lane})"
        if self.wide.kind == "uint64":
            return f"np.uint64(cuda.shfl_sync({_MASK}, np.int64({name}), {lane}))"
        return f"cuda.shfl_sync({_MASK}, {name}, {lane})"


# --- nodes --------------------------------------------------------------------------


def _axes(axis: Array, rank: int) -> tuple[int, ...] | None:
    """Give the axis as the only one; None where there are several, or it lies outside."""
    return axes_within((int(axis.reshape(-1)[0]),), rank) if axis.size == 1 else None


def _unfit(node: NodeView) -> str | None:
    reason, axis, rank = elements_fit(node), node.constant(1), rank_of(node)
    if reason or axis is None or rank is None or _axes(axis, rank) is not None:
        return reason
    return f"its axis is {axis}, and its input has {rank} axes"


def _workspace(node: NodeView) -> int:
    sizes, axis = sizes_of(node, 0), node.constant(1)
    if sizes is None:
        return 0
    rank = len(sizes)
    # Of an axis that the model computes, whichever takes most.
    found = [(at,) for at in range(rank)] if axis is None else [_axes(axis, rank) or ()]
    return max((workspace_of(Folds.of(sizes, axes), 1) for axes in found), default=0)


def _cumulated(call: Call) -> Sequence[Work]:
    node, x, axis, y = call.view, call.inputs[0], call.inputs[1], call.outputs[0]
    axes = _axes(axis, len(x.shape))
    if axes is None:
        raise ValueError(f"its axis is {axis}, and its input has {len(x.shape)} axes")
    folds = Folds.of(x.shape, axes)
    if not folds.rows or not folds.length:
        return []
    shared = team_for(folds.rows, folds.length, folds.side_by_side)
    prefixes = Prefixes(
        node.op_type.lower(),
        wide_of(x.kind.dtype),
        "+" if node.op_type == "CumSum" else "*",
        bool(node.attributes.get("exclusive", 0)),
        bool(node.attributes.get("reverse", 0)),
        _walkers(folds, shared),
        folds.ranks,
    )
    kernel = prefixes.kernel(folds.parameters())
    given = (x.address, y.address, folds.rows, folds.length, *folds.numbers())
    works: list[Work] = []
    if shared.parts > 1:
        work, left = parts_work(prefixes.program(), folds, (x.address, y.address), call)
        works.append(work)
        given = (*given, shared.parts, shared.part, left)
    blocks = prefixes.team.blocks(folds.rows)
    threads = prefixes.team.threads
    return [*works, KernelWork(kernel, given, blocks * threads, threads, blocks)]


def _walkers(folds: Folds, shared: Team) -> Team:
    """Give the threads that walk along rows, where a team shares what is folded before."""
    if folds.side_by_side:
        threads = min(max(32, 1 << (folds.rows - 1).bit_length()), 128)
        return attrs.evolve(shared, kind="alone", lanes=1, threads=threads, held=0)
    length = shared.part or folds.length
    threads = min(max(32, 1 << (-(-length // _EACH) - 1).bit_length()), 512)
    return attrs.evolve(shared, kind="block", lanes=threads, threads=threads, held=0)


def add_to(table: KernelTable) -> None:
    """Add the operators of this family."""
    for op_type in ("CumSum", "CumProd"):
        table.kernel(
            op_type,
            dtypes=_DTYPES,
            when=_unfit,
            host_inputs={1},
            aliases=((0, 0),),
            workspace=_workspace,
            variant="rows",
            because="warps exchange registers, and carry on what came before",
            not_capturable=None,
        )(_cumulated)
