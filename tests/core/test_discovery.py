"""One broken plugin among good ones: the good ones work, the broken one is shown."""

import sys
import threading
import warnings

import pytest
from tests.core.installed_plugins import GOOD, OURS, acme, install

from seamline.discovery import discover
from seamline.errors import ContractError, ProviderClashError, UnknownProviderError
from seamline.observers import PluginWarning
from seamline.settings import Settings

BROKEN = {
    "broken-import": ("import no_such_module_xyz", ModuleNotFoundError),
    "broken-syntax": ("def f(:", SyntaxError),
    "broken-exit": ("import sys; sys.exit(3)", SystemExit),
    "broken-library": ("import ctypes; ctypes.CDLL('libnothere.so.99')", OSError),
    "broken-generator": ("raise GeneratorExit", GeneratorExit),
    "broken-message": ("class E(OSError):\n    __str__ = None\nraise E", OSError),
}


def look(*, block=(), allow=None, extra=()):
    return discover(Settings(block=(*OURS, *block), allow=allow), extra, refresh=True)


def test_good_plugins_are_offered_beside_every_kind_of_broken_one(plugin_folder):
    install(plugin_folder, "acme-good-a", GOOD)
    for name, (source, _) in BROKEN.items():
        install(plugin_folder, f"acme-{name}", source)
    install(plugin_folder, "acme-broken-attr", "x = 1", target=":nope")
    install(plugin_folder, "acme-good-b", GOOD, version="2.5")
    found = look()
    assert sorted(found.specs) == ["good-a", "good-b"]
    assert str(found.specs["good-b"].origin) == "acme-good-b 2.5"
    wanted = {name: kind for name, (_, kind) in BROKEN.items()}
    wanted["broken-attr"] = AttributeError
    assert {f.origin.plugin for f in found.failures} == set(wanted)
    for failure in found.failures:
        assert isinstance(failure.error, wanted[failure.origin.plugin])
        assert len(str(failure).splitlines()) == 1
        assert failure.traceback.startswith("Traceback")
    assert {f.stage for f in found.failures} == {"import"}


def test_a_failure_keeps_name_distribution_version_and_traceback(plugin_folder):
    install(
        plugin_folder, "acme-broken-import", "import no_such_module_xyz", version="0.3"
    )
    (failure,) = look().failures
    assert failure.origin.plugin == "broken-import"
    assert str(failure.origin) == "acme-broken-import 0.3"
    assert "acme_broken_import.py" in failure.traceback
    assert "No module named 'no_such_module_xyz'" in failure.traceback


