"""
What is checked of a plugin, its specs and its providers, and how each error says it.

The order is the one that :mod:`seamline.hookspecs` promises: the contract version is
compared before anything of the plugin is called.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

import pluggy

from seamline import hookspecs
from seamline.errors import ContractError, ProviderOptionError, near
from seamline.options import validate_options
from seamline.provider import CONTRACT_VERSION, Device, Option, Provider, ProviderSpec

__all__ = ["call_providers", "check_plugin", "check_provider", "new_manager"]

_NAME = re.compile(r"[a-z0-9]+(?:[-_.:][a-z0-9]+)*")
_KINDS = (bool, int, float, str)
_HOOKS = tuple(name for name in hookspecs.__all__ if name.startswith("seamline_"))
_DATA = tuple(Provider.__annotations__)
_METHODS = tuple(
    name
    for name, member in vars(Provider).items()
    if inspect.isfunction(member) and not name.startswith("_")
)


def new_manager() -> pluggy.PluginManager:
    """Give a manager that knows seamline's hooks and no plugin."""
    manager = pluggy.PluginManager("seamline")
    manager.add_hookspecs(hookspecs)
    return manager


def check_plugin(name: str, plugin: Any) -> pluggy.PluginManager:
    """
    Check a plugin's type, contract version and hooks; call nothing of it.

    Returns
    -------
    pluggy.PluginManager
        Holds this plugin alone, so that a call reaches no other.

    Raises
    ------
    ContractError
        Says what is wrong; both versions, where they differ.
    """
    if plugin is None or isinstance(plugin, type) or inspect.isroutine(plugin):
        what = "None" if plugin is None else f"a {type(plugin).__name__}"
        if isinstance(plugin, type):
            what = "a class"
        why = (
            f"its entry point is {what}; it must be a module or an instance with hooks"
        )
        raise ContractError(name, why)
    _check_version(name, plugin)
    alone = new_manager()
    try:
        alone.register(plugin, name)
    except pluggy.PluginValidationError as error:
        why = f"its hooks do not fit seamline.hookspecs: {error}"
        raise ContractError(name, why) from error
    _check_hooks(name, plugin, alone)
    return alone


def _check_version(name: str, plugin: Any) -> None:
    version = getattr(plugin, "CONTRACT_VERSION", None)
    here = f"this seamline has contract {CONTRACT_VERSION}"
    if version is None:
        why = f"its plugin states no CONTRACT_VERSION; {here}. Add CONTRACT_VERSION = "
        raise ContractError(name, f"{why}{CONTRACT_VERSION} if it is written for that")
    if type(version) is not int:
        why = f"its CONTRACT_VERSION is {version!r}, which is not an integer; {here}"
        raise ContractError(name, why)
    _check_number(name, "its plugin is", version)


def _check_number(name: str, what: str, version: int) -> None:
    if version != CONTRACT_VERSION:
        newer = "seamline" if version > CONTRACT_VERSION else "plugin"
        why = f"{what} written for contract {version}; this seamline has contract "
        why += f"{CONTRACT_VERSION}. Install a newer {newer}"
        raise ContractError(name, why)


def _check_hooks(name: str, plugin: Any, alone: pluggy.PluginManager) -> None:
    callers = alone.get_hookcallers(plugin) or []
    for caller in callers:
        if not caller.has_spec():
            why = f"there is no hook {caller.name!r}{near(caller.name, _HOOKS)}"
            raise ContractError(name, f"{why} (there are: {', '.join(_HOOKS)})")
        if any(impl.wrapper or impl.hookwrapper for impl in caller.get_hookimpls()):
            why = f"{caller.name} is a hook wrapper; a plugin may not wrap the others"
            raise ContractError(name, why)
    found = {caller.name for caller in callers}
    for hook in _HOOKS:
        member = getattr(plugin, hook, None)
        if hook not in found and inspect.isroutine(member):
            if member is getattr(hookspecs, hook):
                continue  # the hook itself, imported to be read
            raise ContractError(name, f"{hook} stands there without @hookimpl above it")
    if not found:
        why = f"it implements no hook (there are: {', '.join(_HOOKS)})"
        raise ContractError(name, why)


