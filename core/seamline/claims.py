"""
Ask every provider about every node.

A provider sees one node at a time and nothing else, so its answer depends on the node
alone. One that raises, or answers with something that is neither a claim nor a refusal,
is quarantined: it is asked no further, its reason is kept, and its nodes go to others.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence

import attrs

from seamline.collector import collector_paused
from seamline.constants import Constants
from seamline.errors import ContractError
from seamline.graph import Graph, Node
from seamline.provider import Claim, NodeView, Provider, Refusal, view_of
from seamline.shapes import CONTROL_FLOW, Infer, Settled, resolve_static
from seamline.tensors import OptionalType, SequenceType, TensorType, ValueType

__all__ = ["CORE", "Claims", "ask", "collect", "infer_with", "is_core"]

CORE = "core"  #: stands in for a provider where the core itself decides on the host
_CORE_OPERATORS = CONTROL_FLOW | {
    "ConcatFromSequence",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "SequenceMap",
    "SplitToSequence",
}


def is_core(node: Node) -> bool:
    """Tell whether the core runs the node itself: control flow, sequences, optionals."""
    return not node.domain and node.op_type in _CORE_OPERATORS


def _passes_list(node: Node, types: Mapping[str, ValueType | None]) -> bool:
    """Tell whether it is ``Identity`` of what only the host holds."""
    if node.domain or node.op_type != "Identity":
        return False
    return isinstance(types.get(node.inputs[0]), SequenceType | OptionalType)


@attrs.frozen(eq=False)
class Claims:
    """
    What every provider said of every node, bodies included.

    Attributes
    ----------
    types
        What is known of each value's type before any feed.
    answers
        Node name -> provider name -> answer, in the order of the providers.
    quarantined
        Providers that broke the contract while they were asked, and how.
    settled
        Nodes whose sized outputs need not be found again for each signature.
    """

    graph: Graph
    types: Mapping[str, ValueType | None] = attrs.field(repr=False)
    answers: Mapping[str, Mapping[str, Claim | Refusal]] = attrs.field(repr=False)
    quarantined: Mapping[str, ContractError]
    settled: Mapping[str, Settled] = attrs.field(factory=dict, repr=False)

    def offers(self, node: str) -> Mapping[str, Claim]:
        """Give the claims for a node, by provider."""
        return {
            who: said
            for who, said in self.answers[node].items()
            if isinstance(said, Claim)
        }

    def refusals(self, node: str) -> Mapping[str, str]:
        """Give the refusals of a node as text, by provider."""
        return {
            who: str(said)
            for who, said in self.answers[node].items()
            if isinstance(said, Refusal)
        }


def infer_with(
    providers: Sequence[Provider], broken: dict[str, ContractError] | None = None
) -> Infer:
    """
    Ask providers in turn for the types of an operator that ONNX does not define.

    One that raises, or gives no types, is asked no further, and its error is kept in
    ``broken``.
    """
    kept = broken if broken is not None else {}

    def infer(node: NodeView) -> Sequence[ValueType | None] | None:
        for provider in providers:
            if provider.name in kept:
                continue
            try:
                found = provider.infer(node)
            except Exception as error:
                kept[provider.name] = _raised("infer", provider, node, error)
                continue
            if found is None:
                continue
            if _are_types(found, node):
                return found
            kept[provider.name] = ContractError(
                provider.name,
                f"infer() gave {found!r} for node {node.name!r} "
                f"({node.node.qualified_op}); it must give a type, or None, for each output",
            )
        return None

    return infer


@collector_paused()
def collect(
    graph: Graph,
    providers: Sequence[Provider],
    constants: Constants | None = None,
    settled: Mapping[str, Settled] | None = None,
) -> Claims:
    """
    Collect claims and refusals; opens no device and allocates nothing.

    Parameters
    ----------
    settled
        What is known of nodes' types already; see
        :func:`seamline.shapes.resolve_static`.
    """
    known = constants or Constants(graph)
    quarantined: dict[str, ContractError] = {}
    found = resolve_static(graph, known, infer_with(providers, quarantined), settled)
    types = found.types
    answers: dict[str, dict[str, Claim | Refusal]] = {}
    core = Claim(
        CORE, "the core decides it on the host", "the host decides what runs next"
    )
    for node in graph.walk():
        if is_core(node) or _passes_list(node, types):
            answers[node.name] = {CORE: core}
            continue
        view = view_of(node, types, known.get)
        said = answers[node.name] = {}
        for provider in providers:
            broken = quarantined.get(provider.name)
            if broken is None:
                answer = ask(provider, view)
                if not isinstance(answer, ContractError):
                    said[provider.name] = answer
                    continue
                broken = quarantined[provider.name] = answer
            said[provider.name] = Refusal(f"quarantined: {broken}")
    for (
        node_answers
    ) in answers.values():  # what it offered before it broke counts no more
        for name, broken in quarantined.items():
            if isinstance(node_answers.get(name), Claim):
                node_answers[name] = Refusal(f"quarantined: {broken}")
    return Claims(graph, types, answers, quarantined, found.settled)


def _are_types(found: object, node: NodeView) -> bool:
    if not isinstance(found, Sequence) or len(found) != len(node.outputs):
        return False
    kinds = TensorType | SequenceType | OptionalType | None
    return all(isinstance(kind, kinds) for kind in found)


def ask(provider: Provider, view: NodeView) -> Claim | Refusal | ContractError:
    """Ask a provider about a node; an error where its answer breaks the contract."""
    try:
        answer = provider.claim(view)
    except Exception as error:
        return _raised("claim", provider, view, error)
    problem = _problem(answer, view)
    if problem is None:
        return answer
    return ContractError(
        provider.name,
        f"claim() gave {problem} for node {view.name!r} ({view.node.qualified_op}); "
        "it must give a Claim, or a Refusal with a reason",
    )


def _raised(
    method: str, provider: Provider, view: NodeView, error: Exception
) -> ContractError:
    where = traceback.extract_tb(error.__traceback__)[-1]
    broken = ContractError(
        provider.name,
        f"{method}() raised {type(error).__name__}: {error} for node {view.name!r} "
        f"({view.node.qualified_op}) at {where.filename}:{where.lineno}",
    )
    broken.__cause__ = error
    return broken


def _problem(answer: object, view: NodeView) -> str | None:
    """Say what is wrong with an answer, or None."""
    if isinstance(answer, Refusal):
        return None if answer.because else "a refusal without a reason"
    if not isinstance(answer, Claim):
        return f"{type(answer).__name__} ({answer!r})"
    if not answer.variant:
        return "a claim without a variant"
    inputs, outputs = len(view.node.inputs), len(view.node.outputs)
    for out, given in (*answer.aliases, *answer.views):
        if out >= outputs or given >= inputs:
            # A kernel declares aliases for its whole form; a node may leave parts out.
            continue
        if out < 0 or given < 0:
            return f"the alias ({out}, {given})"
    if any(index < 0 for index in answer.host_inputs):
        return f"host inputs {sorted(answer.host_inputs)}"
    return None