def test_asking_for_the_broken_one_chains_what_broke_it(plugin_folder):
    install(plugin_folder, "acme-broken-import", "import no_such_module_xyz")
    with pytest.raises(
        UnknownProviderError, match=r"acme-broken-import 1\.0"
    ) as caught:
        look().find("broken-import")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_an_interrupt_at_import_stops_the_search_and_leaves_it_usable(plugin_folder):
    install(plugin_folder, "acme-interrupted", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        look()
    assert look(block=["acme-interrupted"]).failures == ()


def test_what_a_plugin_prints_at_import_and_in_a_hook_goes_to_stderr(
    plugin_folder, capsys
):
    source = GOOD.replace("    return", "    print('from a hook')\n    return")
    install(plugin_folder, "acme-noisy", "print('from an import')\n" + source)
    assert list(look().specs) == ["noisy"]
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "from an import\nfrom a hook\n"


def test_opening_warns_once_of_what_was_set_aside(plugin_folder):
    install(plugin_folder, "acme-good", GOOD)
    install(plugin_folder, "acme-broken-exit", "import sys; sys.exit(3)")
    found = look()
    with pytest.warns(PluginWarning, match=r"broken-exit.*SystemExit: 3"):
        found.open("good").close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.open("good").close()


def test_metadata_that_cannot_be_read_hides_no_other_plugin(plugin_folder):
    install(plugin_folder, "acme-garbled", entry_points="[seamline]\nno equals sign\n")
    install(plugin_folder, "acme-foreign", entry_points="[other]\nno equals sign\n")
    install(plugin_folder, "acme-good", GOOD)
    found = look()
    assert list(found.specs) == ["good"]
    assert [f.origin.distribution for f in found.failures] == ["acme-garbled"]
    assert found.failures[0].stage == "metadata"


def test_metadata_without_a_name_leaves_its_plugin_usable(plugin_folder):
    install(plugin_folder, "acme-bare", GOOD)
    (plugin_folder / "acme_bare-1.0.dist-info" / "METADATA").unlink()
    assert list(look().specs) == ["bare"]


@pytest.mark.parametrize(
    "name", ["acme-marker", "ACME_Marker", "marker", "acme.marker", "Marker"]
)
def test_a_blocked_plugin_is_never_imported(plugin_folder, name):
    module = install(plugin_folder, "acme-marker", GOOD)
    found = look(block=[name])
    assert module not in sys.modules
    (blocked,) = acme(found.blocked)
    assert (blocked.origin.plugin, blocked.provider) == ("marker", "")
    with pytest.raises(UnknownProviderError, match="is blocked \\(argument\\)"):
        found.find("marker")


def test_a_blocked_plugin_does_not_come_back_under_another_name(plugin_folder):
    module = install(plugin_folder, "acme-marker", GOOD)
    install(plugin_folder, "acme-mirror", plugin="mirror", module=module)
    found = look(block=["marker"])
    assert module not in sys.modules
    assert [b.origin.plugin for b in acme(found.blocked)] == ["marker", "mirror"]
    assert found.specs == {}


def test_a_blocked_name_is_not_offered_by_a_plugin_of_another_name(plugin_folder):
    source = GOOD.replace("{name!r}", "'marker'")
    install(plugin_folder, "acme-other", source)
    found = look(block=["marker"])
    assert found.specs == {}
    (blocked,) = acme(found.blocked)
    assert (blocked.origin.plugin, blocked.provider) == ("other", "marker")


def test_an_allow_list_keeps_everything_else_out(plugin_folder):
    module = install(plugin_folder, "acme-marker", GOOD)
    install(plugin_folder, "acme-good", GOOD)
    found = look(allow=["acme_good"])
    assert list(found.specs) == ["good"]
    assert module not in sys.modules
    with pytest.raises(UnknownProviderError, match="not on the allow list"):
        found.find("marker")


def test_blocking_beats_allowing(plugin_folder):
    install(plugin_folder, "acme-good", GOOD)
    assert look(block=["good"], allow=["good"]).specs == {}


@pytest.mark.parametrize("where", ["environment", "file"])
def test_lists_from_outside_block_too(plugin_folder, monkeypatch, where):
    module = install(plugin_folder, "acme-marker", GOOD)
    if where == "environment":
        monkeypatch.setenv("SEAMLINE_BLOCK", "seamline, acme-marker")
    else:
        config = plugin_folder / "config" / "seamline" / "seamline.toml"
        config.parent.mkdir(parents=True)
        config.write_text('[plugins]\nblock = ["seamline", "acme-marker"]\n')
    found = discover(refresh=True)
    assert module not in sys.modules
    wanted = "SEAMLINE_BLOCK" if where == "environment" else "seamline.toml"
    assert wanted in acme(found.blocked)[0].why


def test_one_name_from_two_distributions_is_an_error_that_names_both(plugin_folder):
    install(plugin_folder, "acme-first", GOOD, plugin="same", module="acme_first")
    install(plugin_folder, "acme-second", GOOD, plugin="same", module="acme_second")
    install(plugin_folder, "acme-good", GOOD)
    found = look()
    assert list(found.specs) == ["good"]
    assert list(found.clashes) == ["same"]
    with pytest.raises(ProviderClashError, match=r"acme-first 1.0.*acme-second 1.0"):
        found.open("same")
    assert look(block=["acme-second"]).find("same").origin.distribution == "acme-first"


def test_an_alias_that_is_another_providers_name_clashes(plugin_folder):
    source = GOOD.replace("summary", "aliases=('good',), summary")
    install(plugin_folder, "acme-good", GOOD)
    install(plugin_folder, "acme-greedy", source)
    found = look()
    with pytest.raises(ProviderClashError, match=r"acme-good.*acme-greedy"):
        found.find("good")
    assert found.find("greedy").spec.name == "greedy"


def test_aliases_find_the_provider(plugin_folder):
    source = GOOD.replace("summary", "aliases=('GoodExecutionProvider',), summary")
    install(plugin_folder, "acme-good", source)
    found = look()
    assert found.find("GoodExecutionProvider") is found.find("good")


def test_an_unknown_name_says_what_is_near(plugin_folder):
    source = GOOD.replace("summary", "aliases=('GoodExecutionProvider',), summary")
    install(plugin_folder, "acme-good", source)
    with pytest.raises(UnknownProviderError, match="did you mean 'good'"):
        look().find("goood")
    with pytest.raises(UnknownProviderError, match="lower-case: 'good'"):
        look().find("GOOD")
    with pytest.raises(UnknownProviderError, match="'GoodExecutionProvider'"):
        look().find("GoodExecutionProvidr")


def test_the_answer_is_kept_until_a_refresh(plugin_folder):
    settings = Settings(block=OURS)
    first = discover(settings, refresh=True)
    install(plugin_folder, "acme-good", GOOD)
    assert discover(settings) is first
    assert "good" in discover(settings, refresh=True).specs


def test_threads_share_one_search(plugin_folder):
    install(plugin_folder, "acme-slow", "import time; time.sleep(0.02)\n" + "x = 1")
    settings = Settings(block=(*OURS, "threads"))
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(discover(settings)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1


def test_a_plugin_may_not_search_while_it_is_loaded(plugin_folder):
    source = "from seamline.discovery import discover\ndiscover(refresh=True)"
    install(plugin_folder, "acme-recursive", source)
    (failure,) = look().failures
    assert isinstance(failure.error, ContractError)
    assert "while they are being loaded" in failure.reason


def test_a_plugin_given_by_the_caller_needs_no_installation(plugin_folder):
    install(plugin_folder, "acme-unlisted", GOOD, entry_points="")
    import acme_unlisted

    found = look(extra=[acme_unlisted, acme_unlisted])
    assert found.find("unlisted").origin.distribution == "the caller"
    assert found.clashes == {}


def test_sessions_share_specs_and_not_providers(plugin_folder):
    install(plugin_folder, "acme-good", GOOD)
    found = look()
    assert found.find("good").spec is found.find("good").spec
    assert found.open("good") is not found.open("good")
