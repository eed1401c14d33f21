"""
What is said of a comparison, and the files that reproduce it.

The files are a model of the node and its inputs beside it; each is written whole or not
at all.
"""

from __future__ import annotations

import os
import re
import shlex
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import onnx

from seamline.provider import Array
from seamline_testing.compare import Comparison, Divergence
from seamline_testing.excerpts import Excerpt
from seamline_testing.sides import Closeness, CompareError, Side

__all__ = ["Told", "read_npz", "reproducing", "verdict", "write_excerpt"]


@attrs.frozen(eq=False)
class Told:
    """
    A comparison with everything that is said of it.

    Attributes
    ----------
    judged
        Which list is right, and who says so.
    shrunk
        What the node's inputs became.
    files
        The model that reproduces it and its inputs.
    line
        The command that reproduces it.
    """

    model: str
    sides: tuple[Side, Side]
    closeness: Closeness
    found: Comparison
    judged: str = ""
    shrunk: str = ""
    files: tuple[str, ...] = ()
    line: str = ""

    def data(self) -> dict[str, Any]:
        """Give it as values that JSON knows."""
        found, divergence = self.found, self.found.divergence
        return {
            "model": self.model,
            "sides": [side.text for side in self.sides],
            "tolerance": str(self.closeness),
            "nodes": len(found.graph.nodes),
            "nodes_observed": found.nodes,
            "values_observed": found.values,
            "diverges": found.diverges,
            "outputs": dict(found.outputs),
            "failed": found.failed,
            "drifting": list(found.drifting),
            "not_compared": list(found.not_compared),
            "divergence": None if divergence is None else self._divergence(divergence),
        }

    def _divergence(self, found: Divergence) -> dict[str, Any]:
        return {
            "node": found.path,
            "op": found.node.qualified_op,
            "index": found.index,
            "output": found.output,
            "said": found.said,
            "by": list(found.by),
            "in_place": found.in_place,
            "inside": found.inside,
            "nodes": list(_names(found.excerpt)),
            "inputs": "" if found.excerpt is None else str(found.excerpt),
            "shrunk": self.shrunk,
            "judged": self.judged,
            "unreduced": found.unreduced,
            "files": list(self.files),
            "reproduce": self.line,
        }

    def lines(self) -> Iterator[str]:
        """Give it as text."""
        found = self.found
        one, other = (side.text for side in self.sides)
        yield (
            f"{self.model}: {other} against {one}, tolerance {self.closeness}: "
            f"{found.values} values of {found.nodes} nodes observed, of "
            f"{len(found.graph.nodes)} nodes"
        )
        for name, said in found.outputs.items():
            yield f"output {name!r}: {said}"
        if found.failed:
            yield f"it cannot be run: {found.failed}"
        if found.not_compared:
            yield f"not compared, as they draw random numbers: {', '.join(found.not_compared)}"
        if found.drifting:
            yield (
                f"{len(found.drifting)} nodes pass on a difference and agree on equal "
                f"inputs, {found.drifting[0]!r} first"
            )
        if found.divergence is not None:
            yield from self._told(found.divergence)
        elif found.outputs and found.drifting:
            yield "no node diverges alone: the difference grows from rounding"
        elif found.outputs or found.failed:
            yield (
                "no node diverges while every value is observed: what is fused, or kept "
                "where, is at fault; seamline explain shows both plans"
            )
        else:
            yield "no difference"

    def _told(self, found: Divergence) -> Iterator[str]:
        yield (
            f"first diverging node: {found.path!r} ({found.node.qualified_op}), "
            f"number {found.index} in order"
        )
        if not found.output:
            yield f"  it cannot be run: {found.said}"
            return
        yield f"  output {found.output!r}: {found.said}"
        yield f"  run by {found.by[0]} and {found.by[1]}"
        if found.inside:
            yield f"  {found.inside}"
        if found.in_place:
            yield f"  {found.in_place} gives another value inside the model than alone"
        if self.judged:
            yield f"  {self.judged}"
        if found.unreduced:
            yield f"  not reduced: {found.unreduced}"
        if found.excerpt is not None and len(found.excerpt.nodes) > 1:
            yield f"  it takes {len(found.excerpt.nodes)} nodes: {', '.join(_names(found.excerpt))}"
        if found.excerpt is not None:
            yield f"  inputs: {found.excerpt}"
            yield f"  shrunk: {self.shrunk}"
        for file in self.files:
            yield f"wrote {file}"
        if self.line:
            yield f"reproduce: {self.line}"


