"""
A kernel's text, run over a grid of blocks.

A kernel whose threads do nothing together runs one thread after the other. All others run
block by block, see :mod:`tests.cuda.emulation.lockstep`.
"""

from __future__ import annotations

import functools
import itertools
import random
import types

import numpy as np
from tests.cuda.emulation import matrices
from tests.cuda.emulation.definitions import PLAIN
from tests.cuda.emulation.lockstep import Block
from tests.cuda.emulation.names import COLLECTIVE, WARP, Names, Place
from tests.cuda.emulation.pointers import Arrays, Pointer


def run_kernel(kernel, *arguments, blocks=1, threads=32):
    """
    Run a kernel over arrays and numbers; arrays are written in place.

    An array of truth values or 16-bit floats is handed over as it is stored; None is a
    null pointer. Every array is mapped by itself, so one element past its end is an
    illegal access.
    """
    memory = Arrays()
    given = [
        memory.add(np.atleast_1d(a)) if isinstance(a, np.ndarray) else a or 0
        for a in arguments
    ]
    launched(kernel, given, memory, (blocks, 1, 1), (threads, 1, 1))


def launched(kernel, arguments, memory, grid, block):
    """Run a kernel over addresses and numbers, in memory that answers ``stretch``."""
    names = Names(grid, block, kernel.name)
    scope = {**PLAIN, **matrices.functions(names), "cuda": names}
    code, in_step = _code(kernel.text)
    exec(code, scope)
    function = scope[kernel.name]
    given = bound(kernel, arguments, function, memory)
    places = [Place(x, y, z) for z, y, x in itertools.product(*map(range, block[::-1]))]
    # Nothing says which block or thread is first; the draw is the same each time.
    draw = random.Random(kernel.name)
    blocks = list(itertools.product(*map(range, grid[::-1])))
    draw.shuffle(blocks)
    ranks = range(len(places))
    warps = [
        draw.sample(ranks[first : first + WARP], len(ranks[first : first + WARP]))
        for first in draw.sample(ranks[::WARP], len(ranks[::WARP]))
    ]
    with np.errstate(all="ignore"):
        for z, y, x in blocks:
            names.blockIdx = Place(x, y, z)
            if in_step:
                names.shared_memory.clear()
                Block(names, function, given, places, warps).run()
                continue
            for rank in itertools.chain.from_iterable(warps):
                names.rank, names.threadIdx = rank, places[rank]
                function(*given)


def bound(kernel, arguments, function, memory):
    """Give a kernel's arguments as it sees them: typed numbers, and pointers."""
    assert len(arguments) == len(kernel.signature), "an argument for each parameter"
    names = function.__code__.co_varnames
    given = []
    for name, kind, value in zip(names, kernel.signature, arguments, strict=False):
        if kind.endswith("*"):
            where = f"{kernel.name}, argument {name}"
            given.append(Pointer(memory, value, kind[:-1], where))
        else:
            given.append(getattr(np, kind)(value))
    return given


@functools.lru_cache(512)
def _code(text):
    code = compile(text, "<kernel>", "exec")
    return code, bool(_names_in(code) & (COLLECTIVE | matrices.NAMES))


def _names_in(code):
    found = set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found |= _names_in(inner)
    return found
