"""
What one input does: it loads and plans, it is refused with a typed error, or it is a finding.

Beside an error of another type, a finding is memory past a limit, and a file touched that
does not lie in the model's folder. Crashes and hangs end the process: whoever started it
sees those.
"""

from __future__ import annotations

import os
import re
import resource
import sys
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path

import attrs
import onnx
from tests.fuzz.inputs import Input
from tests.fuzz.seeds import Seed

from seamline.errors import ContractError, SeamlineError
from seamline.pipeline import Pipeline
from seamline.settings import Settings

__all__ = ["Finding", "Place", "Watch", "judge", "warm_up"]

MEMORY = (
    3 << 29
)  #: bytes of growth in one input that count as a blow-up; folding may take 2**30
_SETTINGS = Settings(allow=["seamline"])
_TOUCHES = frozenset(
    (
        "open", "os.listdir", "os.scandir", "os.remove", "os.rename", "os.mkdir",
        "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.system",
        "os.exec", "os.posix_spawn", "shutil.rmtree", "subprocess.Popen",
        "socket.connect", "socket.bind", "urllib.Request",
    )
)  # fmt: skip


@attrs.frozen
class Finding:
    """
    What must not happen, and did.

    Attributes
    ----------
    key
        The same for findings that have one cause, as far as the last frames tell.
    said
        The traceback, or whatever else there is to read.
    """

    key: str
    said: str


class Watch:
    """
    Notes what is opened while an input is judged; lives as long as the process.

    Interpreters read their own modules late, and Numba its cache: files of the
    installation are let pass, and nothing else outside of the model's folder.
    """

    def __init__(self) -> None:
        root = Path(__file__).resolve().parents[2]
        roots = {sys.prefix, sys.base_prefix, str(root), *filter(None, sys.path)}
        roots.add(os.environ.get("NUMBA_CACHE_DIR", str(root)))
        self._allowed = tuple(map(os.path.realpath, roots))
        self._folder = ""
        self.escapes: list[str] = []
        sys.addaudithook(self._heard)

    def begin(self, folder: str) -> None:
        """Watch; only what lies in the folder may be read."""
        self.escapes = []
        self._folder = os.path.realpath(folder)

    def end(self) -> list[str]:
        """Stop, and give what was touched outside."""
        self._folder = ""
        return self.escapes

    def _heard(self, event: str, args: tuple) -> None:
        if not self._folder or event not in _TOUCHES:
            return
        path = args[0] if args else ""
        if event == "open" and isinstance(path, int):
            return
        if not event.startswith(("socket", "subprocess", "urllib")):
            path = os.path.abspath(os.fsdecode(path or "."))
            inside = path.startswith(self._folder + os.sep)
            writes = event == "open" and args[2] & (os.O_WRONLY | os.O_RDWR)
            if inside and event == "open" and not writes:
                return
            if not inside and path.startswith(self._allowed):
                return
        self.escapes.append(f"{event} {path}")


@attrs.define
class Place:
    """A model's folder below another one, with a secret and ways out of it."""

    root: Path
    _written: dict[str, bytes] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir()
        self.root.joinpath("secret.bin").write_bytes(b"secret__" * 64)
        os.symlink("../secret.bin", self.folder / "link.bin")
        os.symlink("..", self.folder / "out")
        os.mkfifo(self.folder / "pipe")

    @property
    def folder(self) -> Path:
        """Give the model's folder."""
        return self.root / "model"

    def put(self, given: Input) -> str:
        """Write an input's files; give the model's path."""
        for name, data in (*given.files, ("model.onnx", given.model)):
            if self._written.get(name) != data:
                self.folder.joinpath(name).write_bytes(data)
                self._written[name] = data
        return str(self.folder / "model.onnx")


def warm_up(seeds: Iterable[Seed]) -> None:
    """
    Let the libraries read what they read once: modules, the processor's features.

    Workers that are forked afterwards need not, and nothing of it looks like an escape.
    """
    for seed in seeds:
        _opened(seed.model)


def judge(given: Input, place: Place, watch: Watch) -> str | Finding:
    """Load and plan an input; give "planned", the name of the refusal, or a finding."""
    path = place.put(given)
    source: object = given.model
    if given.form == "path":
        source = path
    elif given.form == "proto":
        source = onnx.ModelProto.FromString(given.model)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    watch.begin(str(place.folder))
    try:
        outcome = _opened(source)
    finally:
        escapes = watch.end()
    if escapes:
        where = re.sub(r"[^ ]*/", "", escapes[0])
        return Finding(f"escape {where}", "\n".join(escapes))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if grown > MEMORY and isinstance(outcome, str):
        return Finding("memory", f"{grown} bytes; it was {outcome}")
    return outcome


def _opened(source) -> str | Finding:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pipeline = Pipeline.open(source, providers=["cpu"], settings=_SETTINGS)
            try:
                pipeline.plan()
            finally:
                pipeline.close()
    except ContractError as error:
        # Raised on purpose, yet what it reports is an error of our own provider.
        return _finding(error.__cause__ or error, "provider: ")
    except SeamlineError as error:
        return type(error).__name__
    except BaseException as error:
        return _finding(error)
    return "planned"


def _finding(error: BaseException, prefix: str = "") -> Finding:
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = [f"{Path(one.filename).name}:{one.name}" for one in frames]
    key = f"{prefix}{type(error).__name__} {' > '.join(places)}"
    return Finding(key, "".join(traceback.format_exception(error, limit=-12)))
