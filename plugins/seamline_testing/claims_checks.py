"""
Claims: each depends on the node alone, says why, and can be kept.

Nothing is run here. What is claimed is built, in its sized form, since an offer that
cannot be built is worse than a refusal: it is found only when a session is under way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import onnx
from onnx import helper

from seamline.claims import ask, is_core
from seamline.engine import Kept
from seamline.errors import BuildError, ContractError
from seamline.provider import Claim, NodeView, Provider, Refusal, SegmentSpec
from seamline.tensors import TensorType
from seamline_testing.claiming import claimed_samples
from seamline_testing.driving import driven
from seamline_testing.results import Check
from seamline_testing.samples import SAMPLES, Sample, views_in
from seamline_testing.subject import Subject
from seamline_testing.suites import Case, node_cases
from seamline_testing.verdicts import (
    Settled,
    asked,
    declined,
    found,
    opened,
    question,
    violation,
)

__all__ = ["checks"]

_OPEN = ("", "sizes", "types")  #: what a sample leaves open: nothing, sizes, all types


def checks(subject: Subject, quick: bool) -> tuple[Check, ...]:
    """Give the questions; all but a ``quick`` run ask about ONNX's node suite as well."""
    asked_always = (
        question("claims/same-answer", _same_answer),
        question("claims/reasons", _reasons),
        question("claims/nobody's-operator", _nobodys_operator),
        question("claims/open-sizes", _open_sizes),
        question("claims/indices", _indices),
        question("claims/builds", _builds),
    )
    return asked_always if quick else (*asked_always, *_suite())


def _said(provider: Provider, view: NodeView) -> Claim | Refusal:
    """Ask; an answer that is neither, or a refusal without a reason, ends the check."""
    answer = ask(provider, view)
    if isinstance(answer, ContractError):
        violation(str(answer))
    if isinstance(answer, Refusal) and not answer.because.strip():
        violation(f"{view.node.qualified_op} is refused with a blank reason")
    return answer


def _what(view: NodeView) -> str:
    kinds = ", ".join(str(kind) for kind in view.inputs)
    return f"{view.node.qualified_op}({kinds})"


# --- samples --------------------------------------------------------------------------


def _same_answer(subject: Subject) -> None:
    """Ask in two orders, of two providers, about equal nodes of three models."""
    with opened(subject) as one, opened(subject) as other:
        samples: tuple[Sample, ...] = SAMPLES
        asks = _asks(samples)
        first = [_said(one, view) for _, view in asks]
        if not any(isinstance(said, Claim) for said in first):
            samples = claimed_samples(one, len(SAMPLES))
            asks = _asks(samples)
            first = [_said(one, view) for _, view in asks]
        again = [view for _, view in _asks(samples)]
        backwards = [_said(one, view) for _, view in reversed(asks)][::-1]
        _hold(asks, first, backwards, "when it is asked a second time")
        _hold(
            asks, first, [_said(one, v) for v in again], "for an equal node elsewhere"
        )
        _hold(asks, first, [_said(other, v) for _, v in asks], "from another session's")
        grown = [(s.name, view) for s in samples for view in _with_a_reader(s)]
        plain = [_said(one, view) for s in samples for view in s.views()]
        seen = [_said(one, view) for _, view in grown]
        _hold(grown, plain, seen, "where another node reads its output")
        _hold_names(one, samples)
        sample = claimed_samples(one, 1)[0]
        with suppress(Settled), driven(one, sample) as made:
            made.run(sample.feeds(0))  # how it runs is for others to judge
        later = [_said(one, view) for _, view in asks]
        _hold(asks, first, later, "after it has run something")


def _asks(samples: Iterable[Sample]) -> list[tuple[str, NodeView]]:
    return [(s.name, view) for s in samples for o in _OPEN for view in s.views(o)]


def _hold(
    asks: list[tuple[str, NodeView]],
    first: list[Claim | Refusal],
    then: list[Claim | Refusal],
    when: str,
) -> None:
    for (name, view), one, other in zip(asks, first, then, strict=True):
        if one != other:
            violation(f"{name}: {_what(view)}: {one}, and {when}: {other}")


#: A pangram, so that nobody's rule about names is met by chance.
_NAME = "Sphinx_of_black_quartz,_judge_my_vow_0123456789"


def _hold_names(provider: Provider, samples: Iterable[Sample]) -> None:
    """Ask about nodes of another name; what is said may name them, so only that counts."""
    for sample in samples:
        model = sample.model()
        for index, node in enumerate(model.graph.node):
            node.name = f"{_NAME}/{index}"
        for view, named in zip(sample.views(), views_in(model), strict=True):
            one, other = _said(provider, view), _said(provider, named)
            if type(one) is not type(other):
                violation(
                    f"{sample.name}: {_what(view)}: {one} under the name {view.name!r}, "
                    f"and under {named.name!r}: {other}"
                )


def _with_a_reader(sample: Sample) -> tuple[NodeView, ...]:
    model = sample.model()
    graph = model.graph
    reader = helper.make_node("Identity", [graph.output[0].name], ["more"], name="more")
    graph.node.append(reader)
    graph.output.append(helper.make_empty_tensor_value_info("more"))
    return views_in(model)[:-1]


