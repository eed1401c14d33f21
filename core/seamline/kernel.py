"""One kernel: what it accepts, what it claims, and the call that it is made for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from seamline.provider import Array, BuildContext, Claim, NodeView, Refusal, View
from seamline.tensors import TensorType, ValueType

__all__ = ["NEWEST", "Call", "Inference", "Kernel", "NotCapturable", "Run"]

Run: TypeAlias = Callable[[], object]
#: Gives one type for each output of a node.
Inference: TypeAlias = Callable[[NodeView], Sequence[ValueType | None]]
#: Why a kernel cannot be recorded, None where it can, or what says either of a node.
NotCapturable: TypeAlias = str | Callable[[NodeView], str | None] | None
NEWEST = 10_000  #: since-versions without an end


@attrs.define(eq=False)
class Call:
    """
    One node, ready for its kernel to be made: types are sized, arrays are in place.

    Attributes
    ----------
    view
        The node.
    inputs, outputs
        Arrays at the addresses they keep; None where left out. Never write an input,
        unless the kernel declared the alias and the arrays share memory.
    workspace
        ``workspace_nbytes`` of scratch (uint8), or None.
    options
        The provider's options, ``num_threads`` among them where it has it.
    """

    view: NodeView
    inputs: tuple[View, ...]
    outputs: tuple[View, ...]
    context: BuildContext
    options: Mapping[str, Any]
    workspace: View = None

    def attr(self, name: str, default: Any = None) -> Any:
        """Give an attribute, or the default where the node does not carry it."""
        return self.view.attributes.get(name, default)

    def input(self, index: int) -> View:
        """Give an input, or None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def output(self, index: int) -> View:
        """Give an output, or None where it is not asked for."""
        return self.outputs[index] if index < len(self.outputs) else None

    def constant(self, index: int) -> Array | None:
        """Give an input's value if it is known before any run."""
        return self.view.constant(index)

    @property
    def since(self) -> int:
        """Give the operator's since-version."""
        return self.view.since_version

    def resident(
        self, tag: str, indices: Collection[int], make: Callable[[], Any]
    ) -> Any:
        """
        Keep what is made from the constants at ``indices``, for the session.

        ``tag`` names the layout; say in it everything else that the result depends on.
        """
        names = tuple(self.view.node.inputs[i] for i in sorted(indices))
        return self.context.resident((tag, *names), make)


@attrs.frozen(eq=False)
class Kernel:
    """
    A kernel and what it accepts.

    Attributes
    ----------
    since
        First and last since-version that it implements, both included.
    dtypes
        Element types accepted, by input index.
    when
        Looks at the node and gives a reason to refuse it, or None.
    not_capturable
        Why it cannot be recorded, or what looks at the node and says so.
    """

    op_type: str
    domain: str
    since: tuple[int, int]
    function: Callable[..., Any]
    simple: bool
    dtypes: Mapping[int, tuple[str, ...]]
    variant: str
    because: str
    when: Callable[[NodeView], str | None] | None
    host_inputs: frozenset[int]
    aliases: tuple[tuple[int, int], ...]
    views: tuple[tuple[int, int], ...]
    sizes_at_run: bool
    not_capturable: NotCapturable
    workspace: Callable[[NodeView], int] | None
    resident: Callable[[NodeView], int] | None
    parameters: frozenset[str] | None  # keyword-only names of a simple kernel
    bounded: Callable[[NodeView], Collection[int]] | frozenset[int] = frozenset()
    _plain: Claim = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        plain = Claim(
            self.variant,
            self.because,
            None if callable(self.not_capturable) else self.not_capturable,
            self.host_inputs,
            self.aliases,
            self.views,
            self.sizes_at_run,
            bounded=self.bounded
            if isinstance(self.bounded, frozenset)
            else frozenset(),
        )
        object.__setattr__(self, "_plain", plain)

    def refuses(self, node: NodeView) -> Refusal | None:
        """Say why this kernel does not take the node, or None if it does."""
        low, high = self.since
        if not low <= node.since_version <= high:
            upto = "newer" if high == NEWEST else str(high)
            return Refusal(
                f"{node.op_type} of opset {node.since_version} is not implemented",
                f"since-versions {low} to {upto}",
            )
        for index, accepted in self.dtypes.items():
            if not node.has_input(index):
                continue
            kind = node.inputs[index]
            if not isinstance(kind, TensorType):
                what = "of unknown type" if kind is None else f"a {kind}"
                return Refusal(f"input {index} is {what}", ", ".join(accepted))
            if kind.dtype not in accepted:
                return Refusal(f"input {index} is {kind.dtype}", ", ".join(accepted))
        return self._refuses_form(node)

    def _refuses_form(self, node: NodeView) -> Refusal | None:
        if self.parameters is not None:
            unknown = [a for a in node.attributes if a not in self.parameters]
            if unknown:
                known = ", ".join(sorted(self.parameters)) or "none"
                return Refusal(f"attribute {unknown[0]!r} is not implemented", known)
        reason = self.when(node) if self.when else None
        return Refusal(reason) if reason else None

    def claim(self, node: NodeView) -> Claim:
        """Give the claim for a node that it does not refuse."""
        claim = self._plain
        if callable(self.not_capturable):
            claim = _because_of(claim, self.not_capturable(node))
        if callable(self.bounded):
            claim = attrs.evolve(claim, bounded=frozenset(self.bounded(node)))
        if self.workspace is None and self.resident is None:
            return claim
        return attrs.evolve(
            claim,
            workspace_nbytes=self.workspace(node) if self.workspace else 0,
            resident_nbytes=self.resident(node) if self.resident else 0,
        )


@functools.lru_cache(maxsize=1024)  # a model's nodes share a few claims
def _because_of(claim: Claim, reason: str | None) -> Claim:
    return attrs.evolve(claim, not_capturable=reason) if reason else claim
