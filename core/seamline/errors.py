"""
Everything seamline raises on purpose.

    SeamlineError
    ├── ModelError                 the file is not a model that we can or will read
    │   └── UnsafeModelError       reading it would leave its folder or its limits
    ├── ProviderError              a provider cannot be used
    │   ├── UnknownProviderError
    │   ├── UnavailableProviderError
    │   ├── ProviderOptionError
    │   ├── ProviderClashError     two distributions claim one name
    │   └── ContractError          it broke the contract; says which clause
    │       └── ResidencyError         memory of one device reached what works on another
    ├── PlanError                  the model is fine; no legal plan exists
    │   ├── UnclaimedNodeError
    │   ├── PinError               a pin that matches nothing, or cannot be kept
    │   └── SeamError              more seams than the session allows
    ├── FeedError                  what the caller fed does not fit; also a ValueError
    └── RunError                   the plan is fine; carrying it out failed
        ├── BuildError
        ├── VirtualMemoryError         (in seamline.provider) a memory call was refused
        ├── StateError                 (in seamline.states) a run would outgrow a state
        ├── KernelError
        │   └── DeadlineError          a call on a provider, or its work, did not end in time
        └── RecordingError
            └── CaptureMismatchError   a replay gives another result than a run

Facts are attributes; the message says who, what, why and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

__all__ = [
    "BuildError",
    "CaptureMismatchError",
    "ContractError",
    "DeadlineError",
    "FeedError",
    "KernelError",
    "ModelError",
    "PinError",
    "PlanError",
    "ProviderClashError",
    "ProviderError",
    "ProviderOptionError",
    "RecordingError",
    "ResidencyError",
    "RunError",
    "SeamError",
    "SeamlineError",
    "UnavailableProviderError",
    "UnclaimedNodeError",
    "UnknownProviderError",
    "UnsafeModelError",
    "near",
]


def near(name: str, names: Iterable[str]) -> str:
    """
    Say which names are close to one that was not found.

    Examples
    --------
    >>> near("reul", ["relu", "conv"])
    "; did you mean 'relu'?"
    """
    known = list(names)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if not close:
        return ""
    return "; did you mean " + " or ".join(repr(c) for c in close) + "?"


class SeamlineError(Exception):
    """Root of every error raised on purpose; catch this one to catch them all."""


class ModelError(SeamlineError):
    """
    A model cannot be read.

    Attributes
    ----------
    file
        The file or other source, as the caller named it.
    subject
        The tensor, node or value at fault; empty when it is the file itself.
    """

    def __init__(self, file: str, subject: str, why: str) -> None:
        self.file = file
        self.subject = subject
        super().__init__(f"{file}: {subject}: {why}" if subject else f"{file}: {why}")


class UnsafeModelError(ModelError):
    """Reading the model would leave its folder, or the limits set for loading."""


class ProviderError(SeamlineError):
    """
    A provider cannot be used.

    Attributes
    ----------
    provider
        The provider's name.
    """

    def __init__(self, provider: str, why: str) -> None:
        self.provider = provider
        super().__init__(f"provider {provider!r}: {why}")


class UnknownProviderError(ProviderError):
    """
    No plugin offers what was asked of a provider of that name.

    Parameters
    ----------
    known
        Names that would have done.
    why
        What is missing.
    """

    def __init__(
        self,
        provider: str,
        known: Iterable[str],
        hint: str = "",
        why: str = "no plugin offers it",
    ) -> None:
        known = sorted(known)
        text = f"{why}{near(provider, known)}"
        text += f" (there are: {', '.join(known) or 'none'})"
        super().__init__(provider, f"{text}. {hint}".rstrip(". ") + ".")


class UnavailableProviderError(ProviderError):
    """
    A provider is installed and cannot be used here.

    Attributes
    ----------
    why, fix
        What the probe found, and what to do about it.
    """

    def __init__(self, provider: str, why: str, fix: str) -> None:
        self.why = why
        self.fix = fix
        super().__init__(provider, f"unavailable: {why}. To fix: {fix}")


class ProviderOptionError(ProviderError):
    """An option that the provider does not have, or a value that it does not take."""


class ProviderClashError(ProviderError):
    """Two distributions offer a provider of the same name."""

    def __init__(self, provider: str, first: str, second: str) -> None:
        self.distributions: tuple[str, str] = (first, second)
        super().__init__(
            provider,
            f"offered by both {first} and {second}; block one of them, or uninstall it",
        )


class ContractError(ProviderError):
    """A provider or plugin broke the contract."""


class ResidencyError(ContractError):
    """Memory of one device was handed to what works on another."""


class PlanError(SeamlineError):
    """The model was read, but no legal plan could be made for it."""


class UnclaimedNodeError(PlanError):
    """
    Nodes that no permitted provider claims.

    Attributes
    ----------
    refusals
        For each node, what each provider said: node name -> provider -> reason.
    """

    def __init__(
        self, nodes: Mapping[str, str], refusals: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.refusals: dict[str, dict[str, str]] = {
            name: dict(said) for name, said in refusals.items()
        }
        lines = [
            f"no provider claims {len(nodes)} node{'s' if len(nodes) > 1 else ''}:"
        ]
        for name, what in nodes.items():
            lines.append(f"  node {name!r} ({what})")
            said = self.refusals.get(name, {})
            lines += [f"    {who}: {why}" for who, why in said.items()]
            if not said:
                lines.append("    (no provider was asked)")
        lines.append(
            "To fix: name a provider that runs them (providers=[...]), or set "
            "fallback='warn' to let cpu take what it can."
        )
        super().__init__("\n".join(lines))


class PinError(PlanError):
    """A pin matches no node, or names a provider that refuses the node."""


class SeamError(PlanError):
    """The plan has seams that the session's policy does not allow."""


class FeedError(SeamlineError, ValueError):
    """What the caller fed does not fit the model's inputs."""


class RunError(SeamlineError):
    """
    A program could not be built or run; the session stays usable.

    Attributes
    ----------
    why
        What happened, without where.
    provider, segment, node
        Where it happened; empty where not known.
    """

    def __init__(
        self, why: str, *, provider: str = "", segment: str = "", node: str = ""
    ) -> None:
        self.why = why
        self.provider = provider
        self.segment = segment
        self.node = node
        where = [
            f"{word} {name!r}"
            for word, name in (
                ("provider", provider),
                ("segment", segment),
                ("node", node),
            )
            if name
        ]
        super().__init__(f"{', '.join(where)}: {why}" if where else why)


class BuildError(RunError):
    """
    A provider could not build a segment that it claimed.

    Attributes
    ----------
    nodes
        The segment's nodes.
    """

    nodes: tuple[str, ...] = ()


class KernelError(RunError):
    """A kernel failed, or refused its data."""


class DeadlineError(KernelError):
    """A call on a provider, or work that it was given, did not end in time."""


class RecordingError(RunError):
    """A segment could not be recorded; names the node and what it did."""


class CaptureMismatchError(RecordingError):
    """``verify_capture`` found a replay that differs from a run; names the first node."""
