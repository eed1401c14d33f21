"""
Which providers a session asks for, from the forms in which ONNX Runtime takes them.

A list in decreasing order of precedence, of names or of names with options; or a list of
names and a second one of options beside it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from seamline.caller import caller_level
from seamline.discovery import discover
from seamline.errors import ProviderError
from seamline.plugins import Plugins
from seamline.settings import Settings
from seamline.unsupported import warn_unused

__all__ = ["DEFAULT_PROVIDERS", "ProviderEntry", "choose_providers"]

ProviderEntry: TypeAlias = str | tuple[str, Mapping[str, Any]]
DEFAULT_PROVIDERS: tuple[ProviderEntry, ...] = ("cpu",)
_THREADS = "num_threads"


def choose_providers(
    providers: Sequence[ProviderEntry] | None,
    provider_options: Sequence[Mapping[str, Any]] | None = None,
    *,
    num_threads: int = 0,
    settings: Settings | None = None,
    plugins: Sequence[Any] = (),
) -> tuple[tuple[str, dict[str, Any]], ...]:
    """
    Bring both forms into one: names with options, each provider once.

    Parameters
    ----------
    providers
        Names or (name, options); None or empty for ``cpu``. Of a provider that is named
        twice, also under an alias, the first stays, with a warning.
    provider_options
        Options for each of ``providers``, which are then names only.
    settings, plugins
        What may load, and what there is beside the installed plugins.
    num_threads
        Becomes the option ``num_threads`` of providers that have it and were given none.

    Raises
    ------
    ValueError
        The two lists differ in length, or tuples are mixed with ``provider_options``.
    TypeError
        An entry is neither a name nor a pair of a name and options.
    """
    found = discover(settings, plugins)
    given = _paired(list(providers or DEFAULT_PROVIDERS), provider_options)
    chosen: dict[str, tuple[str, dict[str, Any]]] = {}
    taken = False
    for name, options in given:
        key, known = _known_as(name, found)
        if key in chosen:
            warnings.warn(
                f"provider {name!r} is named twice; the later entry is ignored",
                stacklevel=caller_level(),
            )
            continue
        chosen[key] = (name, options)
        if num_threads and _THREADS in known:
            options.setdefault(_THREADS, num_threads)
            taken = True
    if num_threads and not taken:
        warn_unused("SessionOptions", [f"intra_op_num_threads={num_threads}"])
    return tuple(chosen.values())


def _paired(
    entries: list[ProviderEntry], provider_options: Sequence[Mapping[str, Any]] | None
) -> list[tuple[str, dict[str, Any]]]:
    if not provider_options:
        return [_entry(entry) for entry in entries]
    if any(not isinstance(entry, str) for entry in entries):
        raise ValueError(
            "give options either as (name, options) in providers or in provider_options, "
            "not in both"
        )
    if len(provider_options) != len(entries):
        raise ValueError(
            f"provider_options has {len(provider_options)} entries, providers has "
            f"{len(entries)}; give one for each, {{}} for none"
        )
    return [_entry((str(n), o)) for n, o in zip(entries, provider_options, strict=True)]


def _entry(entry: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(entry, str):
        return entry, {}
    match entry:
        case (str() as name, Mapping() as options):
            return name, dict(options)
    raise TypeError(f"a provider is a name or (name, options), not {entry!r}")


def _known_as(name: str, found: Plugins) -> tuple[str, frozenset[str]]:
    """Give a provider's own name and its options; of one that is unknown, the name."""
    try:
        spec = found.find(name).spec
    except ProviderError:  # opening it says so with every detail
        return name, frozenset()
    return spec.name, frozenset(option.name for option in spec.options)
