"""Shares of work on threads: Python's, and compiled commands."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import seamline_cpu
from seamline_cpu import commands, pool
from seamline_cpu.atomics import longs
from seamline_cpu.commands import bind, command
from seamline_cpu.pool import run_shares

ROOT = pathlib.Path(seamline_cpu.__file__).parent.parent
CORE = ROOT.parent.parent / "core"


@command
def count_up(a, share, shares):
    """Add one to each element of this share, ``a[2]`` times."""
    to = longs(a[0])
    for i in range(a[1] * share // shares, a[1] * (share + 1) // shares):
        for _ in range(a[2]):
            to[i] += 1


def counted(size=1000, times=1, shares=2):
    values = np.zeros(size, np.int64)
    return values, bind(
        count_up, [values.ctypes.data, size, times], shares, keep=values
    )


@pytest.mark.parametrize("threads", [1, 2, 3, 17])
def test_every_share_runs_once(threads):
    seen = []
    run_shares(lambda share, shares: seen.append((share, shares)), threads)
    assert sorted(seen) == [(i, threads) for i in range(threads)]


def test_shares_run_at_the_same_time():
    meeting = threading.Barrier(2, timeout=10)
    run_shares(lambda share, shares: meeting.wait(), 2)


def test_the_error_of_the_lowest_share_is_raised_after_all_have_ended():
    ended = []

    def work(share, shares):
        if share in (1, 2):
            raise ValueError(f"share {share}")
        time.sleep(0.01)
        ended.append(share)

    with pytest.raises(ValueError, match="share 1"):
        run_shares(work, 4)
    assert sorted(ended) == [0, 3]
    run_shares(lambda share, shares: ended.append(share), 2)
    assert sorted(ended) == [0, 0, 1, 3]


def test_workers_ignore_floating_point_warnings_and_callers_keep_their_own():
    meeting = threading.Barrier(2, timeout=10)

    def work(share, shares):
        meeting.wait()
        if threading.current_thread() is not threading.main_thread():
            assert np.all(np.isinf(np.ones(2) / np.zeros(2)))

    run_shares(work, 2)
    assert np.geterr()["divide"] == "warn"


def test_a_share_may_share_its_work_again():
    seen = []

    def outer(share, shares):
        run_shares(lambda i, n: seen.append((share, i)), 3)

    run_shares(outer, 3)
    assert sorted(seen) == [(i, j) for i in range(3) for j in range(3)]


def test_many_threads_share_the_workers_at_once():
    def one(results):
        values, run = counted()
        for _ in range(200):
            run()
            run_shares(lambda share, shares: None, 2)
        results.append(set(values))

    results = []
    threads = [threading.Thread(target=one, args=(results,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [{200}] * 4


@pytest.mark.parametrize("shares", [1, 2, 5, 64])
def test_a_command_does_every_share_once(shares):
    values, run = counted(shares=shares)
    for _ in range(50):
        run()
    assert set(values) == {50}


def test_a_command_after_the_workers_fell_asleep_is_done_all_the_same():
    values, run = counted(times=3)
    for _ in range(5):
        run()
        time.sleep(0.01)
    assert set(values) == {15}


def test_closing_ends_the_threads_and_the_next_use_starts_new_ones():
    values, run = counted()
    run()
    run_shares(lambda share, shares: None, 2)
    commands.close()
    pool.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("seamline-cpu")]
    run()
    run_shares(lambda share, shares: None, 2)
    assert set(values) == {2}


def in_a_process(code):
    path = os.pathsep.join([str(ROOT), str(CORE)])
    head = """
        import os, sys, threading, warnings
        import numpy as np
        from seamline_cpu.atomics import longs
        from seamline_cpu.commands import bind, command
        from seamline_cpu.pool import run_shares
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads
        @command
        def count_up(a, share, shares):
            to = longs(a[0])
            for i in range(a[1] * share // shares, a[1] * (share + 1) // shares):
                to[i] += 1
        values = np.zeros(100, np.int64)
        run = bind(count_up, [values.ctypes.data, 100], 2, keep=values)
        total = []
        def both():
            run()
            run_shares(lambda share, shares: total.append(share), 3)
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_a_forked_child_has_workers_of_its_own():
    done = in_a_process("""
        both()
        child = os.fork()
        if child == 0:
            both()
            os._exit(0 if set(values) == {2} and len(total) == 6 else 3)
        status = os.waitpid(child, 0)[1]
        both()
        assert os.waitstatus_to_exitcode(status) == 0, status
        assert set(values) == {2} and len(total) == 6
    """)
    assert done.returncode == 0, done.stderr


def test_a_fork_while_another_thread_runs_commands_leaves_the_child_free():
    done = in_a_process("""
        going = True
        def load():
            while going:
                both()
        thread = threading.Thread(target=load)
        thread.start()
        children = []
        for _ in range(5):
            child = os.fork()
            if child == 0:
                mine = np.zeros(100, np.int64)
                bind(count_up, [mine.ctypes.data, 100], 2, keep=mine)()
                run_shares(lambda share, shares: None, 3)
                os._exit(0 if set(mine) == {1} else 3)
            children.append(child)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children]
        going = False
        thread.join()
        assert statuses == [0] * 5, statuses
    """)
    assert done.returncode == 0, done.stderr


def test_a_process_ends_cleanly_while_workers_are_alive():
    done = in_a_process("""
        for _ in range(20):
            both()
        print("last")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "last\n", "")
