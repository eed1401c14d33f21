"""The documentation's rule about performance claims: false ones are planted and refused."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "documentation_claims.py"


def _script():
    spec = importlib.util.spec_from_file_location("documentation_claims", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


claims = _script()
RECORD = "# Planning\n\n| nodes | ms |\n|---|---|\n| 1,000 | 12.50 |\n\nRatio 3.2, share 40.\n"
LINK = "[record](performance/planning.md)"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "docs" / "performance").mkdir(parents=True)
    (tmp_path / "docs" / "performance" / "planning.md").write_text(RECORD, "utf-8")

    def write(text, page="docs/page.md"):
        (tmp_path / page).write_text(text, "utf-8")
        return claims.problems(tmp_path)

    return write


@pytest.mark.parametrize(
    "text",
    [
        f"Planning takes 12.5 ms ({LINK}).",
        f"It is 3.2 \u00d7 as fast and takes 40 % of the time: {LINK}.",
        f"See {LINK}:\n\n- planning takes 12.5 ms;\n- it is 3.2x as fast.",
        f"From {LINK}.\n\n| what | ms |\n|---|---|\n| plan | 12.5 |",
        f"A thousand nodes are 1000 µs, or 1,000 µs, in {LINK}.",
    ],
)
def test_a_number_that_its_record_holds_is_let_pass(project, text):
    assert project(text) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"Planning takes 11.5 ms ({LINK}).", "'11.5 ms' is not in planning.md"),
        (f"Planning takes 2.5 ms ({LINK}).", "'2.5 ms' is not in planning.md"),
        (f"{LINK}\n\n| what | ms |\n|---|---|\n| plan | 13 |", "'13 (ms)' is not in"),
        (f"It is 3.3\u00d7 faster ({LINK}).", "'3.3\u00d7' is not in planning.md"),
    ],
)
def test_a_number_that_its_record_lacks_is_refused(project, text, said):
    (problem,) = project(text)
    assert problem.startswith("docs/page.md:")
    assert said in problem


def test_a_record_that_is_not_there_is_refused(project):
    assert project("It takes 5 ms ([record](performance/gone.md)).") == [
        "docs/page.md:1: cites gone.md, which is not there"
    ]


@pytest.mark.parametrize(
    "claim",
    [
        "12.5 ms", "0.04 µs", "5 s", "5 seconds", "3 minutes", "2 h", "40 %", "40%",
        "40 percent", "3.2\u00d7", "3.2 \u00d7", "3.2x", "3 times faster", "3 times as fast",
        "120 tokens/s", "120 tokens per second", "3.2 GB/s", "790 TFLOPS", "1,000 ms",
    ],
)  # fmt: skip
def test_a_claim_without_a_record_is_refused(project, claim):
    (problem,) = project(f"# Title\n\nIt runs, and\nthis is {claim}, we say.")
    assert problem.startswith(f"docs/page.md:4: '{claim}")
    assert "cites no record" in problem


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_pages_at_the_root_are_held_to_it(project, page):
    (problem,) = project("- faster: 5 ms", page)
    assert problem.startswith(f"{page}:1: '5 ms'")


def test_an_index_of_records_is_no_record(project):
    assert project("It takes 5 ms.", "docs/performance/index.md")
    assert project("It takes 5 ms ([all](performance/index.md)).")


def test_a_record_in_one_paragraph_says_nothing_of_the_next(project):
    (problem,) = project(f"See {LINK}.\n\nPlanning takes 12.5 ms.")
    assert "docs/page.md:3" in problem


def test_an_item_of_a_list_is_not_covered_by_its_neighbour(project):
    (problem,) = project(f"- planning: 12.5 ms, {LINK}\n- running: 12.5 ms")
    assert "docs/page.md:2" in problem


@pytest.mark.parametrize(
    "text",
    [
        "It should take 5 ms (estimate).",
        "It is to take 5 ms (intent: part 4).",
        "They reach 5 ms (quoted from [their page](https://example.org)).",
        "A worker waits 5 s <!-- setting --> and gives up.",
    ],
)
def test_what_is_marked_as_no_measurement_is_let_pass(project, text):
    assert project(text) == []


def test_a_quotation_needs_its_source(project):
    assert project("They reach 5 ms (quoted from their page).")


@pytest.mark.parametrize(
    "text",
    [
        "```sh\nsleep 5 s  # 40 % of it\n```",
        "   ~~~~text\n5 ms\n~~~\n6 ms\n~~~~",
        "The command `timeout 5 s` is code, and so is ``a ` 5 s``.",
        "Files of 2 GiB, opset 21, version 1.0.3, Python 3.11, 4-bit, 170 operators.",
        "A 3x3 kernel, 3 \u00d7 3, 2x2 windows, int64 s, `x`, issue #5 s.",
        "In the 1990s. [a link](https://example.org/5%20s).",
    ],
)
def test_what_says_nothing_about_speed_is_no_claim(project, text):
    assert project(text) == []


def test_records_are_not_held_to_it_themselves(project):
    assert project("Ran 55 ms.", "docs/performance/other.md") == []


def test_a_superseded_record_names_one_that_is_there(project):
    old = "docs/performance/old.md"
    assert project("Superseded by [the new one](planning.md).", old) == []
    assert project("Superseded by the new one.", old) == [
        f"{old}: it says 'Superseded by' without a link to its successor"
    ]
    assert project("Superseded by [it](gone.md).", old) == [
        f"{old}: superseded by gone.md, which is not there"
    ]
    assert project("Superseded by [it](old.md).", old) == [
        f"{old}: superseded by itself"
    ]


def test_the_script_fails_on_a_false_claim_and_says_where(project, tmp_path):
    project(f"Planning takes 11 ms ({LINK}).")
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "docs/page.md:1: '11 ms'" in done.stdout


def test_this_project_holds_to_it():
    assert claims.problems(ROOT) == []


def test_the_checks_call_the_script():
    assert "scripts/documentation_claims.py" in (ROOT / "scripts/check").read_text()
