"""
Cases of ONNX's node suite in the form of samples, which are driven through the contract.

The kit's own samples are of a few operators. A provider may claim none of those and still
has a life, threads and buffers that can be wrong, so for it the suite is searched, which
has a case of every operator.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
import onnx

from seamline.claims import collect, is_core
from seamline.errors import ModelError
from seamline.graph import Graph, load
from seamline.provider import Array, NodeView
from seamline.tensors import TensorType, type_of_array
from seamline_testing.definitions import NotDefinedError, defined
from seamline_testing.draws import property_of
from seamline_testing.samples import Sample, views_of
from seamline_testing.suites import Case, node_cases
from seamline_testing.values import widened

__all__ = ["CaseSample", "case_sample", "case_samples", "is_of_tensors"]

_SEEDS = 4  #: seeds whose values have to be defined; the checks ask for no others
_EACH = 2  #: cases of an operator and element type that are offered
_MOST = 1 << 15  #: elements of an input; a larger case only takes longer


@attrs.frozen(eq=False)
class CaseSample(Sample):
    """A case of the suite in the form that is driven: its values have types of their own."""

    case: Case = attrs.field(kw_only=True)

    def model(self, symbolic: str = "") -> onnx.ModelProto:
        """Give the model; ``symbolic``: ``sizes`` or ``types`` that it leaves open."""
        made = onnx.ModelProto()
        made.CopyFrom(self.case.model)
        if symbolic:
            for value in made.graph.input:
                _open(value, sizes=symbolic == "sizes")
            for value in made.graph.output:
                value.type.tensor_type.ClearField("shape")
        return made

    @functools.cached_property
    def read(self) -> tuple[Graph, Mapping[str, Any]]:
        """Give the model as a graph, with the types that its values have."""
        graph = load(self.case.model)
        types = collect(graph, ()).types  # no provider is asked: ONNX's own types
        outputs = zip(self.case.model.graph.output, self.case.stored(), strict=True)
        said = {proto.name: type_of_array(value) for proto, value in outputs}
        fed = {name: type_of_array(x) for name, x in self.case.feeds().items()}
        return graph, {**types, **said, **fed}

    @functools.cached_property
    def _views(self) -> tuple[NodeView, ...]:
        return views_of(*self.read)

    def views(self, symbolic: str = "") -> tuple[NodeView, ...]:
        """Give its nodes as a provider sees them."""
        return super().views(symbolic) if symbolic else self._views

    def feeds(self, seed: int) -> dict[str, Array]:
        """Give the case's own values, those of its first input moved on by the seed."""
        given = {
            name: np.ascontiguousarray(x).reshape(x.shape)
            for name, x in self.case.feeds().items()
            if name not in self.constants
        }
        if first := next(iter(given), ""):
            x = given[first]
            given[first] = np.roll(x.reshape(-1), seed).reshape(x.shape)
        return given

    def expected(self, feeds: Mapping[str, Array]) -> Array:
        """
        Give the output by definition, floats in float64.

        Raises
        ------
        NotDefinedError
            The kit has no definition for it.
        """
        return widened(defined(self.case.model, feeds, self.case.stored())[0])

    @functools.cached_property
    def is_judged(self) -> bool:
        """Tell whether every seed has a right value of the case's type, not all the same."""
        try:
            found = [self.expected(self.feeds(seed)) for seed in range(_SEEDS)]
            wanted = self.kind(self.outputs[0])
        except (NotDefinedError, ModelError):
            return False
        return (
            all(x.shape == wanted.sizes and np.isfinite(x).all() for x in found)
            and not np.array_equal(found[0], found[1])
        )  # fmt: skip


def _open(value: onnx.ValueInfoProto, *, sizes: bool) -> None:
    """Leave the sizes of an input open, or its rank too."""
    kind = value.type.tensor_type
    if not sizes:
        kind.ClearField("shape")
        return
    for axis, dim in enumerate(kind.shape.dim):
        dim.dim_param = f"{value.name}{axis}"


def is_of_tensors(case: Case) -> bool:
    """Tell whether a case takes and gives tensors alone."""
    values = [*case.data[0][0], *case.data[0][1]]
    return all(isinstance(value, (np.ndarray, onnx.TensorProto)) for value in values)


def case_sample(case: Case) -> CaseSample:
    """Give a case of one node as a sample."""
    held = {t.name: onnx.numpy_helper.to_array(t) for t in case.model.graph.initializer}
    shapes = {name: x.shape for name, x in case.feeds().items() if name not in held}
    name = case.id.rpartition("/")[2]
    nodes = tuple(case.model.graph.node)
    return CaseSample(name, case.dtype, nodes, shapes, held, _undefined, case=case)


def _undefined(*_: Array) -> Array:
    raise NotImplementedError("a case is judged by its operator's definition")


@functools.cache
def case_samples() -> tuple[CaseSample, ...]:
    """Give a few cases of each operator and type whose values several seeds can vary."""
    found: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in node_cases():
        if case.only_node is not None and is_of_tensors(case) and _varies(case):
            found[case.operator, case.dtype].append(case)
    kept = []
    for (operator, dtype), cases in found.items():
        # The newest version first; of equals, that which has more to be wrong in.
        cases.sort(key=lambda case: (-case.opset, -_elements(case)))
        for case in cases[:_EACH]:
            name = f"{operator}/{dtype}/{case.id.rpartition('/')[2]}"
            kept.append(attrs.evolve(case_sample(case), name=name))
    return tuple(filter(_drivable, kept))


def _varies(case: Case) -> bool:
    feeds = list(case.feeds().values())
    return (
        len(case.model.graph.output) == 1
        and not any(x.dtype.kind in "Oc" for x in feeds)
        and 1 < _elements(case) <= _MOST
        and property_of(case.operator, feeds) is None
    )


def _elements(case: Case) -> int:
    return next((x.size for x in case.feeds().values()), 0)


def _drivable(sample: CaseSample) -> bool:
    """Tell whether a provider and not the core runs it, and its sizes are known."""
    try:
        views = sample.views()
    except ModelError:
        return False
    sized = all(isinstance(sample.kind(name), TensorType) for name in sample.outputs)
    return bool(views) and sized and not any(is_core(view.node) for view in views)
