"""What a plugin must be: version first, then hooks, then specs, then the provider."""

import re
import types

import pytest
from tests.core.installed_plugins import GOOD, OURS, install

from seamline.discovery import discover
from seamline.errors import (
    ContractError,
    ProviderError,
    ProviderOptionError,
    UnavailableProviderError,
    UnknownProviderError,
)
from seamline.hookspecs import hookimpl
from seamline.kernels import KernelProvider, KernelTable
from seamline.observers import PluginWarning
from seamline.provider import Availability, Option, ProviderSpec
from seamline.settings import Settings

VERSION = "CONTRACT_VERSION = 1\n"
HOOK = """\
from seamline.hookspecs import hookimpl
@hookimpl
def seamline_providers():
    """
TRACE = "import pathlib; pathlib.Path(__file__).with_suffix('.called').touch()\n    "

BAD = {
    "future": ("CONTRACT_VERSION = 999\n" + HOOK + TRACE, "contract 999.*contract 1"),
    "past": ("CONTRACT_VERSION = 0\n" + HOOK + TRACE, "contract 0.*contract 1"),
    "no-version": (HOOK + TRACE, "states no CONTRACT_VERSION.*contract 1"),
    "text-version": ("CONTRACT_VERSION = '1'\n" + HOOK + TRACE, "not an integer"),
    "no-hook": (VERSION + "name = 'a-module'", "implements no hook"),
    "unmarked": (VERSION + "def seamline_providers(): return []", "without @hookimpl"),
    "misspelt": (
        VERSION + HOOK.replace("providers", "provider") + "return []",
        "no hook 'seamline_provider'.*did you mean 'seamline_providers'",
    ),
    "argument": (VERSION + HOOK.replace("()", "(graph)") + "return []", "graph"),
    "wrapper": (
        VERSION + HOOK.replace("@hookimpl", "@hookimpl(wrapper=True)") + "yield",
        "is a hook wrapper",
    ),
    "gives-none": (VERSION + HOOK + "return None", "gave None"),
    "gives-text": (VERSION + HOOK + "return 'yes'", "gave a str among its specs"),
    "gives-number": (VERSION + HOOK + "return 3", "gave a int"),
    "gives-class": (
        VERSION + HOOK + "return [type('Provider', (), {})]",
        "gave a class among its specs",
    ),
    "raises": (VERSION + HOOK + "return [1 / 0]", "ZeroDivisionError"),
    "raises-late": (VERSION + HOOK + "yield 1 / 0", "ZeroDivisionError"),
    "exits": (VERSION + HOOK + "raise SystemExit(4)", "SystemExit: 4"),
}


def look(*extra):
    return discover(Settings(block=OURS), extra, refresh=True)


@pytest.mark.parametrize("name", BAD)
def test_a_plugin_that_breaks_the_contract_is_set_aside_with_its_reason(
    plugin_folder, name
):
    source, reason = BAD[name]
    install(plugin_folder, f"acme-{name}", source)
    install(plugin_folder, "acme-good", GOOD)
    found = look()
    assert list(found.specs) == ["good"]
    with pytest.raises(UnknownProviderError, match=f"(?s){reason}") as caught:
        found.find(name)
    assert caught.value.__cause__ is found.failures[0].error
    assert not list(plugin_folder.glob("*.called")), (
        "called before the version was read"
    )


@pytest.mark.parametrize(
    ("target", "what"),
    [("Kind", "a class"), ("make", "a function"), ("nothing", "None")],
)
def test_an_entry_point_of_the_wrong_type_is_set_aside(plugin_folder, target, what):
    source = "class Kind:\n    CONTRACT_VERSION = 1\ndef make(): 1 / 0\nnothing = None"
    install(plugin_folder, "acme-odd", source, target=f":{target}")
    (failure,) = look().failures
    assert isinstance(failure.error, ContractError)
    assert f"its entry point is {what}; it must be a module" in failure.reason


def test_an_instance_with_hooks_is_a_plugin(plugin_folder):
    source = (
        "from seamline.hookspecs import hookimpl\nclass Kind:\n    CONTRACT_VERSION = 1\n"
        "    @hookimpl\n    def seamline_providers(self): return []\nplugin = Kind()"
    )
    install(plugin_folder, "acme-instance", source, target=":plugin")
    assert look().failures == ()


# --- specs ----------------------------------------------------------------------------


def plugin_of(*specs):
    plugin = types.ModuleType("mine")
    plugin.CONTRACT_VERSION = 1
    plugin.seamline_providers = hookimpl(lambda: list(specs))
    return plugin


def provider(options=None, name="mine"):
    return KernelProvider(KernelTable(name), options)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "Mine"}, "a name is lower-case"),
        ({"name": ""}, "a name is lower-case"),
        ({"name": None}, "a name is lower-case"),
        ({"contract_version": 7}, "contract 7.*contract 1"),
        ({"create": None}, "create cannot be called"),
        ({"probe": True}, "probe cannot be called"),
        ({"aliases": "Mine"}, "must be a tuple of text"),
        ({"aliases": ("Mine", 3)}, "must be a tuple of text"),
        ({"options": {"a": 1}}, "must be a tuple of Option"),
        ({"options": (Option("a", int, 0), Option("a", int, 0))}, "declared twice"),
        ({"options": (Option("a", list, []),)}, "there are: bool, int, float, str"),
        ({"options": (Option("a", int, 0, minimum=1),)}, "default 0.*not take"),
    ],
)
def test_a_spec_that_cannot_be_right_is_refused(plugin_folder, changes, reason):
    spec = ProviderSpec(**({"name": "mine", "create": provider} | changes))
    (failure,) = look(plugin_of(spec)).failures
    assert isinstance(failure.error, ContractError)
    assert re.search(reason, failure.reason)


