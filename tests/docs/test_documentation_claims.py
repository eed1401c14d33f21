"""The documentation's rule about performance claims: false ones are planted and refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from scripts.documentation_claims import problems

ROOT = Path(__file__).resolve().parents[2]
LINK = "[record](performance/planning.md)"


@pytest.mark.parametrize(
    "text",
    [
        f"Planning takes 12.5 ms ({LINK}).",
        f"Planning takes 12,500 µs, or 0.0125 s ({LINK}).",
        f"It is 3.2 \u00d7 as fast and takes 40 % of the time: {LINK}.",
        f"It changed by \u22127.5 % ({LINK}).",
        f"It makes 120 tok/s, or 120 tokens a second ({LINK}).",
        f"It takes 1m30s, 1.5 minutes ({LINK}).",
        f"See {LINK}:\n\n- planning takes 12.5 ms;\n- it is 3.2x as fast.",
        f"From {LINK}.\n\n| what | ms |\n|---|---|\n| plan | 12.5 |",
        f"From {LINK}.\n\nwhat | value\n---|---\nplan, ms | 12.5",
        f"A stage takes 8 to 16 ms ({LINK}).",
        "Planning takes 12.5 ms ([record][1]).\n\n[1]: performance/planning.md",
    ],
)
def test_a_number_that_its_record_holds_is_let_pass(project, text):
    assert project(text) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"Planning takes 11.5 ms ({LINK}).", "'11.5 ms' is not in planning.md"),
        (f"Planning takes 2.5 ms ({LINK}).", "'2.5 ms' is not in planning.md"),
        (f"Planning takes 13 ms ({LINK}).", "'13 ms' is not in planning.md"),
        (f"Planning takes\n12.6\nms ({LINK}).", "'12.6 ms' is not in planning.md"),
        (f"{LINK}\n\n| what | ms |\n|---|---|\n| plan | 13 |", "'13 (ms)' is not in"),
        (f"It is 3.3\u00d7 faster ({LINK}).", "'3.3\u00d7' is not in planning.md"),
        (f"It takes -12.5 ms ({LINK}).", "'-12.5 ms' is not in planning.md"),
        (f"It takes 7.5 % ({LINK}).", "'7.5 %' is not in planning.md"),
    ],
)
def test_a_number_that_its_record_lacks_is_refused(project, text, said):
    (problem,) = project(text)
    assert problem.startswith("docs/page.md:")
    assert said in problem


@pytest.mark.parametrize(
    "claim",
    [
        "1000 ms",
        "1,000 µs",
        "40 ms",
        "12.5 %",
        "3.2 s",
        "120 frames/s",
        "50 ms",
        "12.5 s",
    ],
)
def test_a_number_that_the_record_has_of_something_else_is_refused(project, claim):
    (problem,) = project(f"Planning takes {claim} ({LINK}).")
    assert "which it cites: the number there is no " in problem


def test_a_number_in_a_record_that_is_no_markdown_stands_for_any_unit(
    project, tmp_path
):
    (tmp_path / "docs/performance/raw.json").write_text('{"plan": 4.5}')
    assert project("It takes 4.5 ms ([raw](performance/raw.json)).") == []
    assert project("It takes 4.6 ms ([raw](performance/raw.json)).")


def test_what_a_record_shows_between_fences_counts(project, tmp_path):
    (tmp_path / "docs/performance/raw.md").write_text("```\nplan: 4.5 ms\nof 7\n```")
    assert project("It takes 4.5 ms ([raw](performance/raw.md)).") == []
    assert project("It takes 7 ms ([raw](performance/raw.md)).")


def test_a_record_that_is_not_there_is_refused(project):
    assert project("It takes 5 ms ([record](performance/gone.md)).") == [
        "docs/page.md:1: cites gone.md, which is not there"
    ]


@pytest.mark.parametrize(
    "link",
    [
        f"<!-- {LINK} -->",
        f"<!--\n{LINK}\n-->",
        f"`{LINK}`",
        f"``{LINK}``",
        f"!{LINK}",
        f"\\{LINK}",
        "[](performance/planning.md)",
        "\n[1]: performance/planning.md\n",
        "[all](performance/index.md)",
    ],
)
def test_a_link_that_no_reader_can_follow_cites_nothing(project, link):
    (problem,) = project(f"Planning takes 12.5 ms {link}.")
    assert "cites no record" in problem


@pytest.mark.parametrize(
    "page",
    [
        "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "NOTES.markdown",
        "docs/page.markdown", "docs/PAGE.MD", "docs/a/b.md", "docs/performance/index.md",
        "plugins/some_plugin/README.md", "examples/some/deep/README.md", "core/README.md",
        "providers/cpu/README.md", "plugins/some/templates/README.md.template",
    ],
)  # fmt: skip
def test_every_page_of_the_project_is_held_to_it(project, page):
    (problem,) = project("- faster: 5 ms", page)
    assert problem.startswith(f"{page}:1: '5 ms'")


@pytest.mark.parametrize(
    "page",
    ["docs/performance/other.md", "docs/_build/page.md", ".venv/lib/page.md", "a.rst"],
)
def test_records_and_what_tools_wrote_are_not_held_to_it(project, page):
    assert project("Ran 55 ms.", page) == []


@pytest.mark.parametrize(
    "text",
    [
        "```{note}\nIt takes 5 ms.\n```",
        "```{warning} Read this\nIt takes 5 ms.\n```",
        "```{note} It takes 5 ms.\n```",
        ":::{note}\nIt takes 5 ms.\n:::",
        "````{note}\n```sh\nls\n```\n\nIt takes 5 ms.\n````",
        "- item\n\n  ```{tip}\n  It takes 5\n  ms.\n  ```",
    ],
)
def test_the_body_of_a_directive_is_prose(project, text):
    (problem,) = project(text)
    assert "'5 ms' cites no record" in problem
    assert project(text.replace("ms.", f"ms ({LINK}).").replace("5", "12.5")) == []


@pytest.mark.parametrize("kind", ["list-table", "csv-table"])
def test_a_table_that_the_rule_cannot_read_is_refused(project, kind):
    (problem,) = project(f"Text.\n\n```{{{kind}}} Title\na, b\n```")
    assert problem == (
        f"docs/page.md:3: {{{kind}}} is not read for claims; write a table with pipes"
    )


def test_a_record_in_one_paragraph_says_nothing_of_the_next(project):
    (problem,) = project(f"See {LINK}.\n\nPlanning takes 12.5 ms.")
    assert "docs/page.md:3" in problem


def test_a_paragraph_speaks_for_a_list_only_if_it_ends_in_a_colon(project):
    (problem,) = project(f"See {LINK}.\n\n- planning takes 12.5 ms.")
    assert "docs/page.md:3" in problem


def test_an_item_of_a_list_is_not_covered_by_its_neighbour(project):
    (problem,) = project(f"- planning: 12.5 ms, {LINK}\n- running: 12.5 ms")
    assert "docs/page.md:2" in problem


@pytest.mark.parametrize(
    "text",
    [
        "It should take 5 ms (estimate).",
        "It should take 5 to 7 ms on two cores (estimate: two cores).",
        "It should take 5 ms to 7 ms (estimate).",
        "It is to take 5 ms (intent: part 4).",
        "They reach 5 ms (quoted from [their page](https://example.org)).",
        "A worker waits 5 s <!-- setting --> and gives up after 9 s <!-- setting -->.",
        "| op | ms |\n|---|---|\n| a | 5 (estimate) |",
        "| op | ms (estimate) |\n|---|---|\n| a | 5 |",
        "| op | ms |\n|---|---|\n| a (estimate) | 5 |",
        "Deadlines <!-- setting -->:\n\n| op | ms |\n|---|---|\n| a | 5 |",
        "It works. What we expect (estimate):\n\n- 5 ms;\n- 6 ms.",
    ],
)
def test_what_is_marked_as_no_measurement_is_let_pass(project, text):
    assert project(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "It should take 5 ms (estimate). In our run it took 7 ms.",
        "In our run it took 7 ms. It should take 5 ms (estimate).",
        "It took 7 ms, and should take 5 ms (estimate).",
        "It took 7 ms! It is fast (estimate).",
        "A worker waits 5 s <!-- setting -->. Decode takes 7 ms.",
        "It takes 7 ms, and a worker waits 5 s <!-- setting -->.",
        "They reach 5 ms (quoted from [them](https://example.org)), and we 7 ms.",
        "It takes 7 ms `(estimate)`.",
        "| op | ms |\n|---|---|\n| a | 5 (estimate) |\n| b | 7 |",
        "| op | ms (estimate) | µs |\n|---|---|---|\n| a | 5 | 7 |",
        "Some (estimate) of it.\n\n| op | ms |\n|---|---|\n| a | 7 |",
        "What we expect (estimate), and this:\n\n- nothing.\n\nIt took 7 ms.",
        "Expected (estimate):\n\n- 5 ms\n\n| op | ms |\n|---|---|\n| a | 7 |",
        "It should take 5 ms (estimate), so:\n\n- it took 7 ms.",
    ],
)
def test_a_mark_speaks_for_its_own_number_only(project, text):
    (problem,) = project(text)
    assert "'7 " in problem


def test_a_quotation_needs_its_source(project):
    assert project("They reach 5 ms (quoted from their page).")


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
    project(f"Planning takes 11\nms ({LINK}).")
    command = [sys.executable, "-m", "scripts.documentation_claims", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "docs/page.md:1: '11 ms'" in done.stdout


def test_this_project_holds_to_it():
    assert problems(ROOT) == []


def test_the_checks_call_the_script():
    assert "step python -m scripts.documentation_claims" in (
        ROOT / "scripts/check"
    ).read_text("utf-8")
