"""Commands compiled by several processes: what is put off, what children leave, what fails."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MODULE = """
import sys
import numpy as np
from seamline_cpu.atomics import longs
from seamline_cpu.commands import bind, command, in_list, putting_off
from seamline_cpu.compiling import compile_all
from seamline_cpu.jit_cache import counts

@command
def add(a, share, shares):
    longs(a[0])[0] += a[1]

@command
def double(a, share, shares):
    longs(a[0])[0] *= 2

@command
def wrong(a, share, shares):
    longs(a[0])[0] = no_such_name

value = np.array([20], np.int64)
def bound(what, more=0):
    return bind(what, [value.ctypes.data, more], 1, keep=value)
"""


def run(folder, code):
    """Run code after the module's, in a new process with a cache of its own."""
    path = folder / "commands_here.py"
    path.write_text(MODULE + code)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "kept")}, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def test_what_is_bound_while_compiling_is_put_off_is_no_code_and_says_so(tmp_path):
    said = run(tmp_path, """
with putting_off() as commands:
    one = bound(add, 1)
    many = in_list(one.rows)
assert commands == [add] and counts["compiled"] == 0
for early in (one, many):
    try:
        early()
    except RuntimeError as error:
        assert "put off" in str(error)
        print("raised")
bound(add, 1)()
print(value[0], counts["compiled"] > 0)
""")  # fmt: skip
    assert said == ["raised", "raised", "21", "True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_children_compile_and_the_parent_loads_and_runs(tmp_path):
    said = run(tmp_path, """
compile_all([add, double, add], 2)
print(counts["compiled"], counts["loaded"])
bound(add, 1)()
bound(double)()
print(value[0])
""")  # fmt: skip
    assert said == ["2", "0", "42"]
    assert len(list((tmp_path / "kept").rglob("commands_here.*.nbc"))) == 2


def test_one_process_compiles_alone(tmp_path):
    said = run(tmp_path, "compile_all([add, double], 1)\nprint(counts['compiled'])")
    assert said == ["2"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_command_that_does_not_compile_is_the_parents_error(tmp_path):
    said = run(tmp_path, """
try:
    compile_all([wrong, add], 2)
except Exception as error:
    print("no_such_name" in str(error))
""")  # fmt: skip
    assert said == ["True"]
