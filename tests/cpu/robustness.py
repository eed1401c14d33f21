"""
Programs that ask hard things of a process: threads, forks, caches, rest, and its end.

Each is run by a new interpreter, fails by an exception, and prints what it found. Tests hold
them one by one; ``tests.bench.bench_robustness`` runs all and writes them down.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).parents[2]
HEAD = """
import json, os, sys, threading, time, warnings
import numpy as np
from seamline.pipeline import Pipeline
from seamline_cpu.crew import crew
from seamline_cpu.jit_cache import counts
from tests.bench.chains import chain
warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads
SIZE = 600_000
def opened(threads=2):
    return Pipeline.open(chain(12, size=SIZE), providers=[("cpu", {"num_threads": threads})])
def found(**facts):
    print(json.dumps(facts), flush=True)
pipeline = opened()
x = np.linspace(-1, 1, SIZE, dtype=np.float32)
right = [pipeline.run({"x": x})[0] for _ in range(3)][0]
def check(one=pipeline):
    assert one.run({"x": x})[0].tobytes() == right.tobytes()
def both(sessions, times):
    wrong = []
    def work(one):
        for _ in range(times):
            if one.run({"x": x})[0].tobytes() != right.tobytes():
                wrong.append(1)
    threads = [threading.Thread(target=work, args=(one,)) for one in sessions]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return len(wrong)
"""
TWO_SESSIONS = """
wrong = both([opened(), opened()], 15)
assert not wrong
found(runs=30, wrong=wrong, workers=len(crew().workers))
"""
ONE_SESSION = """
one = opened()
wrong = both([one, one], 15)
assert not wrong
found(runs=30, wrong=wrong, workers=len(crew().workers))
"""
FOUR_THREADS = """
one, other = opened(), opened()
wrong = both([one, other, one, other], 15)
assert not wrong
names = [t.name for t in threading.enumerate() if t.name.startswith("seamline-cpu-native")]
assert names == ["seamline-cpu-native-1"], names
found(runs=60, wrong=wrong, workers=len(names))
"""
IDLE = """
for _ in range(5):
    check()
time.sleep(0.1)
before = time.process_time()
time.sleep({seconds})
used = time.process_time() - before
assert used < 0.02, used
assert crew().asleep == 1
check()
found(seconds={seconds}, processor_ms=round(used * 1e3, 2), workers_asleep=1)
"""
FORKED = """
going = True
def load():
    mine = opened()
    while going:
        check(mine)
thread = threading.Thread(target=load)
thread.start()
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        one = opened()
        check(one)
        check(one)
        check(one)
        check(pipeline)
        os._exit(0 if len(crew().workers) == 1 else 3)
    children.append(child)
    time.sleep(0.05)
statuses = [os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children]
going = False
thread.join()
assert statuses == [0] * 4, statuses
check()
found(children=4, right=statuses.count(0))
"""
ENDS = """
for _ in range(2):
    mine = opened()
    threading.Thread(target=lambda: [check(mine) for _ in range(10**6)], daemon=True).start()
time.sleep(0.3)
found(sessions_open=3, threads_running=2)
"""
#: Refuses every new file, as a read-only file system does to anyone, root as well.
REFUSED = """
import tempfile
def refused(*args, **kwargs):
    raise OSError(30, "Read-only file system")
tempfile.mkstemp = tempfile.TemporaryFile = refused
"""
CACHE = """
check()
found(right=True, **counts, warned=len(seen), said=str(seen[0].message)[:60] if seen else "")
"""
WATCHED = """
import warnings
seen = []
warnings.showwarning = lambda message, *rest: seen.append(
    warnings.WarningMessage(message, *rest[:3])
)
"""


def in_a_process(code, deadline=240, before="", **environment):
    """Run a program in a new interpreter; ``before`` goes ahead of what all share."""
    text = textwrap.dedent(before) + HEAD + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=deadline,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, cwd=ROOT, check=False,
    )  # fmt: skip


def ends_well(code, deadline=240, before="", **environment):
    """Run a program that must end with status 0; give what it found."""
    done = in_a_process(code, deadline, before, **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def cut(folder):
    """Cut every file of compiled code to a half; count them."""
    files = [path for path in pathlib.Path(folder).rglob("*.nbc") if path.is_file()]
    for path in files:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return len(files)
