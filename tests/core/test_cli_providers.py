"""The command line: light help, a list that outlives broken plugins, plugins' commands."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from tests.core.installed_plugins import GOOD, install
from typer.testing import CliRunner

from seamline.cli import app, main

COMMAND = """\
from seamline.hookspecs import hookimpl

CONTRACT_VERSION = 1

@hookimpl
def seamline_commands(app):
    @app.command("greet")
    def greet(name: str = "you"):
        print("hello", name)
"""


@pytest.fixture
def seamline(plugin_folder, monkeypatch):
    """Give a function that runs the command on the plugins of the folder."""
    monkeypatch.setenv("SEAMLINE_BLOCK", "seamline")
    monkeypatch.setattr("seamline.discovery._found", {})

    def run(*arguments):
        return CliRunner().invoke(app, arguments)

    return run


def test_the_list_shows_good_ones_and_every_failure_and_ends_well(
    plugin_folder, seamline
):
    install(plugin_folder, "acme-good", GOOD)
    install(plugin_folder, "acme-broken-exit", "import sys; sys.exit(3)")
    install(plugin_folder, "acme-future", "CONTRACT_VERSION = 999")
    shown = seamline("providers")
    assert shown.exit_code == 0, shown.output
    for text in (
        "acme-good",
        "yes",
        "SystemExit: 3",
        "acme_broken_exit.py",
        "contract 999",
    ):
        assert text in shown.output


def test_json_holds_all_that_is_known(plugin_folder, seamline):
    source = """
        from seamline.hookspecs import hookimpl
        from seamline.provider import Availability, Option, ProviderSpec

        CONTRACT_VERSION = 1

        @hookimpl
        def seamline_providers():
            no = Availability(False, "no [bold]device[/bold]", "buy one")
            depth = Option("depth", int, 2, "how deep", minimum=1)
            return [ProviderSpec("mine", print, "deep", probe=lambda: no,
                                 options=(depth,), aliases=("Mine",))]
    """
    install(plugin_folder, "acme-mine", source, version="0.7")
    install(plugin_folder, "acme-out", GOOD)
    install(plugin_folder, "acme-greet", COMMAND)
    install(plugin_folder, "acme-broken-import", "import no_such_module_xyz")
    facts = json.loads(
        seamline("providers", "--json", "--block", "seamline", "--block", "out").stdout
    )
    assert facts["providers"] == [
        {
            "name": "mine",
            "summary": "deep",
            "distribution": "acme-mine",
            "version": "0.7",
            "plugin": "mine",
            "usable": False,
            "why": "no [bold]device[/bold]",
            "fix": "buy one",
            "here": {},
            "aliases": ["Mine"],
            "options": [
                {
                    "name": "depth",
                    "kind": "int",
                    "default": 2,
                    "help": "how deep",
                    "choices": [],
                    "minimum": 1,
                }
            ],
        }
    ]
    (failure,) = facts["failures"]
    assert (failure["plugin"], failure["stage"]) == ("broken-import", "import")
    assert "No module named 'no_such_module_xyz'" in failure["traceback"]
    out = [b for b in facts["blocked"] if b["distribution"] == "acme-out"]
    assert [b["why"] for b in out] == ["'out' is blocked (argument)"]
    assert [c["command"] for c in facts["commands"]] == ["greet"]


def test_what_a_provider_finds_here_is_shown_and_an_error_in_it_too(
    plugin_folder, seamline
):
    source = """
        from seamline.hookspecs import hookimpl
        from seamline.provider import Availability, ProviderSpec

        CONTRACT_VERSION = 1
        no = Availability(False, "no device", "buy one")

        @hookimpl
        def seamline_providers():
            return [
                ProviderSpec("wide", print, here=lambda: {"lanes": "8, as it reports"}),
                ProviderSpec("odd", print, here=lambda: {}["x"]),
                ProviderSpec("gone", print, probe=lambda: no, here=lambda: 1 / 0),
            ]
    """
    install(plugin_folder, "acme-wide", source)
    shown = seamline("providers").output
    assert "here, lanes: 8, as it reports" in shown
    assert "here, error: KeyError: 'x'" in shown
    assert "ZeroDivisionError" not in shown


def test_text_of_a_plugin_is_not_read_as_markup(plugin_folder, seamline):
    source = "raise RuntimeError('no [bold]device[/bold] :smile:')"
    install(plugin_folder, "acme-broken", source)
    assert "no [bold]device[/bold] :smile:" in seamline("providers").output


def test_clashes_are_listed_with_both_distributions(plugin_folder, seamline):
    install(plugin_folder, "acme-first", GOOD, plugin="same", module="acme_first")
    install(plugin_folder, "acme-second", GOOD, plugin="same", module="acme_second")
    shown = seamline("providers").output
    assert "'same' is offered by acme-first 1.0 and acme-second 1.0" in shown


def test_a_plugins_command_runs_by_its_name(plugin_folder, seamline):
    install(plugin_folder, "acme-greet", COMMAND)
    shown = seamline("greet", "--name", "there")
    assert (shown.exit_code, shown.stdout) == (0, "hello there\n")


def test_a_command_that_two_plugins_add_is_an_error_that_names_both(
    plugin_folder, seamline
):
    install(plugin_folder, "acme-first", COMMAND)
    install(plugin_folder, "acme-second", COMMAND)
    shown = seamline("greet")
    assert shown.exit_code != 0
    assert "acme-first 1.0" in str(shown.exception)
    assert "acme-second 1.0" in str(shown.exception)


def test_an_unknown_command_says_which_plugins_could_not_bring_it(
    plugin_folder, seamline
):
    install(plugin_folder, "acme-broken-exit", "import sys; sys.exit(3)")
    install(
        plugin_folder, "acme-greet", COMMAND.replace("    @app", "    1 / 0\n    @app")
    )
    shown = seamline("greet")
    assert shown.exit_code == 2
    assert "No such command 'greet'" in shown.output
    assert "SystemExit: 3" in shown.output
    assert "ZeroDivisionError" in shown.output


def test_an_error_raised_on_purpose_is_printed_without_a_traceback(
    plugin_folder, monkeypatch, capsys
):
    monkeypatch.setenv("SEAMLINE_CONFIG", str(plugin_folder / "none.toml"))
    monkeypatch.setattr("sys.argv", ["seamline", "providers"])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (1, "")
    assert err.startswith("SettingsError: ")
    assert "none.toml: no such file" in err


# --- in a process of their own --------------------------------------------------------


def python(code, *folders):
    path = os.pathsep.join([*map(str, folders), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_no_plugin_and_no_onnx(plugin_folder, option):
    install(plugin_folder, "acme-loud", "raise SystemExit(9)")
    code = f"""
import sys
sys.argv = ["seamline", "{option}"]
from seamline.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
heavy = {{"acme_loud", "onnx", "onnx_ir", "numba", "seamline_cpu"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = python(code, plugin_folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "seamline" in done.stdout


def test_json_of_a_noisy_and_broken_crowd_parses(plugin_folder):
    noisy = """
        import ctypes, os
        print("from an import")
        os.write(1, b"from below")
        if os.name == "posix":
            ctypes.CDLL(None).puts(b"from C")  # stays in C's buffer for a while
    """
    install(plugin_folder, "acme-noisy", textwrap.dedent(noisy) + GOOD)
    install(plugin_folder, "acme-broken-exit", "import sys; sys.exit(3)")
    code = """
import sys
sys.argv = ["seamline", "providers", "--json", "--block", "seamline"]
from seamline.cli import main
main()
"""
    done = python(code, plugin_folder)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert [p["name"] for p in facts["providers"]] == ["noisy"]
    assert [f["plugin"] for f in facts["failures"]] == ["broken-exit"]
    assert "from an import" in done.stderr
    assert "from below" in done.stderr
    assert os.name != "posix" or "from C" in done.stderr