# --- providers ------------------------------------------------------------------------


def open_one(**facts):
    options = facts.pop("given", None)
    spec = ProviderSpec(**({"name": "mine", "create": provider} | facts))
    return look(plugin_of(spec)).open("mine", options)


def test_a_probe_that_says_no_gives_why_and_how_to_fix_it(plugin_folder):
    with pytest.raises(UnavailableProviderError) as caught:
        open_one(probe=lambda: Availability(False, "no device", "buy one"))
    assert (caught.value.why, caught.value.fix) == ("no device", "buy one")


def fails(*args):
    raise RuntimeError("no device")


def exits(*args):
    raise SystemExit(3)


def test_a_probe_that_raises_is_a_no_with_the_cause_chained(plugin_folder):
    with pytest.raises(
        UnavailableProviderError, match="RuntimeError: no device"
    ) as caught:
        open_one(probe=fails)
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("answer", [None, True, "yes"])
def test_a_probe_of_the_wrong_type_is_a_no(plugin_folder, answer):
    with pytest.raises(UnavailableProviderError, match="which is no Availability"):
        open_one(probe=lambda: answer)


@pytest.mark.parametrize(
    ("create", "kind"), [(fails, RuntimeError), (exits, SystemExit)]
)
def test_a_create_that_raises_is_an_error_with_the_cause_chained(
    plugin_folder, create, kind
):
    with pytest.raises(ProviderError, match="could not be made") as caught:
        open_one(create=create)
    assert isinstance(caught.value.__cause__, kind)


class Half:
    """It has three of the members, and closes."""

    name = "mine"
    captures = False
    closed = 0

    def close(self):
        type(self).closed += 1


@pytest.mark.parametrize("made", [None, KernelProvider, "yes", Half()])
def test_what_is_no_provider_is_refused_by_what_is_missing(plugin_folder, made):
    with pytest.raises(ContractError, match="is no Provider") as caught:
        open_one(create=lambda options: made)
    if isinstance(made, Half):
        missing = "device, owns_intermediates, claim, infer, memory, build"
        assert f"it lacks {missing}" in str(caught.value)
        assert Half.closed == 1, "what was opened must be closed"


def test_a_provider_under_another_name_is_refused(plugin_folder):
    with pytest.raises(ContractError, match="a provider named 'other'"):
        open_one(create=lambda options: provider(name="other"))


def test_options_reach_create_checked_and_complete(plugin_folder):
    schema = (Option("threads", int, 0, minimum=0), Option("record", bool, True))
    made = open_one(options=schema, given={"threads": "4"})
    assert made.options == {"threads": 4, "record": True}
    with pytest.raises(ProviderOptionError, match="did you mean 'threads'"):
        open_one(options=schema, given={"thread": 4})


# --- observers ------------------------------------------------------------------------


def watcher(name, hear):
    plugin = types.ModuleType(name)
    plugin.CONTRACT_VERSION = 1
    plugin.seamline_segment_finished = hookimpl(hear)
    return plugin


def tell(found, segment="s0"):
    found.hooks.segment_finished(segment=segment, provider="cpu", start_ns=1, end_ns=3)


def test_an_observer_hears_the_arguments_that_it_takes(plugin_folder):
    heard = []

    def hear(segment, end_ns):
        heard.append((segment, end_ns))

    found = look(watcher("ears", hear))
    assert found.hooks.watch_segments
    tell(found)
    assert heard == [("s0", 3)]


def test_two_plugins_of_one_class_both_hear(plugin_folder):
    heard = []

    class Ears:
        CONTRACT_VERSION = 1

        @hookimpl
        def seamline_segment_finished(self, segment):
            heard.append(segment)

    tell(look(Ears(), Ears()))
    assert heard == ["s0", "s0"]


def test_nobody_listens_where_no_plugin_does(plugin_folder):
    assert not look().hooks.watch_segments


@pytest.mark.parametrize("fault", [fails, exits])
def test_an_observer_that_raises_is_told_no_more_and_the_others_are(
    plugin_folder, fault
):
    heard, shouted = [], []

    def hear(segment):
        heard.append(segment)

    def shout(segment):
        shouted.append(segment)
        fault()

    found = look(watcher("first", hear), watcher("loud", shout), watcher("last", hear))
    with pytest.warns(PluginWarning, match=r"loud.*seamline_segment_finished raised"):
        tell(found, "s0")
    tell(found, "s1")  # a second warning would be an error here
    assert heard == ["s0", "s0", "s1", "s1"]
    assert shouted == ["s0"]
    (shown,) = found.hooks.quarantined.values()
    assert "in shout" in shown
    assert list(found.hooks.quarantined) == ["loud of the caller"]


def test_sessions_and_runs_are_told_as_the_hooks_say(plugin_folder):
    heard = []
    plugin = watcher("ears", lambda: None)
    del plugin.seamline_segment_finished

    @hookimpl
    def seamline_session_opened(session, model, providers):
        heard.append((session, model, providers))

    @hookimpl
    def seamline_run_finished(session, start_ns, end_ns, error):
        heard.append((session, end_ns - start_ns, error))

    plugin.seamline_session_opened = seamline_session_opened
    plugin.seamline_run_finished = seamline_run_finished
    hooks = look(plugin).hooks
    hooks.session_opened(session="s1", model="m.onnx", providers=("cpu",))
    hooks.run_finished(session="s1", start_ns=5, end_ns=9)
    assert heard == [("s1", "m.onnx", ("cpu",)), ("s1", 4, None)]
