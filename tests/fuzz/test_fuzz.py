"""A short run of the fuzzer, and proof that it sees what it looks for."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest
from tests.fuzz import judging, workers
from tests.fuzz.fields import mutate_bytes
from tests.fuzz.inputs import Input, input_at
from tests.fuzz.judging import Finding
from tests.fuzz.minimising import minimised
from tests.fuzz.mutations import mutate
from tests.fuzz.recording import sections
from tests.fuzz.seeds import written_seeds

ROOT = Path(__file__).resolve().parents[2]
GIVEN = Input("layers", written_seeds()[0].model, "path")


def test_a_few_hundred_broken_models_are_planned_or_refused(tmp_path):
    command = [
        sys.executable, "-m", "tests.fuzz.fuzz", "--written", "--inputs", "200",
        "--seed", "20", "--tally", str(tmp_path / "tally"), "--folder", str(tmp_path),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    tally = json.loads((tmp_path / "tally").read_text())
    assert tally["inputs"] == 200
    assert not tally["findings"]
    # Were nearly all refused at the door, little of loading and planning would be tried.
    assert tally["outcomes"]["planned"] > 40
    assert tally["outcomes"]["ModelError"] > 40


def test_every_written_seed_is_read():
    for seed in written_seeds():
        outcome = judging._opened(seed.proto())
        wanted = {"external": "UnsafeModelError", "others": "UnclaimedNodeError"}
        assert outcome == wanted.get(seed.name, "planned"), seed.name


def test_an_input_depends_on_seed_and_index_alone():
    seeds = written_seeds()
    assert input_at(seeds, 1, 7) == input_at(seeds, 1, 7)
    assert len({input_at(seeds, 1, index).model for index in range(40)}) > 35


def test_mutations_change_models_and_bytes():
    changed = 0
    for index in range(40):
        model = written_seeds()[index % 8].proto()
        before = model.SerializeToString(deterministic=True)
        mutate(model, Random(index))
        changed += model.SerializeToString(deterministic=True) != before
        assert mutate_bytes(before, Random(index)) is not before
    assert changed > 30


@pytest.fixture
def behaving(monkeypatch):
    """Judge in workers whose loader does something else."""

    def judged(does, deadline=0.5):
        monkeypatch.setattr(judging.Pipeline, "open", does)
        return workers.judged_alone(GIVEN, deadline)

    return judged


def test_another_error_than_ours_is_a_finding_with_its_last_frames(behaving):
    def raises(*_, **__):
        raise KeyError("unforeseen")

    found = behaving(raises)
    assert isinstance(found, Finding)
    assert found.key.startswith("KeyError ")
    assert found.key.endswith("test_fuzz.py:raises")
    assert "unforeseen" in found.said


def test_a_crash_is_a_finding(behaving):
    found = behaving(lambda *_, **__: os.kill(os.getpid(), signal.SIGSEGV))
    assert isinstance(found, Finding)
    assert found.key.startswith("crash SIGSEGV")
    assert "test_fuzz.py" in found.said


def test_an_endless_loop_is_a_finding(behaving):
    def turns(*_, **__):
        while True:
            pass

    found = behaving(turns)
    assert isinstance(found, Finding)
    assert found.key.startswith("hang")
    assert "turns" in found.said


def test_sleeping_past_the_clock_is_a_finding(behaving, monkeypatch):
    monkeypatch.setattr(workers, "_ASLEEP", 0.2)
    found = behaving(lambda *_, **__: time.sleep(60))
    assert isinstance(found, Finding)
    assert found.key.startswith("asleep")


def test_memory_past_the_limit_is_a_finding(behaving, monkeypatch):
    monkeypatch.setattr(judging, "MEMORY", 1 << 24)
    monkeypatch.setattr(judging, "_opened", lambda _: str(np.ones(1 << 22).sum()))
    found = behaving(None, deadline=5.0)
    assert isinstance(found, Finding)
    assert found.key == "memory"


def test_an_allocation_past_the_address_space_is_a_finding(behaving):
    found = behaving(lambda *_, **__: np.empty(1 << 36))
    assert isinstance(found, Finding)
    assert "MemoryError" in found.said


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("{folder}/../secret.bin", "open .*secret.bin"),
        ("/etc/hostname", "open .*hostname"),
        ("{folder}/written", "open .*written"),
        ("/", "os.listdir /"),
    ],
)
def test_what_is_touched_outside_or_written_inside_is_a_finding(behaving, way, said):
    def touches(path, **_):
        target = way.format(folder=os.path.dirname(path))
        if os.path.isdir(target):
            os.listdir(target)
        elif target.endswith("written"):
            Path(target).write_bytes(b"")
        else:
            Path(target).read_bytes()

    found = behaving(touches)
    assert isinstance(found, Finding)
    assert found.key.startswith("escape")
    assert re.search(said, found.said)


def test_a_finding_is_made_small():
    model = next(s for s in written_seeds() if s.name == "sizes")
    given = Input("sizes", model.model, "bytes")

    def shows(tried):
        return b"ConstantOfShape" in tried.model

    small = minimised(given, shows, 20.0)
    assert shows(small)
    assert len(small.model) < 40
    broken = Input("bytes", b"\xff" * 300 + b"ConstantOfShape" + b"\xff" * 99, "bytes")
    assert minimised(broken, shows, 20.0).model == b"ConstantOfShape"


def test_a_record_adds_up_what_runs_noted():
    lines = [
        '{"seed": 1, "outcomes": {"planned": 2, "finding": 1}, "findings": {"K": [7]}}',
        '{"seed": 1, "outcomes": {"planned": 3}, "findings": {}}',
        '{"seed": 2, "outcomes": {"ModelError": 4}, "findings": {}}',
    ]
    _, inputs, _, findings = sections(lines)
    assert "| 1 | 6 | 0 | 1 | 5 |" in inputs
    assert "| all | 10 | 4 | 1 | 5 |" in inputs
    assert "| `K` | 1 | 1 |" in findings
    assert sections(lines[1:])[-1] == "None."
