"""
Numba's compiled code on disk, as an optimisation that cannot fail.

Numba's own cache raises where no folder can be written, where a file was cut short, and
mixes up signatures when two processes fill it at once, because it numbers its data files
through an index. It also keys a function by its own source file alone. Here a file is
named by the hash of all that the code depends on: signature, CPU and its features,
byte code, Numba's and NumPy's versions, and the sources and constants of everything that
the function calls, or that emits code for it. A file starts with the digest of its content, is written aside and
moved into place, and whatever is wrong with it means that the function is compiled anew.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numba
import numpy as np

from seamline.kept_files import keep, kept
from seamline_cpu.ir import caching, config

__all__ = ["SafeCache", "attach", "counts", "folders", "named"]

F = TypeVar("F", bound=Callable[..., Any])

_SUFFIX = ".nbc"
_OURS = __name__.partition(".")[0]
_SCALARS = (bool, int, float, str, tuple, np.generic, np.dtype)
_warned: set[str] = set()
_folders: set[str] = set()
#: Functions that this process compiled, and that it found compiled.
counts: dict[str, int] = {"compiled": 0, "loaded": 0}


def folders() -> str:
    """Give the folders that compiled code is kept in; empty where there is none."""
    return ", ".join(sorted(_folders))


def attach(dispatcher: Any, function: Callable[..., Any]) -> None:
    """Give a Numba dispatcher its place on disk, or none with one warning."""
    if function.__code__.co_filename.startswith("<"):
        return  # typed in or made by exec: there is no file to keep it beside
    try:
        dispatcher._cache = SafeCache(function)
    except (RuntimeError, OSError, AttributeError) as error:
        # "No locator": neither beside the source nor in the user's own folder.
        _warn_once(os.path.dirname(function.__code__.co_filename), error)


def named(function: F) -> F:
    """
    Name a function that closes over something by what that is, and give it.

    Numba names compiled code by the function and a number that counts in each process.
    Two closures of one factory, one compiled here and one loaded from disk, may then have
    one name, and LLVM would link calls of the second to the first.
    """
    if function.__closure__:
        function.__qualname__ = f"{function.__qualname__}_{_stamp(function)[:16]}"
    return function


class _ReadOnly(caching.InTreeCacheLocator):  # type: ignore[misc]
    """Beside the source, where nothing can be written, if compiled code is there."""

    def ensure_cache_path(self) -> None:
        if not any(
            name.endswith(_SUFFIX) for name in os.listdir(self.get_cache_path())
        ):
            raise OSError("nothing is kept there")


class _Places(caching.CompileResultCacheImpl):  # type: ignore[misc]
    """Where Numba looks for a place to keep code; last, one that is only read."""

    _locator_classes = (*caching.CompileResultCacheImpl._locator_classes, _ReadOnly)


class SafeCache(caching.FunctionCache):  # type: ignore[misc]
    """
    One function's compiled code on disk: one file for each key, no index.

    Read wherever it may have been kept, so that an installation that was filled and made
    read-only serves its users; written to the first place that can be.
    """

    _impl_class = _Places

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        _folders.add(self._cache_path)
        # A folder that was asked for stands for the one beside the source.
        named = bool(config.CACHE_DIR)
        usual = (
            caching.UserProvidedCacheLocator if named else caching.InTreeCacheLocator
        )
        read_too = usual(function, inspect.getfile(function)).get_cache_path()
        self._cache_file = _Files(
            tuple(dict.fromkeys([self._cache_path, read_too])),
            self._impl.filename_base,
            _stamp(function),
        )

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """
        Leave closures to the stamp.

        Numba pickles what a function closes over; an intrinsic pickles to something else
        in each process, so that nothing would be found again.
        """
        cells = self._py_func.__closure__ or ()
        if not all(_is_told(cell.cell_contents) for cell in cells):
            return super()._index_key(sig, codegen)
        code = hashlib.sha256(self._py_func.__code__.co_code).hexdigest()
        return sig, codegen.magic_tuple(), code

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Give the compiled code for a signature, or None to have it compiled."""
        try:
            found = super().load_overload(sig, target_context)
        except Exception as error:
            _warn_once(self._cache_path, error)
            return None
        counts["loaded"] += found is not None
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code; a failure is told once and otherwise has no effect."""
        counts["compiled"] += 1
        try:
            # Annotated source, for people: making it takes as long as an optimisation.
            super().save_overload(sig, data._replace(type_annotation=""))
        except Exception as error:
            _warn_once(self._cache_path, error)


class _Files:
    """Stands for Numba's ``IndexDataCacheFile``."""

    def __init__(self, places: Sequence[str], base: str, stamp: str) -> None:
        self._places, self._base, self._stamp = places, base, stamp

    def _name(self, key: Any) -> str:
        text = repr((key, self._stamp)).encode()
        name = hashlib.blake2b(text, digest_size=12).hexdigest()
        return f"{self._base}.{name}{_SUFFIX}"

    def load(self, key: Any) -> Any:
        name, wrong = self._name(key), None
        for folder in self._places:
            try:
                content = kept(Path(folder, name))
                if content is not None:
                    return pickle.loads(content)
            except Exception as error:
                wrong = error
        if wrong is not None:
            raise wrong
        return None

    def save(self, key: Any, data: Any) -> None:
        keep(Path(self._places[0], self._name(key)), caching.dumps(data))

    def flush(self) -> None:
        """Forget nothing: files of other keys stay valid."""


