"""
A provider's options: what the caller gave, checked against the provider's schema.

Values may come as text, as ONNX Runtime passes them ("true", "1", "4"). What comes out
has every option of the schema, each of its kind; a provider never sees anything else.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seamline.errors import ProviderOptionError, near
from seamline.provider import Option

__all__ = ["validate_options"]


def validate_options(
    provider: str, schema: Sequence[Option], given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """
    Check options, convert them, and fill in defaults.

    Parameters
    ----------
    provider
        The provider's name, for messages.
    schema
        What it takes.
    given
        What the caller gave; None for nothing. A value of None stands for the default
        where that is None, and nowhere else.

    Returns
    -------
    dict
        A value for each option of the schema, in its order.

    Raises
    ------
    ProviderOptionError
        An option that is not in the schema, or a value of the wrong kind, outside the
        choices or below the minimum. Says what would be right.

    Examples
    --------
    >>> schema = (Option("num_threads", int, 0, minimum=0), Option("record", bool, True))
    >>> validate_options("cpu", schema, {"num_threads": "4"})
    {'num_threads': 4, 'record': True}
    """
    given = {} if given is None else given
    known = [option.name for option in schema]
    for name in given:
        if name not in known:
            why = f"has no option {name!r}{near(str(name), known)} "
            why += f"(there are: {', '.join(known) or 'none'})"
            raise ProviderOptionError(provider, why)
    return {
        option.name: _value(provider, option, given[option.name])
        if option.name in given
        else option.default
        for option in schema
    }


def _value(provider: str, option: Option, given: Any) -> Any:
    if given is None and option.default is None:
        return None
    try:
        value = _READ[option.kind](given)
    except (TypeError, ValueError) as error:
        raise _wrong(provider, option, given) from error
    if option.choices and value not in option.choices:
        raise _wrong(provider, option, given)
    # written so that NaN, which compares false, is refused as well
    if option.minimum is not None and not value >= option.minimum:
        raise _wrong(provider, option, given)
    return value


def _wrong(provider: str, option: Option, given: Any) -> ProviderOptionError:
    wanted = f"takes {_KINDS[option.kind]}"
    if option.choices:
        wanted = f"takes one of {', '.join(repr(choice) for choice in option.choices)}"
    if option.minimum is not None:
        wanted += f", {option.minimum} or more"
    default = f"; leave it out for {option.default!r}"
    return ProviderOptionError(
        provider, f"option {option.name!r} {wanted}; it was given {given!r}{default}"
    )


_WORDS = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
_KINDS = {
    bool: "true or false (also as text: 'true', '1', 'on', 'false', '0', 'off')",
    int: "an integer (also as text)",
    float: "a number (also as text)",
    str: "text",
}


def _read_bool(given: Any) -> bool:
    if isinstance(given, str):
        word = given.strip().lower()
        if word not in _WORDS:
            raise ValueError(given)
        return _WORDS[word]
    if given in (0, 1):  # True, NumPy's booleans and the integers alike
        return bool(given)
    raise ValueError(given)


def _read_int(given: Any) -> int:
    if isinstance(given, str):
        return int(given)
    if isinstance(given, bool):
        raise TypeError(given)
    return operator.index(given)  # refuses floats, which int() would cut off


def _read_float(given: Any) -> float:
    if isinstance(given, bool):
        raise TypeError(given)
    return float(given)


def _read_str(given: Any) -> str:
    text = os.fspath(given)
    if not isinstance(text, str):
        raise TypeError(given)
    return text


_READ: Mapping[type, Callable[[Any], Any]] = {
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    str: _read_str,
}
