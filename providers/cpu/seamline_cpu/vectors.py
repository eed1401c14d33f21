"""
Vector code for kernels over bytes and packed codes, as LLVM instructions.

LLVM's vectorisers find none of these shapes in a loop, and take ten to twenty times as long
without them. A kernel is an intrinsic (:func:`seamline_cpu.jit.native`) whose ``generate``
makes a :class:`Vectors` over Numba's builder and calls its methods; addresses are int64.

**Widths.** Vectors may have any number of lanes that is a multiple of a register's; LLVM
cuts them. One layout of packed data, 16 lanes of 32 bits, therefore serves all processors.
Keep few of them alive: a vector of 16 words is two of AVX2's sixteen registers, and four of
the 128-bit ones. ``lanes`` is what one register holds.

**Products of bytes.** ``bytes_dot`` adds to each 32-bit lane the four products of its bytes,
the first operand's unsigned, the second's signed; exact for all values. It is one
instruction with VNNI. Without it, it splits bytes into words of 16 bits. Where the unsigned
bytes are small, ``byte_pairs`` is the faster way: it gives 16-bit lanes, each the sum of two
products, *exact only if no sum passes 32767*: codes of 4 bits allow eight such results to be
added (8 * 2 * 15 * 127 = 30480) before ``widen_pairs`` brings them to 32 bits; codes up to
127 allow one. ``word_pairs`` multiplies lanes of signed 16 bits, two to each 32-bit lane.
Signed bytes become unsigned by ``x ^ 0x80``, which adds 128: subtract 128 times the sum of
the other operand.

**NaN.** Nothing here assumes that there is none. ``multiply_add`` is one instruction where
the processor has it and two roundings where not; LLVM's ``fma`` would call a library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seamline_cpu.ir import cgutils, ir
from seamline_cpu.vector_types import (
    F16,
    F32,
    I8,
    I16,
    I32,
    I64,
    bits_of,
    name_of,
    vector,
)

__all__ = ["F16", "F32", "I8", "I16", "I32", "I64", "REGISTER", "Vectors", "vector"]

_VOID = ir.VoidType()

#: 32-bit lanes in a register, by variant.
REGISTER = {"avx512vnni": 16, "amx": 16, "avxvnni": 8, "avx2": 8, "portable": 4}


class Vectors:
    """
    Vector operations over an IR builder, for one variant.

    Parameters
    ----------
    builder
        llvmlite's, as Numba gives it to an intrinsic's ``generate``.
    variant
        Of :data:`seamline_cpu.instruction_sets.INT8`, or ``amx``: all of ``avx512vnni``.

    Attributes
    ----------
    lanes
        32-bit lanes in a register.
    has_byte_dot
        ``bytes_dot`` is one instruction; otherwise prefer ``byte_pairs``.
    """

    def __init__(self, builder: Any, variant: str) -> None:
        self.builder = builder
        self.variant = variant
        self.lanes = REGISTER[variant]
        self.has_byte_dot = variant in ("amx", "avx512vnni", "avxvnni")

    # --- constants, addresses, memory ------------------------------------------------

    def constant(self, kind: Any, value: Any) -> Any:
        """Give a constant; of a vector type, the same in all lanes."""
        many = isinstance(kind, ir.VectorType)
        return ir.Constant(kind, [value] * kind.count if many else value)

    def add(self, address: Any, *offsets: Any) -> Any:
        """Add offsets, Python integers or int64 values, to an address."""
        for offset in offsets:
            if not isinstance(offset, int):
                address = self.builder.add(address, offset)
            elif offset:
                address = self.builder.add(address, ir.Constant(I64, offset))
        return address

    def every(self, address: Any, pitch: Any, count: int) -> list[Any]:
        """Give the addresses of ``count`` rows, ``pitch`` bytes apart."""
        found = [address]
        for _ in range(count - 1):
            found.append(self.builder.add(found[-1], pitch))
        return found

    def times(self, value: Any, factor: int) -> Any:
        """Multiply an int64 value by a constant."""
        return self.builder.mul(value, ir.Constant(I64, factor))

    def pointer(self, address: Any, kind: Any) -> Any:
        """Take an address for a pointer."""
        return self.builder.inttoptr(address, kind.as_pointer())

    def load(self, kind: Any, address: Any, align: int = 1) -> Any:
        """Load a scalar or a vector."""
        return self.builder.load(self.pointer(address, kind), align=align)

    def store(self, value: Any, address: Any, align: int = 1) -> None:
        """Store a scalar or a vector."""
        self.builder.store(value, self.pointer(address, value.type), align=align)

    def broadcast(self, kind: Any, address: Any, lanes: int) -> Any:
        """Load a scalar into all lanes."""
        return self.splat(self.load(kind, address), lanes)

    def store_part(self, value: Any, address: Any, count: Any) -> None:
        """Store the first ``count`` lanes (int64; none where it is 0 or less)."""
        self.call(
            f"llvm.masked.store.{name_of(value.type)}.p0", _VOID, value,
            self.pointer(address, value.type), self.constant(I32, 1),
            self._first(count, value.type.count),
        )  # fmt: skip

    def load_part(self, kind: Any, address: Any, count: Any) -> Any:
        """Load the first ``count`` lanes; the others are zero, and are not touched."""
        return self.call(
            f"llvm.masked.load.{name_of(kind)}.p0", kind, self.pointer(address, kind),
            self.constant(I32, 1), self._first(count, kind.count), ir.Constant(kind, None),
        )  # fmt: skip

    def _first(self, count: Any, lanes: int) -> Any:
        numbers = ir.Constant(vector(I64, lanes), list(range(lanes)))
        return self.builder.icmp_signed("<", numbers, self.splat(count, lanes))

    def prefetch(self, address: Any, level: int = 1) -> None:
        """Ask for a line in a cache of a level; beyond the end of memory is allowed."""
        self.call(
            "llvm.prefetch.p0", _VOID, self.pointer(address, I8),
            self.constant(I32, 0), self.constant(I32, 4 - level), self.constant(I32, 1),
        )  # fmt: skip

    # --- lanes -----------------------------------------------------------------------

    def splat(self, value: Any, lanes: int) -> Any:
        """Put a scalar into all lanes."""
        blank = ir.Constant(vector(value.type, lanes), ir.Undefined)
        one = self.builder.insert_element(blank, value, ir.Constant(I32, 0))
        return self.shuffle(one, [0] * lanes)

    def shuffle(self, a: Any, lanes: Sequence[int], b: Any = None) -> Any:
        """Give the numbered lanes of ``a``, then ``b``."""
        other = ir.Constant(a.type, ir.Undefined) if b is None else b
        mask = ir.Constant(vector(I32, len(lanes)), list(lanes))
        return self.builder.shuffle_vector(a, other, mask)

    def cast(self, value: Any, element: Any) -> Any:
        """See a vector's bits as lanes of another type."""
        bits = value.type.count * bits_of(value.type.element)
        return self.builder.bitcast(value, vector(element, bits // bits_of(element)))

    def _parts(self, lanes: int, function: Callable[..., Any], *values: Any) -> Any:
        """Apply a function of ``lanes`` 32-bit lanes to wider vectors, part by part."""
        count = values[0].type.count
        if count == lanes:
            return function(*values)
        made = [
            function(*[self.shuffle(v, range(at, at + lanes)) for v in values])
            for at in range(0, count, lanes)
        ]
        while len(made) > 1:
            size = 2 * made[0].type.count
            made = [
                self.shuffle(a, range(size), b)
                for a, b in zip(made[::2], made[1::2], strict=True)
            ]
        return made[0]

    # --- arithmetic ------------------------------------------------------------------

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        """Call an LLVM intrinsic."""
        kind = ir.FunctionType(result, [a.type for a in arguments])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, arguments)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """Give ``a * b + c`` of float vectors."""
        return self.call(f"llvm.fmuladd.{name_of(c.type)}", c.type, a, b, c)

    def bytes_dot(self, sums: Any, unsigned: Any, signed: Any) -> Any:
        """
        Add to each lane the four products of an unsigned and a signed byte; exact.

        All three are vectors of int32.
        """
        if self.has_byte_dot:
            wide = 16 if self.lanes == 16 and sums.type.count % 16 == 0 else 8
            name = f"llvm.x86.avx512.vpdpbusd.{32 * wide}"
            kind = vector(I32, wide)
            return self._parts(
                wide, lambda *v: self.call(name, kind, *v), sums, unsigned, signed
            )
        b, words = self.builder, vector(I16, 2 * sums.type.count)
        u, s = b.bitcast(unsigned, words), b.bitcast(signed, words)
        eight = self.constant(words, 8)
        low = b.and_(u, self.constant(words, 0xFF)), b.ashr(b.shl(s, eight), eight)
        high = b.lshr(u, eight), b.ashr(s, eight)
        return self.word_pairs(self.word_pairs(sums, *low), *high)

    def word_pairs(self, sums: Any, a: Any, b: Any) -> Any:
        """Add to each int32 lane the products of two signed int16 lanes."""
        # LLVM finds this shape: pmaddwd on x86, vpdpwssd with VNNI.
        longs = vector(I32, a.type.count)
        every = self.builder.mul(
            self.builder.sext(a, longs), self.builder.sext(b, longs)
        )
        even, odd = (self.shuffle(every, range(at, a.type.count, 2)) for at in range(2))
        return self.builder.add(sums, self.builder.add(even, odd))

    def byte_pairs(self, unsigned: Any, signed: Any) -> Any:
        """Give int16 lanes of two products each; beyond int16 variants differ."""
        if self.variant != "portable":

            def products(x: Any, y: Any) -> Any:
                args = [self.cast(v, I8) for v in (x, y)]
                made = self.call("llvm.x86.avx2.pmadd.ub.sw", vector(I16, 16), *args)
                return self.cast(made, I32)

            return self.cast(self._parts(8, products, unsigned, signed), I16)
        b, words = self.builder, vector(I16, 2 * unsigned.type.count)
        u, s = b.bitcast(unsigned, words), b.bitcast(signed, words)
        eight = self.constant(words, 8)
        low = b.mul(
            b.and_(u, self.constant(words, 0xFF)), b.ashr(b.shl(s, eight), eight)
        )
        return b.add(low, b.mul(b.lshr(u, eight), b.ashr(s, eight)))

    def widen_pairs(self, sums: Any, pairs: Any) -> Any:
        """Add each two neighbouring int16 lanes to an int32 lane."""
        return self.word_pairs(sums, pairs, self.constant(pairs.type, 1))

    def settled(self, values: list[Any]) -> list[Any]:
        """
        Give vectors of one type as they are, computed before whatever follows.

        LLVM may compute all of one operand first, and keep it in memory for want of
        registers. On x86, and for as many as fit into registers; else nothing.
        """
        if self.variant == "portable" or len(values) > 14 * (self.lanes // 8):
            return values
        kind, count = values[0].type, len(values)
        many = kind if count == 1 else ir.LiteralStructType([kind] * count)
        any_register = "v" if self.lanes == 16 else "x"  # "x" is the first sixteen
        text = ",".join([f"={any_register}"] * count + [str(i) for i in range(count)])
        code = ir.InlineAsm(ir.FunctionType(many, [kind] * count), "", text, True)
        made = self.builder.call(code, values)
        if count == 1:
            return [made]
        return [self.builder.extract_value(made, i) for i in range(count)]

    # --- loops -----------------------------------------------------------------------

    def loop(
        self,
        count: Any,
        carried: Sequence[Any],
        body: Callable[[Any, list[Any]], Sequence[Any]],
    ) -> list[Any]:
        """
        Emit a loop whose values stay in registers.

        ``body(index, carried)`` gives the values for the next turn; those after the last
        are given back. Nothing is done where ``count`` (int64) is 0 or less.
        """
        b, before = self.builder, self.builder.block
        head, inside, after = (b.append_basic_block(n) for n in ("head", "body", "end"))
        b.branch(head)
        b.position_at_end(head)
        index = b.phi(I64)
        index.add_incoming(ir.Constant(I64, 0), before)
        held = []
        for value in carried:
            held.append(b.phi(value.type))
            held[-1].add_incoming(value, before)
        b.cbranch(b.icmp_signed("<", index, count), inside, after)
        b.position_at_end(inside)
        given = body(index, list(held))
        index.add_incoming(b.add(index, ir.Constant(I64, 1)), b.block)
        for phi, value in zip(held, given, strict=True):
            phi.add_incoming(value, b.block)
        b.branch(head)
        b.position_at_end(after)
        return held