def call_providers(name: str, alone: pluggy.PluginManager) -> tuple[ProviderSpec, ...]:
    """
    Ask a checked plugin for its providers, and check what it says.

    Raises
    ------
    ContractError
        The hook gave something else than specs, or a spec that cannot be right.
    """
    caller = alone.hook.seamline_providers
    if not caller.get_hookimpls():
        return ()
    answers = caller()
    if not answers:  # pluggy leaves None out
        why = "seamline_providers gave None; it must give specs, or [] for none"
        raise ContractError(name, why)
    answer: Any = answers[0]
    if not isinstance(answer, Iterable):
        what = type(answer).__name__
        why = f"seamline_providers gave a {what}; it must give an iterable of specs"
        raise ContractError(name, why)
    specs = tuple(answer)
    for spec in specs:
        _check_spec(name, spec)
    return specs


def _check_spec(name: str, spec: Any) -> None:
    if not isinstance(spec, ProviderSpec):
        what = "a class" if isinstance(spec, type) else f"a {type(spec).__name__}"
        why = f"seamline_providers gave {what} among its specs; each is a ProviderSpec"
        raise ContractError(name, why)
    called: Any = spec.name
    if not isinstance(called, str) or not _NAME.fullmatch(called):
        why = f"its provider is named {spec.name!r}; a name is lower-case letters and "
        raise ContractError(name, why + "digits, joined by '-', '_', '.' or ':'")
    _check_number(spec.name, "its spec is", spec.contract_version)
    for what in ("create", "probe"):
        if not callable(getattr(spec, what)):
            raise ContractError(spec.name, f"its spec's {what} cannot be called")
    if not _all_of(spec.aliases, str):
        why = f"its spec's aliases are {spec.aliases!r}; they must be a tuple of text"
        raise ContractError(spec.name, why)
    if not _all_of(spec.options, Option):
        why = f"its spec's options are {spec.options!r}; they must be a tuple of Option"
        raise ContractError(spec.name, why)
    _check_options(spec)


def _all_of(values: Any, kind: type) -> bool:
    return isinstance(values, tuple) and all(
        isinstance(value, kind) for value in values
    )


def _check_options(spec: ProviderSpec) -> None:
    seen = set()
    for option in spec.options:
        if option.name in seen:
            raise ContractError(spec.name, f"option {option.name!r} is declared twice")
        seen.add(option.name)
        if option.kind not in _KINDS:
            why = f"option {option.name!r} is of kind {option.kind!r}; there are: "
            why += ", ".join(kind.__name__ for kind in _KINDS)
            raise ContractError(spec.name, why)
        try:
            validate_options(spec.name, (option,), {option.name: option.default})
        except ProviderOptionError as error:
            why = f"option {option.name!r} has the default {option.default!r}, "
            raise ContractError(spec.name, why + "which it does not take") from error


def check_provider(spec: ProviderSpec, provider: Any) -> Provider:
    """
    Check that what a spec made is a provider; give it back.

    Raises
    ------
    ContractError
        Names every member that is missing or of the wrong kind.
    """
    what = f"its create gave {_described(provider)}, which is no Provider: "
    missing = [name for name in (*_DATA, *_METHODS) if not hasattr(provider, name)]
    if provider is None or isinstance(provider, type) or missing:
        lacks = (
            f"it lacks {', '.join(missing)}" if missing else "it must be an instance"
        )
        raise ContractError(spec.name, what + lacks)
    dead = [name for name in _METHODS if not callable(getattr(provider, name))]
    if dead:
        raise ContractError(spec.name, f"{what}{', '.join(dead)} cannot be called")
    if not isinstance(provider.device, Device):
        raise ContractError(spec.name, f"{what}its device is {provider.device!r}")
    if provider.name != spec.name:
        why = f"its create gave a provider named {provider.name!r}"
        raise ContractError(spec.name, why)
    checked: Provider = provider
    return checked


def _described(given: Any) -> str:
    if given is None:
        return "None"
    return (
        f"the class {given.__name__}"
        if isinstance(given, type)
        else f"a {type(given).__name__}"
    )