def _names(excerpt: Excerpt | None) -> list[str]:
    return [] if excerpt is None else [node.name for node in excerpt.nodes]


def verdict(excerpt: Excerpt, sides: tuple[Side, Side], closeness: Closeness) -> str:
    """Ask the kit's oracles which of the two is right; nothing where they cannot say."""
    from seamline_testing.oracles import judge

    model, feeds = excerpt.model(), excerpt.feeds
    asked = judge(onnx.shape_inference.infer_shapes(model), feeds)
    if asked.why_not:
        return f"nobody judges it: {asked.why_not}"
    wrong = []
    for side in sides:
        for ours, right in zip(side.run(model, feeds), asked.wanted, strict=True):
            said = closeness.difference(right, ours, excerpt.operators)
            if said:
                wrong.append(f"{side.text} is wrong by {asked.judge}: {said}")
                break
    return "; ".join(wrong) or f"each is within the tolerance of {asked.judge}"


# --- files ----------------------------------------------------------------------------


def write_excerpt(excerpt: Excerpt, stem: str, into: Path) -> tuple[Path, Path]:
    """
    Write an excerpt's model, and its inputs as ``.npz`` beside it.

    Raises
    ------
    CompareError
        A file cannot be written.
    """
    stem = re.sub(r"[^\w.-]+", "_", stem).strip("._") or "excerpt"
    model, inputs = into / f"{stem}.onnx", into / f"{stem}.npz"
    proto, feeds = excerpt.model(), excerpt.feeds
    feeds = {name: _plain(array) for name, array in feeds.items()}
    _write(model, lambda path: path.write_bytes(proto.SerializeToString()))
    _write(inputs, lambda path: _save(path, feeds))
    return model, inputs


def _save(path: Path, feeds: dict[str, Array]) -> None:
    # Not by savez: it takes the names as keywords, and "file" is one of its own.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in feeds.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as target:
                np.lib.format.write_array(target, array, allow_pickle=False)


def _plain(array: Array) -> Array:
    """Give text as NumPy's own, which needs no pickle."""
    return array.astype(np.str_) if array.dtype.kind == "O" else array


def _write(path: Path, write: Callable[[Path], object]) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(beside)
        beside.replace(path)
    except (OSError, ValueError) as error:
        raise CompareError(f"{path}: {error}") from error
    finally:
        beside.unlink(missing_ok=True)


def read_npz(path: Path, dtypes: dict[str, np.dtype[Any]]) -> dict[str, Array]:
    """
    Read inputs by name.

    Parameters
    ----------
    dtypes
        What the model declares: NumPy stores types that are not its own, such as
        bfloat16, as mere bytes.

    Raises
    ------
    CompareError
        It is no such file.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            found = {name: stored[name] for name in stored.files}
    except (OSError, ValueError) as error:
        raise CompareError(f"--inputs {path}: {error}") from error
    for name, array in found.items():
        wanted = dtypes.get(name)
        if array.dtype.kind == "V" and wanted and wanted.itemsize == array.itemsize:
            found[name] = array.view(wanted)
    return found


def reproducing(
    model: Path | str,
    inputs: Path | str,
    sides: tuple[Side, Side],
    closeness: Closeness,
) -> str:
    """Give the command that compares again."""
    words = ["seamline", "compare", str(model), *(side.text for side in sides)]
    words += ["--inputs", str(inputs)]
    if str(closeness) != str(Closeness()):
        words += ["--tolerance", str(closeness)]
    for plugin in sides[0].plugins:
        words += ["--plugin", plugin]
    return shlex.join(words)