def _reasons(subject: Subject) -> None:
    with opened(subject) as provider:
        for _, view in _asks(SAMPLES):
            _said(provider, view)
        for _, view in _asks(claimed_samples(provider, len(SAMPLES))):
            _said(provider, view)


def _nobodys_operator(subject: Subject) -> None:
    """Ask about an operator, a domain and a version that nobody can have implemented."""
    forms = (("NoSuchOperator", "", 18), ("Relu", "no.such.domain", 1))
    with opened(subject) as provider:
        for op, domain, version in forms:
            node = helper.make_node(op, ["x"], ["y"], name="nobody's", domain=domain)
            info = helper.make_tensor_value_info
            kind = onnx.TensorProto.FLOAT
            ends = [info("x", kind, [2])], [info("y", kind, [2])]
            opsets = [helper.make_opsetid(domain, version)]
            graph = helper.make_graph([node], "nobody's", *ends)
            model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
            (view,) = views_in(model)
            if isinstance(_said(provider, view), Claim):
                violation(f"it claims {view.node.qualified_op}, which nobody defines")
        claimed_samples(provider, 1)


def _open_sizes(subject: Subject) -> None:
    """Ask before sizes, or even types, are known."""
    with opened(subject) as provider:
        for sample in claimed_samples(provider, len(SAMPLES)):
            for open_ in ("sizes", "types"):
                for view in sample.views(open_):
                    _in_range(view, _said(provider, view))


def _indices(subject: Subject) -> None:
    with opened(subject) as provider:
        for sample in claimed_samples(provider, len(SAMPLES)):
            for view in sample.views():
                _in_range(view, _said(provider, view))


def _in_range(view: NodeView, said: Claim | Refusal) -> None:
    """Hold the indices of a claim to the operator's form, of which a node uses a part."""
    if isinstance(said, Refusal):
        return
    inputs, outputs = _most(view)
    for what, pairs in (("alias", said.aliases), ("view", said.views)):
        for out, given in pairs:
            if not (0 <= out < outputs and 0 <= given < inputs):
                violation(
                    f"{_what(view)}: its claim has the {what} ({out}, {given}); the "
                    f"operator has {outputs} outputs and {inputs} inputs"
                )
    for index in (*said.host_inputs, *said.lazy_weights):
        if not 0 <= index < inputs:
            violation(f"{_what(view)}: its claim names input {index} of {inputs}")
    for what in ("workspace_nbytes", "resident_nbytes"):
        nbytes = getattr(said, what)
        if not isinstance(nbytes, int) or nbytes < 0:
            violation(f"{_what(view)}: its claim has {what}={nbytes!r}")


def _most(view: NodeView) -> tuple[int, int]:
    """Give how many inputs and outputs the operator can have."""
    node = view.node
    try:
        schema = onnx.defs.get_schema(node.op_type, node.since_version, node.domain)
    except onnx.defs.SchemaError:
        return len(node.inputs), len(node.outputs)
    most_in = max(len(node.inputs), schema.max_input)
    return most_in, max(len(node.outputs), schema.max_output)


def _builds(subject: Subject) -> None:
    with opened(subject) as provider:
        for sample in claimed_samples(provider, len(SAMPLES)):
            driven(provider, sample).close()


# --- ONNX's node suite ----------------------------------------------------------------


def _suite() -> tuple[Check, ...]:
    by_operator: dict[str, list[Case]] = defaultdict(list)
    for case in node_cases():
        if case.only_node is not None:
            by_operator[case.operator].append(case)
    return tuple(
        Check(
            f"claims/suite/{op}",
            "claims",
            found(partial(_suite_of, tuple(cases))),
            operator=op,
        )
        for op, cases in sorted(by_operator.items())
    )


def _suite_of(cases: tuple[Case, ...], subject: Subject) -> None:
    """Ask twice about every case of an operator, and build what is claimed."""
    refused = ""
    claimed = 0
    with opened(subject) as provider:
        for case in cases:
            for view in views_in(case.model):
                if is_core(view.node):
                    continue
                said = _said(provider, view)
                if (then := _said(provider, view)) != said:
                    violation(f"{case.id}: {said}, and when it is asked again: {then}")
                if isinstance(said, Refusal):
                    refused = refused or str(said)
                    continue
                claimed += 1
                _in_range(view, said)
                _build(provider, view, said, case)
    if not claimed:
        declined(refused or "the core runs it")


def _build(provider: Provider, view: NodeView, said: Claim, case: Case) -> None:
    node = view.node
    sized = [
        not name or (isinstance(kind, TensorType) and kind.is_sized)
        for name, kind in (
            *zip(node.inputs, view.inputs, strict=True),
            *zip(node.outputs, view.outputs, strict=True),
        )
    ]
    if not all(sized) and not said.sizes_at_run:
        return  # the core builds it once its sizes are found
    opsets = {one.domain: one.version for one in case.model.opset_import}
    inputs = tuple(
        dict.fromkeys(name for name in node.reads if view.constants(name) is None)
    )
    spec = SegmentSpec(case.id, (view,), inputs, node.writes, opsets)
    with asked(f"build() of {case.id}", BuildError):
        provider.build(spec, Kept({})).close()
