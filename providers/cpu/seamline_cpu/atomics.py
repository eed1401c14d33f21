"""
Words of shared memory, C calls and pointers for compiled commands, as LLVM instructions.

The control block of a crew of workers is 64 bytes apart per word, so that a core that
spins on one word does not slow a core that writes another:

    word 0   ticket: command's number << 32 | shares << 16 | shares taken
    word 8   shares ended
    word 16  function's address;  17: arguments' address
    word 24  1 while a caller uses the crew
    word 32  1 when the workers must end
"""

from __future__ import annotations

import os
import platform
from typing import Any

from seamline_cpu.ir import cgutils, ir, types
from seamline_cpu.jit import jit, native

__all__ = [
    "WORDS",
    "bytes_at",
    "call_at",
    "doubles",
    "fetch_add",
    "floats",
    "ints",
    "launch",
    "longs",
    "run_alone",
    "run_list",
    "serve",
    "shorts",
]

WORDS = 40
_WORD = ir.IntType(64)
_X86 = platform.machine() in ("x86_64", "AMD64")


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _WORD.as_pointer())


@native
def _load(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0]), "acquire", 8)

    return types.int64(types.int64), generate


@native
def _store(context: Any, address: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _pointer(builder, args[0]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@native
def fetch_add(context: Any, address: Any, value: Any) -> Any:
    """Add, and give the value before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(builder, args[0])
        return builder.atomic_rmw("add", pointer, args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@native
def _swap(context: Any, address: Any, expected: Any, value: Any) -> Any:
    """Put ``value`` where ``expected`` stands; give what stood there."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(builder, args[0])
        pair = builder.cmpxchg(pointer, args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 0)

    return types.int64(types.int64, types.int64, types.int64), generate


@native
def _pause(context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if _X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            name = "llvm.x86.sse2.pause"
            builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])
        return context.get_dummy_value()

    return types.void(), generate


@native
def _nap(context: Any) -> Any:
    """Give the core to others for some 50 to 100 us, where the system has ``usleep``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if os.name == "posix":
            word = ir.IntType(32)
            kind = ir.FunctionType(word, [word])
            sleep = cgutils.get_or_insert_function(builder.module, kind, "usleep")
            builder.call(sleep, [ir.Constant(word, 20)])
        return context.get_dummy_value()

    return types.void(), generate


@native
def call_at(
    context: Any, function: Any, arguments: Any, share: Any, shares: Any
) -> Any:
    """Call ``void(arguments, share, shares)`` at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_WORD.as_pointer(), _WORD, _WORD])
        target = builder.inttoptr(args[0], kind.as_pointer())
        builder.call(target, [_pointer(builder, args[1]), args[2], args[3]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), generate


def _pointer_to(element: Any) -> Any:
    """Make the intrinsic that takes an address for a C array of ``element``."""

    @native
    def pointer(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(
                args[0], context.get_value_type(signature.return_type)
            )

        return types.CPointer(element)(types.int64), generate

    return pointer


floats = _pointer_to(types.float32)
doubles = _pointer_to(types.float64)
ints = _pointer_to(types.int32)
longs = _pointer_to(types.int64)
bytes_at = _pointer_to(types.uint8)
shorts = _pointer_to(types.uint16)
ints = _pointer_to(types.int32)


@jit
def _take(control: int, ticket: int) -> int:
    """Claim a share of the command on the ticket; -1 where none is left, or it is over."""
    while True:
        shares = (ticket >> 16) & 0xFFFF
        taken = ticket & 0xFFFF
        if taken >= shares:
            return -1
        found = _swap(control, ticket, ticket + 1)
        if found == ticket:
            return taken
        if (found >> 32) != (ticket >> 32):
            return -1
        ticket = found


@jit
def _help(control: int, ticket: int) -> None:
    while True:
        share = _take(control, ticket)
        if share < 0:
            return
        shares = (ticket >> 16) & 0xFFFF
        call_at(_load(control + 128), _load(control + 136), share, shares)
        fetch_add(control + 64, 1)
        ticket = (ticket & ~0xFFFF) | (share + 1)


@jit
def run_alone(function: int, arguments: int, shares: int) -> None:
    """Run every share of a command in this thread."""
    for share in range(shares):
        call_at(function, arguments, share, shares)


@jit
def _offer(control: int, function: int, arguments: int, shares: int) -> None:
    """Offer a command, for a caller that holds the crew, and return when it is done."""
    _store(control + 128, function)
    _store(control + 136, arguments)
    _store(control + 64, 0)
    number = ((_load(control) >> 32) + 1) & 0x7FFFFFFF
    ticket = (number << 32) | (shares << 16)
    _store(control, ticket)
    _help(control, ticket)
    while _load(control + 64) < shares:
        _pause()


@jit
def launch(control: int, function: int, arguments: int, shares: int) -> None:
    """Offer a command to the workers, work with them, and return when it is done."""
    if _swap(control + 192, 0, 1) != 0:
        run_alone(function, arguments, shares)
        return
    _offer(control, function, arguments, shares)
    _store(control + 192, 0)


@jit
def run_list(control: int, table: int, count: int) -> None:
    """
    Run ``count`` commands in step: rows of function, arguments and shares at ``table``.

    The crew is held from the first to the last, so its workers stay awake in between;
    with ``control`` 0, or where another caller holds the crew, all runs in this thread.
    """
    held = control != 0 and _swap(control + 192, 0, 1) == 0
    for row in range(table, table + 24 * count, 24):
        function, arguments, shares = _load(row), _load(row + 8), _load(row + 16)
        if shares > 1 and held:
            _offer(control, function, arguments, shares)
        else:
            run_alone(function, arguments, shares)
    if held:
        _store(control + 192, 0)


@jit
def serve(control: int, seen: int, spins: int) -> int:
    """
    Help with commands until none came for ``spins`` pauses; -1 when told to end.

    While a caller holds the crew more is to come, and nobody could wake this thread from
    compiled code: it naps, so that a long command of one share leaves its core to others.
    """
    idle = 0
    while idle < spins:
        if _load(control + 256) != 0:
            return -1
        ticket = _load(control)
        if (ticket >> 32) == seen:
            idle += 1
            if idle < spins:
                _pause()
            elif _load(control + 192) != 0:
                _nap()
                idle -= 1
            continue
        seen = ticket >> 32
        _help(control, ticket)
        idle = 0
    return seen
