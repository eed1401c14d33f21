"""
One node over values that each end, or begin, at a page which nobody may touch.

What is read or written one byte past such a value ends the process at that instruction,
whatever lies behind it elsewhere; what is written on the other side is seen in the bytes
that fill the page up. Nodes are therefore judged in forks, and where a fork stood when it
died is in memory that it shares.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import multiprocessing
import os
import resource
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator

import numpy as np

from seamline.answers import view_of
from seamline.claims import ask, collect
from seamline.constants import Constants
from seamline.engine import Kept
from seamline.errors import ContractError, SeamlineError
from seamline.graph import load
from seamline.kernels import KernelProvider
from seamline.provider import Refusal, SegmentSpec
from seamline.tensors import TensorType, nbytes_of, numpy_dtype
from seamline_cpu.kernels import TABLE

__all__ = ["Fenced", "RefusedError", "driven", "each_in_a_fork"]

_FILL = 0xC9  # as a float -1.7e6, as an index far outside, and no kernel's padding
_POISON = 0xA5
_NOTHING = 0  # PROT_NONE
_libc = ctypes.CDLL(None, use_errno=True)
_fork = multiprocessing.get_context("fork")


class RefusedError(Exception):
    """The node was refused, or an error said why not; carries that."""


class Fenced:
    """Bytes between two pages that may not be touched, flush with one of them."""

    def __init__(self, nbytes: int, at_end: bool, align: int = 1) -> None:
        page = mmap.PAGESIZE
        room = max(1, -(-nbytes // page)) * page
        self.memory = mmap.mmap(-1, room + 2 * page)
        raw = np.frombuffer(self.memory, np.uint8)
        start = raw.ctypes.data
        self.inner = raw[page : page + room]
        self.inner[...] = _FILL
        for fence in (start, start + page + room):
            if _libc.mprotect(ctypes.c_void_p(fence), page, _NOTHING):
                raise OSError(ctypes.get_errno(), "mprotect")
        first = (room - nbytes) // align * align if at_end else 0
        self.bytes = self.inner[first : first + nbytes]
        self.rest = (self.inner[:first], self.inner[first + nbytes :])

    def broken(self) -> bool:
        """Tell whether bytes beside the value were written."""
        return any((part != _FILL).any() for part in self.rest)


class _Places:
    """The fenced values of one node."""

    def __init__(self, at_end: bool) -> None:
        self.at_end = at_end
        self.held: dict[str, Fenced] = {}

    def value(self, name: str, kind: TensorType) -> np.ndarray:
        dtype = numpy_dtype(kind.dtype)
        held = self.held[name] = Fenced(nbytes_of(kind), self.at_end)
        held.bytes[...] = _POISON
        return held.bytes.view(dtype).reshape(kind.sizes)

    def values(self, view, feeds, *, inside: bool) -> dict[str, np.ndarray]:
        """Place inputs, and outputs of known sizes if they are to be placed."""
        views: dict[str, np.ndarray] = {}
        for name, kind in zip(view.node.inputs, view.inputs, strict=True):
            if name and name not in views:
                views[name] = self.value(name, kind)
                views[name][...] = feeds[name]
        for name, kind in zip(view.node.outputs, view.outputs, strict=True):
            if name and inside and isinstance(kind, TensorType) and kind.is_sized:
                views[name] = self.value(name, kind)
        return views

    def scratch(self, nbytes: int) -> np.ndarray:
        held = self.held["the workspace"] = Fenced(nbytes, self.at_end, 64)
        return held.bytes

    def broken(self) -> list[str]:
        return [name for name, held in self.held.items() if held.broken()]


def driven(model, feeds: dict[str, np.ndarray], *, at_end: bool) -> list[np.ndarray]:
    """
    Claim, build, bind and run a model's one node over fenced values.

    Parameters
    ----------
    feeds
        A value for each input, initializers among them.
    at_end
        Whether the pages that may not be touched lie right behind the values, or before.

    Raises
    ------
    RefusedError
        It was refused or failed, with a typed error.
    AssertionError
        It wrote outside of its values, to an input, or left by an error without a type.
    """
    try:
        return _driven(model, feeds, at_end)
    except ContractError as error:
        if "raised" in str(error):
            raise AssertionError(str(error)) from error
        raise RefusedError(str(error)) from error
    except SeamlineError as error:
        raise RefusedError(str(error)) from error


def _driven(model, feeds, at_end: bool) -> list[np.ndarray]:
    provider = KernelProvider(TABLE, {"num_threads": 2})
    graph = load(model)
    known = Constants(graph)
    claims = collect(graph, [provider], known)
    (node,) = graph.nodes
    view = view_of(node, claims.types, known.get)
    claim = ask(provider, view)
    if isinstance(claim, ContractError):
        raise claim
    if isinstance(claim, Refusal):
        raise RefusedError(str(claim))
    given, written = (tuple(filter(None, n)) for n in (node.inputs, node.outputs))
    executable = provider.build(SegmentSpec("s", (view,), given, written), Kept({}))
    places = _Places(at_end)
    views = places.values(view, feeds, inside=not claim.sizes_at_run)
    executable.bind(views, {view.name: places.scratch(claim.workspace_nbytes)})
    with np.errstate(all="ignore"):
        found = executable.run() or {}
        if not found:
            executable.run()
    if broken := places.broken():
        raise AssertionError(f"wrote outside of {', '.join(broken)}")
    changed = [n for n, x in feeds.items() if views[n].tobytes() != x.tobytes()]
    if changed:
        raise AssertionError(f"wrote to its input {changed[0]}")
    views.update(found)
    return [views[name].copy() for name in node.outputs if name]


def each_in_a_fork(
    judge: Callable[[int, Callable[[str], None]], str], count: int
) -> Iterator[tuple[int, str]]:
    """
    Judge ``count`` things in a fork, and in another behind one at which a fork died.

    ``judge`` gets an index and a function to say where it is; what it gives, or how the
    fork died, comes back with the index. Where it said "oracle", dying is no one's fault.
    """
    start = 0
    while start < count:
        at = _fork.Array("c", 64, lock=False)
        receive, send = _fork.Pipe(duplex=False)
        with tempfile.TemporaryFile() as traces:
            child = _fork.Process(
                target=_work, args=(judge, start, count, at, send, traces)
            )
            child.start()
            send.close()
            start, told = yield from _heard(receive, start)
            child.join()
            if told:
                return
            traces.seek(0)
            said = traces.read().decode("utf-8", "replace")
        where = at.value.decode()
        yield start, "" if where == "oracle" else _death(child.exitcode, where, said)
        start += 1


def _heard(receive, start: int) -> Iterator[tuple[int, str]]:
    while True:
        try:
            index, said = receive.recv()
        except EOFError:
            return start, False
        if index < 0:
            return start, True
        yield index, said
        start = index + 1


def _work(judge, start: int, count: int, at, send, traces) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(traces.fileno(), 2)
    faulthandler.enable(traces, all_threads=False)
    for index in range(start, count):
        at.value = b""

        def where(stage: str) -> None:
            at.value = stage.encode()

        signal.alarm(60)
        send.send((index, judge(index, where)))
    send.send((-1, ""))
    os._exit(0)  # a fork leaves what its parent registered for the end alone


def _death(code: int, where: str, said: str) -> str:
    name = signal.Signals(-code).name if code < 0 else f"exit {code}"
    frames = [line.strip() for line in said.splitlines() if line.startswith("  File")]
    inner = [f.rsplit("/", 1)[-1] for f in frames[:4]]
    return f"{name} while {where or 'it began'}: {' < '.join(inner)}"