def _stamp(function: Callable[..., Any]) -> str:
    """Hash the sources and constants that a function's compiled code depends on."""
    told = hashlib.blake2b(digest_size=16)
    for text in (numba.__version__, np.__version__, *sorted(_facts(function, set()))):
        told.update(text.encode())
    return told.hexdigest()


def _facts(function: Callable[..., Any], seen: set[int]) -> Iterator[str]:
    if id(function) in seen:
        return
    seen.add(id(function))
    path = function.__code__.co_filename
    code = function.__code__
    yield f"{os.path.basename(path)} {_source_digest(path)}"
    # Closures of one file differ by where they stand.
    yield f"{code.co_firstlineno} {function.__qualname__} {code.co_code.hex()}"
    closed = [cell.cell_contents for cell in function.__closure__ or ()]
    named = [function.__globals__.get(name) for name in _names(function.__code__)]
    for name, value in zip((*function.__code__.co_freevars, *_names(function.__code__)),
                           (*closed, *named), strict=True):  # fmt: skip
        if isinstance(value, _SCALARS):
            yield f"{name}={value!r}"
        inner = _written(value)
        ours = str(getattr(inner, "__module__", "")).startswith(_OURS)
        closed_over = name in function.__code__.co_freevars
        if isinstance(inner, FunctionType) and (
            ours or closed_over or inner is not value
        ):
            yield from _facts(inner, seen)
        elif (
            isinstance(inner, type) and ours
        ):  # emits code, such as a builder of vectors
            yield f"{name} {_source_digest(inspect.getfile(inner))}"


def _written(value: Any) -> Any:
    """Give the function that was written, of one compiled, emitted or memoized."""
    if isinstance(value, FunctionType):
        return value
    made = getattr(value, "py_func", None) or getattr(value, "_defn", None)
    return made or getattr(value, "__wrapped__", value)  # what functools.cache gives


def _is_told(value: Any) -> bool:
    """Tell whether the facts about a function cover a value that it closes over."""
    if isinstance(value, type):
        return value.__module__.startswith(_OURS)
    inner = _written(value)
    if isinstance(inner, FunctionType):
        return all(_is_told(c.cell_contents) for c in inner.__closure__ or ())
    return isinstance(value, _SCALARS)


def _names(code: Any) -> tuple[str, ...]:
    """Give the names that a function's code reads, those of inner functions included."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            names += _names(constant)
    return tuple(dict.fromkeys(names))


_digests: dict[str, str] = {}


def _source_digest(path: str) -> str:
    if path not in _digests:
        try:
            with open(path, "rb") as file:
                _digests[path] = hashlib.blake2b(
                    file.read(), digest_size=16
                ).hexdigest()
        except OSError:  # inside a zip: the package's version stands for it
            _digests[path] = ""
    return _digests[path]


def _warn_once(folder: str, error: Exception) -> None:
    if folder in _warned:
        return
    _warned.add(folder)
    warnings.warn(
        f"compiled kernels are not cached in {folder!r} ({type(error).__name__}: {error}); "
        "they are compiled again in each process. To fix: make the folder writable, "
        "remove damaged files from it, or set NUMBA_CACHE_DIR to another one.",
        RuntimeWarning,
        stacklevel=4,
    )
