"""
Every hook that a plugin may implement: the whole plugin surface on one page.

A plugin is a module, or an object in one, that a distribution names as an entry point of
the group ``seamline``::

    [project.entry-points.seamline]
    mine = "my_package.plugin"

It states the contract that it was written for, and implements any of the hooks below by
the same name, with :data:`hookimpl` above each. An implementation may take fewer
arguments than the hook has; it may not rename them::

    from seamline.hookspecs import hookimpl
    from seamline.kernels import provider_spec

    CONTRACT_VERSION = 1

    @hookimpl
    def seamline_providers():
        return [provider_spec(TABLE, summary="Relu, and nothing else")]

When a plugin is loaded
-----------------------
Not before something is asked of the plugins: ``import seamline``, ``seamline --help`` and
``seamline --version`` load none. Then each is loaded once a process, by itself, in this
order, and the first step that fails ends it:

1. blocked, or not on the allow list: the plugin is listed as such and never imported;
2. import: whatever it prints goes to standard error;
3. ``CONTRACT_VERSION`` is compared with :data:`seamline.provider.CONTRACT_VERSION`
   before anything of the plugin is called;
4. its hooks are compared with this page: a misspelt hook, an argument that the hook does
   not have, a missing ``@hookimpl`` and a hook wrapper are errors;
5. :func:`seamline_providers` is called and its specs are checked.

A plugin that fails at any step is set aside with its traceback, which ``seamline
providers`` shows; the others go on. Importing a plugin opens no device, starts no thread
and changes nothing outside its package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Iterable

    import typer

    from seamline.provider import ProviderSpec

__all__ = [
    "hookimpl",
    "seamline_commands",
    "seamline_providers",
    "seamline_run_finished",
    "seamline_segment_finished",
    "seamline_session_opened",
]

hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker("seamline")
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(
    "seamline"
)  #: marks a plugin's implementation of a hook


# --- providers ------------------------------------------------------------------------


@hookspec
def seamline_providers() -> Iterable[ProviderSpec]:
    """
    Offer providers.

    Called once a process, right after the import, before any device is opened. It may
    not open a device, compile, or look for hardware: that is for the spec's ``probe``
    (cheap, when someone asks whether the provider can be used) and ``create`` (when a
    session uses it). What it gives is shared by all sessions; what ``create`` gives
    belongs to one.

    Returns
    -------
    Iterable of ProviderSpec
        Names are lower-case and unique over everything installed: two distributions
        that offer one name, or one alias, make that name an error. Empty to offer none;
        None is an error, and so is anything else that is not a spec.
    """
    raise NotImplementedError


# --- observers ------------------------------------------------------------------------
#
# Observers are told; they decide nothing, and what they return is not looked at. One
# that raises is told no more in this process, with one warning that names the plugin,
# the hook and the exception; the run goes on as if it had not been there. Arguments are
# plain values; nothing that an observer is given can change a run.


@hookspec
def seamline_session_opened(
    session: str, model: str, providers: tuple[str, ...]
) -> None:
    """
    Hear that a session is ready to run.

    Called on the thread that opened it, after its model was read and its providers were
    made, before the constructor returns. It may not open a session itself.

    Parameters
    ----------
    session
        A name for the session, unique in the process; it comes again in
        :func:`seamline_run_finished`.
    model
        The file as the caller named it; ``<bytes>`` or ``<model>`` where there is none.
    providers
        Names in the session's order of preference.
    """


@hookspec
def seamline_segment_finished(
    segment: str, provider: str, start_ns: int, end_ns: int
) -> None:
    """
    Hear that one segment of a run has finished.

    Called on the thread that runs, in plan order, after the segment's outputs are there
    and before :func:`seamline_run_finished` of the same run; never inside a recording.
    A replay that covers several segments reports once, under the first one's name. It is
    in the path of every run: keep it to an append, and do the work elsewhere. It may not
    run a session, and may not wait.

    Parameters
    ----------
    segment
        The segment's name, unique in its plan.
    provider
        The provider that ran it.
    start_ns, end_ns
        Nanoseconds of :func:`time.perf_counter_ns` around the call. For a device that
        works on its own, ``end_ns`` is when the call returned, not when it was done.
    """


@hookspec
def seamline_run_finished(
    session: str, start_ns: int, end_ns: int, error: BaseException | None
) -> None:
    """
    Hear that a run has ended, well or not.

    Called on the thread that ran, once for each call of ``run``, after the outputs were
    copied out, or before the error reaches the caller. It may not run the session again
    and may not keep ``error`` (its traceback holds the run's arrays).

    Parameters
    ----------
    session
        The name that :func:`seamline_session_opened` gave.
    start_ns, end_ns
        Nanoseconds of :func:`time.perf_counter_ns`: feeds in, fetches out.
    error
        What the run raised, or None.
    """


# --- the command line -----------------------------------------------------------------


@hookspec
def seamline_commands(app: typer.Typer) -> None:
    """
    Add commands to ``seamline`` on the command line.

    Called when the command asked for is not one of seamline's own, and when ``seamline
    providers`` lists what there is; never for ``--help``, ``--version`` or a command of
    seamline's own, so none of them waits for a plugin. It may only register: import what
    a command needs inside it.

    Parameters
    ----------
    app
        An empty application of this plugin's own; use ``@app.command("name")`` or
        ``app.add_typer(...)``. A name that seamline has is not reachable; a name that
        two plugins add is an error that names both.
    """
