"""
What a plugin offers, where it comes from, and why it may be out.

An :class:`Offered` holds a spec that passed every check; opening it is the only way that
anything of a provider is made.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from seamline.errors import (
    ContractError,
    ProviderError,
    SeamlineError,
    UnavailableProviderError,
)
from seamline.observers import one_line
from seamline.options import validate_options
from seamline.plugin_checks import check_provider
from seamline.provider import Availability, Provider, ProviderSpec

__all__ = ["Blocked", "Offered", "Origin", "PluginFailure", "prints_to_stderr"]


@contextlib.contextmanager
def prints_to_stderr() -> Iterator[None]:
    """
    Send what a plugin prints to standard error: standard output is the caller's.

    Changes ``sys.stdout`` for the whole process, so only one thread may be inside.
    """
    with contextlib.redirect_stdout(sys.stderr):
        yield


@attrs.frozen
class Origin:
    """
    Where a plugin comes from.

    Attributes
    ----------
    plugin
        The entry point's name.
    distribution, version
        What is installed; a plugin that was passed in comes from ``the caller``.
    value
        The entry point's target, ``module`` or ``module:object``.
    """

    plugin: str
    distribution: str = "the caller"
    version: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".rstrip()

    @property
    def names(self) -> tuple[str, str]:
        """Give the names that lists of plugins match."""
        return (self.plugin, self.distribution)


@attrs.frozen
class Blocked:
    """A plugin, or one provider of it, that the settings keep out; and why."""

    origin: Origin
    why: str
    provider: str = ""


@attrs.frozen(eq=False)
class PluginFailure:
    """
    A plugin that could not be used.

    Attributes
    ----------
    stage
        ``metadata``, ``import``, ``contract`` or ``providers``.
    error
        What was raised, with its traceback.
    """

    origin: Origin
    stage: str
    error: BaseException

    @property
    def reason(self) -> str:
        """Give the exception in one line."""
        return one_line(self.error)

    @property
    def traceback(self) -> str:
        """Give the traceback as text, causes included."""
        return "".join(traceback.format_exception(self.error))

    def __str__(self) -> str:
        return f"plugin {self.origin.plugin!r} of {self.origin} failed at {self.stage}: {self.reason}"


@attrs.frozen(eq=False)
class Offered:
    """A provider that can be asked for, and where it comes from."""

    spec: ProviderSpec
    origin: Origin

    @property
    def names(self) -> tuple[str, ...]:
        """Give the provider's name and its aliases, each once."""
        return tuple(dict.fromkeys((self.spec.name, *self.spec.aliases)))

    def probe(self) -> Availability:
        """Ask whether the provider can be used here; a probe that fails is a no too."""
        return self._asked()[0]

    def open(self, options: Mapping[str, Any] | None = None) -> Provider:
        """
        Make the provider; the caller closes it.

        Raises
        ------
        UnavailableProviderError
            The probe says no; why, and how to fix it.
        ProviderOptionError
            An option that it does not take.
        ContractError
            What it made is not a provider; names what is missing.
        ProviderError
            It could not be made; the cause is chained.
        """
        spec = self.spec
        answer, cause = self._asked()
        if not answer.usable:
            raise UnavailableProviderError(spec.name, answer.why, answer.fix) from cause
        chosen = validate_options(spec.name, spec.options, options)
        try:
            made = spec.create(chosen)
        except (SeamlineError, KeyboardInterrupt):
            raise
        except BaseException as error:
            why = f"could not be made: {one_line(error)} (from {self.origin})"
            raise ProviderError(spec.name, why) from error
        try:
            return check_provider(spec, made)
        except ContractError:
            with contextlib.suppress(Exception):
                made.close()
            raise

    def _asked(self) -> tuple[Availability, BaseException | None]:
        """Give the probe's answer, and what it raised where it did."""
        report = f"report this to the authors of {self.origin}"
        try:
            answer: Any = self.spec.probe()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a SystemExit in there is a no as well
            return Availability(
                False, f"its probe raised {one_line(error)}", report
            ), error
        if not isinstance(answer, Availability):
            why = f"its probe gave {answer!r}, which is no Availability"
            return Availability(False, why, report), None
        if answer.usable:
            return answer, None
        why = answer.why or "its probe gives no reason"
        return Availability(False, why, answer.fix or report), None
