"""What a provider says of itself is held strictly."""

import datetime as dt
import textwrap

import pytest

from seamline_testing.known_gaps import KnownGapsError, complaints, gaps_of, read_gaps
from seamline_testing.results import Finding, Outcome, Result
from seamline_testing.subject import Subject

TODAY = dt.date(2026, 6, 1)
GAP = """
[[gap]]
checks = "numerics/node/add*"
reason = "it adds wrongly"
link = "https://example.org/1"
expires = 2026-12-31
"""
LOOSER = """
[[looser]]
checks = "numerics/node/exp*"
tolerance = "sum"
reason = "its exponential is short"
link = "https://example.org/2"
expires = 2026-12-31
"""


@pytest.fixture
def gaps(tmp_path):
    def read(text):
        path = tmp_path / "known_gaps.toml"
        path.write_text(textwrap.dedent(text))
        return read_gaps(path)

    return read


def result(name, outcome, tolerance=""):
    return Result(name, "numerics", Finding(outcome, "", "", tolerance))


def test_a_gap_that_names_failing_checks_holds(gaps):
    read = gaps(GAP)
    ran = [result("numerics/node/add_bcast", Outcome.MISMATCH)]
    assert complaints(read, [r.id for r in ran], ran, TODAY) == ()
    assert read.gap_for("numerics/node/add_bcast").reason == "it adds wrongly"
    assert read.gap_for("numerics/node/sub") is None


def test_an_unexpected_pass_is_held_against_the_entry(gaps):
    ran = [result("numerics/node/add", Outcome.PASS)]
    (said,) = complaints(gaps(GAP), [r.id for r in ran], ran, TODAY)
    assert "numerics/node/add passes; take the entry out" in said


def test_an_entry_whose_date_is_over_is_held_against_it(gaps):
    ran = [result("numerics/node/add", Outcome.MISMATCH)]
    (said,) = complaints(gaps(GAP), [ran[0].id], ran, dt.date(2027, 1, 1))
    assert "expired on 2026-12-31: it adds wrongly" in said
    assert not complaints(gaps(GAP), [ran[0].id], ran, dt.date(2026, 12, 31))


def test_a_pattern_that_names_no_check_is_held_against_it(gaps):
    (said,) = complaints(gaps(GAP), ["numerics/node/sub"], [], TODAY)
    assert "names no check" in said
    assert not complaints(gaps(GAP), None, [], TODAY)  # only some checks were listed


def test_a_looser_tolerance_that_nothing_needs_is_held_against_it(gaps):
    name = "numerics/node/exp"
    idle = [result(name, Outcome.PASS, "float32/function")]
    (said,) = complaints(gaps(LOOSER), [name], idle, TODAY)
    assert "no check needs the looser tolerance" in said
    used = [result(name, Outcome.PASS, "float32/sum (declared: its exponential ...)")]
    assert not complaints(gaps(LOOSER), [name], used, TODAY)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[gap]]\nchecks = 'a'", "missing or unknown: expires, link, reason"),
        ("[[skip]]\nchecks = 'a'", "no such table: skip"),
        (GAP.replace("2026-12-31", "'soon'"), "expires is a date"),
        (GAP.replace("it adds wrongly", " "), "reason is a text"),
        (LOOSER.replace('"sum"', '"any"'), "tolerance is one of bits, exact"),
        ("[[gap]", "known_gaps.toml"),
    ],
)
def test_an_entry_that_says_too_little_is_refused(gaps, text, said):
    with pytest.raises(KnownGapsError, match=said):
        gaps(text)


def test_a_provider_without_the_file_declares_nothing():
    assert gaps_of(Subject("cpu")).gaps == ()


def test_the_file_is_found_beside_a_plugin_that_is_not_installed(tmp_path, monkeypatch):
    folder = tmp_path / "gappy_plugin"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from seamline.hookspecs import hookimpl\n"
        "from seamline.kernels import KernelTable, provider_spec\n"
        "CONTRACT_VERSION = 1\n"
        "@hookimpl\n"
        "def seamline_providers():\n"
        "    return [provider_spec(KernelTable('gappy'))]\n"
    )
    (folder / "known_gaps.toml").write_text(GAP)
    monkeypatch.syspath_prepend(tmp_path)
    found = gaps_of(Subject("gappy", {}, ("gappy_plugin",)))
    assert [entry.reason for entry in found.gaps] == ["it adds wrongly"]


@pytest.mark.parametrize(
    "text",
    [GAP.replace("[[gap]]", "[gap]"), "gap = 'x'", "gap = ['x']", "looser = 1"],
)
def test_an_entry_under_another_heading_is_refused_with_the_heading_it_takes(
    gaps, text
):
    with pytest.raises(
        KnownGapsError, match=r"known_gaps.toml: .*with \[\[(gap|looser)"
    ):
        gaps(text)


def test_a_moment_is_no_date(gaps):
    moment = GAP.replace("2026-12-31", "2026-12-31T00:00:00")
    with pytest.raises(
        KnownGapsError, match=r"'numerics/node/add\*': expires is a date"
    ):
        gaps(moment)


@pytest.mark.parametrize(
    ("link", "right"),
    [
        ("https://example.org/1", True),
        ("docs/faults.md#of-sums", True),
        ("../FAULTS.md", True),
        ("soon", False),
        ("to be done.md", False),
        ("https://", False),
        ("n/a", False),
    ],
)
def test_a_link_is_a_url_or_the_path_of_a_file(gaps, link, right):
    text = GAP.replace("https://example.org/1", link)
    if right:
        assert gaps(text).gaps[0].link == link
    else:
        with pytest.raises(KnownGapsError, match="no URL and no path"):
            gaps(text)


@pytest.mark.parametrize("outcome", [Outcome.DECLINED, Outcome.PASS_NOT_CLAIMED])
def test_an_entry_whose_checks_cannot_fail_any_more_is_held_against_it(gaps, outcome):
    ran = [result("numerics/node/add", outcome), result("numerics/node/sub", outcome)]
    (said,) = complaints(gaps(GAP), [r.id for r in ran], ran, TODAY)
    assert f"numerics/node/add is {outcome} and cannot fail" in said


def test_an_entry_that_still_fails_somewhere_or_was_not_run_is_not_stale(gaps):
    declined = result("numerics/node/add", Outcome.DECLINED)
    for other in (Outcome.MISMATCH, Outcome.NOT_RUN):
        ran = [declined, result("numerics/node/add_bcast", other)]
        assert not complaints(gaps(GAP), [r.id for r in ran], ran, TODAY)
    assert not complaints(gaps(GAP), [declined.id], [], TODAY)


def test_of_a_selection_only_an_entry_of_one_check_can_be_stale(gaps):
    declined = [result("numerics/node/add", Outcome.DECLINED)]
    assert not complaints(gaps(GAP), None, declined, TODAY)
    exact = gaps(GAP.replace("add*", "add"))
    (said,) = complaints(exact, None, declined, TODAY)
    assert "cannot fail; take the entry out" in said
