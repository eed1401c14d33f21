"""
Settings from outside the program: which plugins are blocked, and which are allowed.

Each key is taken from the first place that gives it: the argument, the environment, the
configuration file. Places are not merged, so what is in force can be read in one place.

=========  ==================  ========================================================
key        environment         file
=========  ==================  ========================================================
``block``  ``SEAMLINE_BLOCK``  ``[plugins] block = ["acme"]``: never imported
``allow``  ``SEAMLINE_ALLOW``  ``[plugins] allow = ["seamline"]``: nothing else imported
=========  ==================  ========================================================

Variables hold names between commas; an empty variable counts as not set. The file is the
one that ``SEAMLINE_CONFIG`` names, which then must exist, or ``seamline/seamline.toml``
in the user's configuration folder (``XDG_CONFIG_HOME`` or ``~/.config``; ``APPDATA`` on
Windows), which need not. A name matches a distribution or an entry point, whatever its
case and whether it is written with ``-``, ``_`` or ``.``; blocking beats allowing.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from seamline.errors import SeamlineError, near

__all__ = ["Settings", "SettingsError", "load_settings", "normal_name"]

_TABLE = "plugins"
_VARIABLES = {"block": "SEAMLINE_BLOCK", "allow": "SEAMLINE_ALLOW"}
_CONFIG = "SEAMLINE_CONFIG"


class SettingsError(SeamlineError):
    """
    A setting cannot be understood.

    Attributes
    ----------
    place
        The file or the environment variable.
    key
        The key at fault; empty when it is the whole file.
    """

    def __init__(self, place: str, key: str, why: str) -> None:
        self.place = place
        self.key = key
        super().__init__(f"{place}: {key}: {why}" if key else f"{place}: {why}")


def normal_name(name: str) -> str:
    """
    Give the form in which names of plugins and distributions are compared.

    Source: the packaging specification, "Names and normalization".

    >>> normal_name("Acme_Fast..Kernels")
    'acme-fast-kernels'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def _normal_names(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        msg = f"names are a list, not the text {names!r}"
        raise TypeError(msg)
    return tuple(sorted({normal_name(name) for name in names}))


@attrs.frozen
class Settings:
    """
    What is in force.

    Attributes
    ----------
    block
        Names never imported, normalised and sorted.
    allow
        The only names imported; None for all.
    block_source, allow_source
        Where each came from, for messages.
    """

    block: tuple[str, ...] = attrs.field(default=(), converter=_normal_names)
    allow: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(_normal_names)
    )
    block_source: str = "argument"
    allow_source: str = "argument"

    def why_blocked(self, *names: str) -> str:
        """
        Say which of these names the block list holds; '' for none.

        >>> Settings(block=["acme"]).why_blocked("mine", "Acme")
        "'acme' is blocked (argument)"
        """
        for name in map(normal_name, names):
            if name in self.block:
                return f"{name!r} is blocked ({self.block_source})"
        return ""

    def why_kept_out(self, *names: str) -> str:
        """
        Say why a plugin that goes by these names is not imported; '' if it may be.

        >>> Settings(allow=["seamline"]).why_kept_out("mine", "acme")
        'not on the allow list (argument)'
        """
        allowed = self.allow is None or set(map(normal_name, names)) & set(self.allow)
        absent = "" if allowed else f"not on the allow list ({self.allow_source})"
        return self.why_blocked(*names) or absent


def load_settings(
    *,
    block: Iterable[str] | None = None,
    allow: Iterable[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """
    Gather the settings: argument, then environment, then file, for each key.

    Parameters
    ----------
    block, allow
        Names; None to take them from outside.
    environment
        Variables to read; ``os.environ`` when left out.

    Raises
    ------
    SettingsError
        Names the file and the key, or the variable, and what would be right.
    """
    environment = os.environ if environment is None else environment
    found: dict[str, Any] = {}
    for key, value in _read_file(environment).items():
        found[key], found[f"{key}_source"] = value
    for key, variable in _VARIABLES.items():
        text = environment.get(variable, "").strip()
        if text:
            found[key], found[f"{key}_source"] = _split(variable, text), variable
    for key, given in (("block", block), ("allow", allow)):
        if given is not None:
            found[key], found[f"{key}_source"] = given, "argument"
    return Settings(**found)


def _split(variable: str, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise SettingsError(variable, "", f"a name is missing between commas: {text!r}")
    return names


def _config_file(environment: Mapping[str, str]) -> tuple[Path, bool]:
    """Give the configuration file, and whether it must exist."""
    if named := environment.get(_CONFIG, "").strip():
        return Path(named), True
    variable = "APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME"
    folder = environment.get(variable) or Path.home() / ".config"
    return Path(folder, "seamline", "seamline.toml"), False


def _read_file(environment: Mapping[str, str]) -> dict[str, tuple[list[str], str]]:
    """Give each key that the file sets, with the file's name."""
    path, must_exist = _config_file(environment)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        if not must_exist:
            return {}
        why = f"no such file; {_CONFIG} names it. Create it, or unset {_CONFIG}"
        raise SettingsError(str(path), "", why) from error
    except OSError as error:
        raise SettingsError(str(path), "", f"cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(str(path), "", f"is not TOML: {error}") from error
    _refuse_unknown(path, "", content, (_TABLE,))
    table = content.get(_TABLE, {})
    if not isinstance(table, dict):
        raise SettingsError(str(path), _TABLE, "must be a table: [plugins]")
    _refuse_unknown(path, f"{_TABLE}.", table, tuple(_VARIABLES))
    return {key: (_names(path, key, value), str(path)) for key, value in table.items()}


def _refuse_unknown(
    path: Path, prefix: str, table: Mapping[str, object], known: tuple[str, ...]
) -> None:
    for key in table:
        if key not in known:
            why = f"unknown key{near(key, known)} (there are: {', '.join(known)})"
            raise SettingsError(str(path), prefix + key, why)


def _names(path: Path, key: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
        why = f'must be a list of names, such as ["acme"]; it is {value!r}'
        raise SettingsError(str(path), f"{_TABLE}.{key}", why)
    return value
