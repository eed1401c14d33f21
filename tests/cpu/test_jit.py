"""The cache of compiled kernels is an optimisation: nothing about it can fail a run."""

from __future__ import annotations

import functools
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import pytest

import seamline_cpu.jit_cache as jit_cache

ROOT = pathlib.Path(jit_cache.__file__).parent.parent
CORE = ROOT.parent.parent / "core"

KERNEL = """
from seamline_cpu.jit import jit
from helper_module import twice
@jit
def f(x):
    return twice(x) + 1
if __name__ == "__main__":
    print("answer", f(20))
"""
HELPER = """
from seamline_cpu.jit import jit
@jit
def twice(x):
    return x * 2
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "kernel_module.py").write_text(KERNEL)
    (tmp_path / "helper_module.py").write_text(HELPER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(jit_cache, "_warned", set())
    yield tmp_path
    forget()


def forget():
    for name in ("kernel_module", "helper_module"):
        sys.modules.pop(name, None)
    jit_cache._digests.clear()
    importlib.invalidate_caches()


def fresh():
    """Import the kernel as a new process would; give its answer and whether it was cached."""
    forget()
    kernel = importlib.import_module("kernel_module")
    return kernel.f(20), sum(kernel.f.stats.cache_hits.values()) == 1


def start(folder, **more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    path = os.pathsep.join([str(ROOT), str(CORE)])
    return subprocess.Popen(
        [sys.executable, "kernel_module.py"], cwd=folder,
        env={**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **more},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process):
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "answer 41\n"), err
    return err


def test_what_was_compiled_once_is_loaded_the_next_time(folder):
    assert [fresh(), fresh()] == [(41, False), (41, True)]


@pytest.mark.parametrize("told", [False, True])
def test_with_nowhere_to_write_there_is_one_warning_that_names_the_folder(
    folder, monkeypatch, told
):
    (folder / "__pycache__").touch()
    (folder / "file").touch()
    monkeypatch.setenv("HOME", str(folder / "file/home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "file/cache"))
    if told:
        monkeypatch.setattr("numba.core.config.CACHE_DIR", str(folder / "file/cache"))
    with pytest.warns(RuntimeWarning, match="not cached") as seen:
        assert fresh() == (41, False)
    assert len(seen) == 1
    assert str(folder) in str(seen[0].message)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content[:20],
        lambda content: b"not a cache at all" * 40,
        lambda content: content[:900] + bytes([content[900] ^ 255]) + content[901:],
        lambda content: b"",
    ],
    ids=["cut", "overwritten", "one_byte_changed", "empty"],
)
def test_damaged_files_are_compiled_anew_and_replaced(folder, spoil):
    fresh()
    files = list(folder.rglob("*.nb?"))
    assert files
    for path in files:
        path.write_bytes(spoil(path.read_bytes()))
    with pytest.warns(RuntimeWarning, match="damaged") as seen:
        assert fresh() == (41, False)
    assert len(seen) == 1
    assert fresh() == (41, True)


def test_editing_a_function_that_is_called_compiles_its_callers_anew(folder):
    assert fresh() == (41, False)
    (folder / "helper_module.py").write_text(HELPER.replace("x * 2", "x * 3"))
    assert fresh() == (61, False)


def test_a_full_disk_only_costs_the_cache(folder, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert fresh() == (41, False)


@pytest.fixture
def read_only(folder, monkeypatch):
    """Give a function after which nothing can be written in the folder."""
    create, aside = tempfile.TemporaryFile, tempfile.mkstemp

    def refusing(call, place):
        def called(*args, **kwargs):
            if str(place(*args, **kwargs)).startswith(str(folder)):
                raise OSError(30, "Read-only file system")
            return call(*args, **kwargs)

        return called

    def close():
        monkeypatch.setattr(
            tempfile, "TemporaryFile", refusing(create, lambda *a, **k: k.get("dir"))
        )
        monkeypatch.setattr(
            tempfile,
            "mkstemp",
            refusing(aside, lambda *a, **k: a[2] if len(a) > 2 else ""),
        )

    return close


@pytest.mark.parametrize("home", [True, False], ids=["with_a_home", "without"])
def test_what_is_in_a_read_only_folder_is_loaded_all_the_same(
    folder, read_only, monkeypatch, tmp_path_factory, home
):
    fresh()
    read_only()
    elsewhere = tmp_path_factory.mktemp("home") if home else folder / "nowhere"
    monkeypatch.setenv("HOME", str(elsewhere))
    monkeypatch.setenv("XDG_CACHE_HOME", str(elsewhere))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fresh() == (41, True)


def test_what_a_read_only_folder_lacks_is_compiled_with_one_warning_where_there_is_no_home(
    folder, read_only, monkeypatch
):
    fresh()
    read_only()
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(folder / "nowhere"))
    fresh()
    with pytest.warns(RuntimeWarning, match="Read-only") as seen:
        assert (
            sys.modules["kernel_module"].f(2.5) == 6.0
        )  # a signature that is not there
    assert len(seen) == 1


def test_what_a_read_only_folder_lacks_is_kept_in_the_users_own(
    folder, read_only, monkeypatch, tmp_path_factory
):
    read_only()
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    assert [fresh(), fresh()] == [(41, False), (41, True)]
    assert list(home.rglob("*.nbc"))
    assert not list(folder.rglob("*.nbc"))


def test_what_is_compiled_and_what_is_loaded_is_counted(folder):
    counts = jit_cache.counts
    before = dict(counts)
    fresh()
    assert counts["compiled"] == before["compiled"] + 1
    assert counts["loaded"] == before["loaded"]
    fresh()
    assert counts["compiled"] == before["compiled"] + 1
    assert counts["loaded"] == before["loaded"] + 1
    assert str(folder / "__pycache__") in jit_cache.folders()


def test_what_compiled_code_calls_has_no_code_of_its_own_until_python_calls_it(folder):
    assert fresh() == (41, False)
    twice = sys.modules["helper_module"].twice
    assert not twice.overloads
    assert not list(folder.rglob("helper_module.twice-*.nbc"))
    assert twice(21) == 42
    assert len(twice.overloads) == 1
    assert len(list(folder.rglob("helper_module.twice-*.nbc"))) == 1
    assert sys.modules["kernel_module"].f(2.5) == 6.0  # compiled after its callee was


def test_signatures_have_files_of_their_own(folder):
    fresh()
    kernel = sys.modules["kernel_module"]
    assert kernel.f(2.5) == 6.0
    assert len(list(folder.rglob("kernel_module.f-*.nbc"))) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh()
    assert sys.modules["kernel_module"].f(2.5) == 6.0


def test_code_for_another_processor_is_kept_apart(folder):
    generic = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert ended(start(folder, **generic)) == ""
    assert ended(start(folder)) == ""
    assert len(list(folder.rglob("kernel_module.f-*.nbc"))) == 2


def test_processes_that_start_at_once_on_an_empty_cache_all_work(folder):
    for process in [start(folder) for _ in range(3)]:
        assert ended(process) == ""
    assert not list(folder.rglob("*.tmp"))


def test_constants_of_other_modules_are_part_of_the_key():
    def stamp(value):
        space = {"FACTOR": value}
        exec(compile("def f(x):\n    return x * FACTOR", __file__, "exec"), space)
        return jit_cache._stamp(space["f"])

    assert stamp(2) != stamp(3)
    assert stamp(2) == stamp(2)


def test_functions_whose_results_are_kept_are_part_of_the_key():
    def stamp(value):
        space = {"functools": functools}
        text = (
            f"@functools.cache\ndef g():\n    return {value}\ndef f():\n    return g()"
        )
        exec(compile(text, __file__, "exec"), space)
        space["g"].__wrapped__.__module__ = jit_cache.__name__  # as in ours
        return jit_cache._stamp(space["f"])

    assert stamp("1 + 1") == stamp("1 + 1")
    assert stamp("len([])") != stamp("abs(-1)")


FACTORY = """
from seamline_cpu.ir import types
from seamline_cpu.jit import jit, native

