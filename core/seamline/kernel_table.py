"""
Kernels by operator: the table behind a provider.

A kernel is a function for one operator. It comes in two forms:

``@table.simple`` takes arrays, takes attributes as keyword-only arguments and gives
arrays back. It is the form to start with, and the one for operators that find their
outputs' sizes themselves.

``@table.kernel`` takes a :class:`Call` whose arrays already lie at their final addresses
and gives back a function of no arguments, which is all that a run calls. Whatever can be
decided or packed is decided and packed before that.

>>> import numpy as np
>>> table = KernelTable("mine")
>>> @table.simple("LeakyRelu", dtypes=("float32",))
... def leaky_relu(x, *, alpha=0.01):
...     return np.where(x < 0, alpha * x, x).astype(x.dtype)
>>> sorted(table.operators())
['LeakyRelu']
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from seamline.kernel import NEWEST, Call, Inference, Kernel, NotCapturable, Run
from seamline.provider import NodeView, Refusal
from seamline.tensors import ValueType

__all__ = ["Call", "Inference", "Kernel", "KernelTable", "NotCapturable", "Run"]

F = TypeVar("F", bound=Callable[..., Any])


class KernelTable:
    """
    Kernels by operator; the earlier of two kernels for one node is preferred.

    Parameters
    ----------
    name
        The provider's name.
    variant
        What its claims call the implementation, unless a kernel says otherwise.
    not_capturable
        Why a kernel that does not say so itself cannot be recorded.
    """

    def __init__(
        self,
        name: str,
        *,
        variant: str = "numpy",
        not_capturable: NotCapturable = "it runs in Python",
    ) -> None:
        self.name = name
        self.variant = variant
        self.not_capturable = not_capturable
        self._kernels: dict[tuple[str, str], list[Kernel]] = {}
        self._inferences: dict[tuple[str, str], Inference] = {}
        self._refusals: dict[tuple[str, str], Refusal] = {}

    def kernel(
        self,
        op_type: str,
        *,
        domain: str = "",
        since: int | tuple[int, int] = 1,
        dtypes: Collection[str] | Mapping[int, Collection[str]] = (),
        when: Callable[[NodeView], str | None] | None = None,
        host_inputs: Collection[int] = (),
        aliases: Collection[tuple[int, int]] = (),
        views: Collection[tuple[int, int]] = (),
        workspace: Callable[[NodeView], int] | None = None,
        resident: Callable[[NodeView], int] | None = None,
        bounded: Collection[int] | Callable[[NodeView], Collection[int]] = (),
        variant: str = "",
        because: str = "",
        not_capturable: NotCapturable = "",
    ) -> Callable[[F], F]:
        """
        Register a kernel that is bound once: ``function(call) -> run``.

        Parameters
        ----------
        since
            First since-version, or first and last, both included.
        dtypes
            Element types accepted for input 0, or for each input by index. Inputs not
            named are not looked at.
        when
            Gives a reason to refuse a node, or None.
        host_inputs
            Inputs that are read on the host before the run.
        aliases
            (output, input) pairs that may share memory when the input dies here.
        views
            (output, input) pairs where the output is the input's bytes, reshaped.
        workspace
            Scratch bytes for a node of sized types.
        resident
            Bytes that it keeps for the session, such as packed weights.
        bounded
            Inputs of which it touches no more than lengths or positions, read as it runs,
            reach, or what gives them for a node: caches whose rest may have no memory.
        not_capturable
            Why it cannot be recorded, None where it can, or what says either of a node;
            empty for what the table says.
        """
        if not_capturable == "":
            not_capturable = self.not_capturable
        keeps = bounded if callable(bounded) else frozenset(bounded)

        def register(function: F) -> F:
            self._add(
                Kernel(
                    op_type, domain, _range(since), function, False, _dtypes(dtypes),
                    variant or self.variant, because, when, frozenset(host_inputs),
                    tuple(aliases), tuple(views), False, not_capturable, workspace,
                    resident, None, keeps,
                )
            )  # fmt: skip
            return function

        return register

    def simple(
        self,
        op_type: str,
        *,
        domain: str = "",
        since: int | tuple[int, int] = 1,
        dtypes: Collection[str] | Mapping[int, Collection[str]] = (),
        when: Callable[[NodeView], str | None] | None = None,
        host_inputs: Collection[int] = (),
        sizes_at_run: bool = False,
        variant: str = "",
        because: str = "",
    ) -> Callable[[F], F]:
        """
        Register a kernel from arrays and attributes to an array, or a tuple of them.

        Keyword-only parameters of the function are the attributes that it implements; a
        node that carries another is refused. A ``since_version`` among them receives the
        node's. Missing optional inputs arrive as None.
        """

        def register(function: F) -> F:
            names = frozenset(
                p.name
                for p in inspect.signature(function).parameters.values()
                if p.kind is p.KEYWORD_ONLY
            )
            self._add(
                Kernel(
                    op_type, domain, _range(since), function, True, _dtypes(dtypes),
                    variant or self.variant, because, when, frozenset(host_inputs),
                    (), (), sizes_at_run, self.not_capturable, None, None, names,
                )
            )  # fmt: skip
            return function

        return register

    def refuse(
        self, op_type: str, because: str, accepts: str = "", *, domain: str = ""
    ) -> None:
        """Say why an operator has no kernel here, where there is more to say than that."""
        self._refusals[domain, op_type] = Refusal(because, accepts)

    def infer(self, op_type: str, *, domain: str) -> Callable[[Inference], Inference]:
        """
        Register the types of an operator that ONNX does not define.

        The function takes a :class:`~seamline.provider.NodeView` and gives one type for
        each output. Without it a ``simple`` kernel still runs, as a step of its own.
        """

        def register(function: Inference) -> Inference:
            self._inferences[domain, op_type] = function
            return function

        return register

    def inferred(self, node: NodeView) -> Sequence[ValueType | None] | None:
        """Give what a registered inference says of a node; None where there is none."""
        function = self._inferences.get((node.domain, node.op_type))
        return function(node) if function is not None else None

    def _add(self, kernel: Kernel) -> None:
        self._kernels.setdefault((kernel.domain, kernel.op_type), []).append(kernel)

    def operators(self) -> frozenset[str]:
        """Give the operators that have a kernel, ``domain::Op`` outside ONNX's own."""
        return frozenset(f"{d}::{op}" if d else op for d, op in self._kernels)

    def kernels(self, domain: str, op_type: str) -> Sequence[Kernel]:
        """Give an operator's kernels, the preferred one first."""
        return self._kernels.get((domain, op_type), ())

    def find(self, node: NodeView) -> Kernel | Refusal:
        """
        Give the first kernel that takes the node, or a refusal.

        It is the last of those that took the node's types and refused its form; where none
        took its types, that of the last kernel.
        """
        answer: Refusal | None = None
        for kernel in self._kernels.get((node.domain, node.op_type), ()):
            refusal = kernel.refuses(node)
            if refusal is None:
                return kernel
            if answer is None or answer.accepts or not refusal.accepts:
                answer = refusal
        if answer is None:
            answer = self._refusals.get((node.domain, node.op_type))
        return answer or Refusal(f"no kernel for {node.node.qualified_op}")


def _range(since: int | tuple[int, int]) -> tuple[int, int]:
    return (since, NEWEST) if isinstance(since, int) else since


def _dtypes(
    dtypes: Collection[str] | Mapping[int, Collection[str]],
) -> Mapping[int, tuple[str, ...]]:
    if isinstance(dtypes, Mapping):
        return {int(index): tuple(names) for index, names in dtypes.items()}
    return {0: tuple(dtypes)} if dtypes else {}
