"""The kit from outside: ``seamline conform`` and ``pytest --pyargs seamline_testing``."""

import json
import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from seamline.errors import SeamlineError
from seamline_testing.commands import seamline_commands
from seamline_testing.report import load_report
from seamline_testing.workers import KitError

LIARS = "tests.testing.liars"
CHECK = "contract/fully-written"


def conform(*args):
    app = typer.Typer(add_completion=False)
    seamline_commands(app)
    return CliRunner().invoke(app, ["conform", *args])


# --- the command ----------------------------------------------------------------------


def test_a_right_provider_ends_with_status_0_and_a_report(tmp_path):
    path = tmp_path / "report.json"
    done = conform("cpu:num_threads=1", "--only", CHECK, "--report", str(path))
    assert done.exit_code == 0, done.output
    assert "score 100.0%: 1 of 1 pass" in done.output
    made = load_report(path)
    assert (made.provider, made.options) == ("cpu", {"num_threads": "1"})
    assert [result.id for result in made.results] == [CHECK]


def test_a_wrong_provider_ends_with_status_1_and_the_reason():
    done = conform("zeros", "--plugin", f"{LIARS}.zeros", "--only", CHECK)
    assert done.exit_code == 1
    assert f"MISMATCH {CHECK}: " in done.output


def test_the_report_is_printed_as_json_or_markdown():
    done = conform("cpu", "--only", CHECK, "--json")
    assert json.loads(done.stdout)["counts"]["PASS"] == 1
    done = conform("cpu", "--only", CHECK, "--markdown")
    assert done.stdout.startswith("# Conformance of `cpu`\n")


def test_two_reports_are_compared_and_a_worse_one_ends_with_status_1(tmp_path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    conform("cpu", "--only", CHECK, "--report", str(good))
    plugin = ("--plugin", f"{LIARS}.zeros")
    conform("zeros", *plugin, "--only", CHECK, "--report", str(bad))
    done = conform("--diff", str(good), str(bad))
    assert done.exit_code == 1
    assert f"worse    {CHECK}: PASS -> MISMATCH" in done.output
    assert conform("--diff", str(bad), str(good)).exit_code == 0
    assert "no difference" in conform("--diff", str(good), str(good)).output


def test_a_report_in_which_a_pass_has_gone_is_worse(tmp_path):
    both, one = tmp_path / "both.json", tmp_path / "one.json"
    conform("cpu", "--only", "contract/p", "--report", str(both))
    conform("cpu", "--only", "contract/plugin", "--report", str(one))
    done = conform("--diff", str(both), str(one))
    assert "gone     contract/probe: was PASS" in done.output
    assert done.exit_code == 1
    assert conform("--diff", str(one), str(both)).exit_code == 0


def test_a_selection_that_names_no_check_is_an_error():
    done = conform("cpu", "--only", "no/such/check")
    assert isinstance(done.exception, KitError)
    assert "no check has 'no/such/check' in its id" in str(done.exception)


def test_a_missing_device_provider_or_name_is_an_error_that_says_so():
    done = conform("cpu", "--only", CHECK, "--require-device", "cuda")
    assert isinstance(done.exception, KitError)
    assert "'cuda' is required; it works on 'cpu:0'" in str(done.exception)
    done = conform("nobodys", "--only", CHECK)
    assert isinstance(done.exception, SeamlineError)
    assert "no plugin offers it" in str(done.exception)
    assert "name a provider" in str(conform().exception)


# --- under pytest ---------------------------------------------------------------------


@pytest.fixture
def run_pytest(tmp_path):
    def run(*args):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rA", "--pyargs",
             "seamline_testing.test_conformance", "-p", "no:cacheprovider", *args],
            env=env, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=120,
        )  # fmt: skip

    return run


def test_each_check_is_a_test_and_the_report_is_written(run_pytest, tmp_path):
    path = tmp_path / "report.json"
    done = run_pytest("--provider", "cpu", "--checks", CHECK, "--report", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"test_conformance[{CHECK}]" in done.stdout
    assert "1 of 1 checks pass; only a pass counts" in done.stdout
    assert load_report(path).score == 1


def test_skips_alone_are_a_failure(run_pytest):
    plugin = ("--provider-plugin", f"{LIARS}.claims_nothing")
    done = run_pytest("--provider", "claims_nothing", *plugin, "--checks", CHECK)
    assert "1 skipped" in done.stdout
    assert done.returncode == 1
    assert "a provider that runs nothing does not conform" in done.stdout


def test_a_selection_that_names_no_check_fails_the_run(run_pytest):
    done = run_pytest("--provider", "cpu", "--checks", "no/such/check")
    assert done.returncode not in (0, 5)
    assert "no check has 'no/such/check' in its id" in done.stdout + done.stderr


def test_a_gap_that_is_not_claimed_any_more_fails_the_run(run_pytest, tmp_path):
    folder = tmp_path / "idle"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        f"from {LIARS}.narrow import CONTRACT_VERSION, seamline_providers\n"
    )
    (folder / "known_gaps.toml").write_text(
        '[[gap]]\nchecks = "contract/bad-data"\nreason = "rows past the end"\n'
        'link = "https://example.org/1"\nexpires = 2100-01-01\n'
    )
    given = ("--provider", "four_axes", "--provider-plugin", "idle")
    done = run_pytest(*given, "--checks", "contract/bad-data")
    assert done.returncode == 1
    assert "contract/bad-data is DECLINED and cannot fail" in done.stdout


def test_a_missing_device_fails_the_run(run_pytest):
    given = ("--provider", "cpu", "--checks", CHECK)
    done = run_pytest(*given, "--require-device", "cuda")
    assert done.returncode not in (0, 5)
    assert "'cuda' is required; it works on 'cpu:0'" in done.stdout + done.stderr


def test_without_a_provider_it_says_which_option_is_missing(run_pytest):
    done = run_pytest()
    assert done.returncode not in (0, 5)
    assert "--provider NAME" in done.stdout + done.stderr


def test_a_known_gap_is_an_expected_failure_and_a_stale_one_fails(run_pytest, tmp_path):
    folder = tmp_path / "gappy"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        f"from {LIARS}.zeros import CONTRACT_VERSION, seamline_providers\n"
    )
    given = ("--provider", "zeros", "--provider-plugin", "gappy")
    gap = (
        '[[gap]]\nchecks = "{}"\nreason = "it writes zeros"\n'
        'link = "https://example.org/1"\nexpires = {}\n'
    )
    gaps = folder / "known_gaps.toml"
    gaps.write_text(gap.format(CHECK, "2100-01-01"))
    done = run_pytest(*given, "--checks", CHECK)
    assert "1 xfailed" in done.stdout
    assert "it writes zeros (https://example.org/1, until 2100-01-01)" in done.stdout
    gaps.write_text(gap.format(CHECK, "2020-01-01"))
    assert "expired on 2020-01-01" in run_pytest(*given, "--checks", CHECK).stdout
    gaps.write_text(gap.format("contract/plugin", "2100-01-01"))
    done = run_pytest(*given, "--checks", "contract/plugin")
    assert done.returncode == 1
    assert "take the entry out" in done.stdout