def plus(amount):
    def emit(builder, x):
        return builder.add(x, x.type(amount))
    return adder(emit)

def times(amount):
    def emit(builder, x):
        return builder.mul(x, x.type(amount))
    return adder(emit)

def adder(emit):
    def add(context, x):
        def generate(context, builder, signature, args):
            return emit(builder, args[0])
        return types.int64(types.int64), generate

    inner = native(add)
    return jit(lambda x: inner(x))

made = plus(1), plus(2), times(2), times(1)
"""


def test_what_an_intrinsic_closes_over_is_in_the_key_and_found_again(folder):
    (folder / "helper_module.py").write_text(FACTORY)
    for cached in (False, True):
        forget()
        made = importlib.import_module("helper_module")
        assert [function(5) for function in made.made] == [6, 7, 10, 5]
        for function in made.made:
            assert (sum(function.stats.cache_hits.values()) == 1) is cached


CLOSURES = """
import sys
import numpy as np
from seamline_cpu.commands import bind, command
from seamline_cpu.jit import jit

def times(factor):
    @jit
    def inner(x):
        total = 0
        for i in range(x):
            total += i % factor
        return total

    def run(a, share, shares):
        a[1] = inner(a[0])

    return command(run)

for factor in map(int, sys.argv[1:]):
    values = np.array([50, -1], np.int64)
    bind(times(factor), values, 1)()
    print(values[1] == sum(i % factor for i in range(50)), end=" ")
"""


def test_a_closure_from_the_cache_is_not_taken_for_one_compiled_here(tmp_path):
    script = tmp_path / "closures.py"
    script.write_text(CLOSURES)
    for factors in (["7"], ["3", "7"], ["7", "3"]):
        done = subprocess.run(
            [sys.executable, str(script), *factors], text=True, check=True,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(CORE)]),
                 "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        )  # fmt: skip
        assert done.stdout.split() == ["True"] * len(factors)
