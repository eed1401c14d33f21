"""What a session was opened with, and how that becomes a pipeline, at each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from seamline.errors import PinError, PlanError, near
from seamline.feeds import FeedCheck, with_sizes
from seamline.graph import Graph, load
from seamline.layer_rules import pins_by_annotation, pins_by_name
from seamline.pipeline import Pipeline
from seamline.profiling import SessionProfile
from seamline.provider_choice import ProviderEntry, choose_providers
from seamline.session_options import (
    DISABLE_CPU_FALLBACK,
    LAYERS_BY_ANNOTATION,
    LAYERS_BY_NAME,
    PRODUCTS_LEVEL,
    SessionOptions,
)
from seamline.states import State
from seamline.tensors import TensorType, ValueType
from seamline.unsupported import warn_unused

__all__ = [
    "Opening",
    "declared_inputs",
    "feed_check",
    "output_types",
    "take_keywords",
]

_ANNOTATION = "layer_ann"


@attrs.frozen(eq=False)
class Opening:
    """Everything but the providers, which a session may change."""

    source: Any
    options: SessionOptions
    pins: Mapping[str, str]
    fallback: Any
    seams: Any
    max_seams: int | None
    seam_form: Any
    limits: Any
    programs: int
    states: tuple[State, ...]
    settings: Any
    plugins: tuple[Any, ...]
    profile: SessionProfile

    def open(
        self,
        providers: Sequence[ProviderEntry] | None,
        provider_options: Sequence[Mapping[str, Any]] | None,
    ) -> Pipeline:
        """Open the model on providers; those of the options where none are named."""
        if not providers and self.options.has_providers():
            providers = self.options.providers
        chosen = choose_providers(
            providers,
            provider_options,
            num_threads=self.options.intra_op_num_threads,
            settings=self.settings,
            plugins=self.plugins,
        )
        with self.profile.span("session_initialization"):
            return Pipeline.open(
                self.source,
                providers=chosen,
                pins=self._all_pins(),
                fallback=self._fallback(),
                seams=self.seams,
                max_seams=self.max_seams,
                seam_form=self.seam_form,
                limits=self.limits,
                programs=self.programs,
                record=self.options.record_segments,
                verify_capture=self.options.verify_capture,
                graph_optimization_level=self.options.graph_optimization_level,
                accuracy_level=int(
                    self.options.config_entries.get(PRODUCTS_LEVEL, "0")
                ),
                deadline=self.options.provider_deadline,
                states=self.states,
                dims=self.options.dimensions_by_name,
                settings=self.settings,
                plugins=self.plugins,
            )

    def sizes_by_denotation(self) -> dict[str, dict[int, int]]:
        """Give the sizes that options fix by denotation, by input and axis."""
        sizes = self.options.dimensions_by_denotation
        fixed: dict[str, dict[int, int]] = {}
        if not sizes:
            return fixed
        # Inference rewrites shapes and drops denotations, so they are read from the file.
        graph = load(self.source, limits=self.limits)
        for name in graph.inputs:
            shape = graph.values[name].shape
            for axis in range(len(shape or ())):
                meant = shape.get_denotation(axis) if shape is not None else None
                if meant in sizes:
                    fixed.setdefault(name, {})[axis] = sizes[meant]
        return fixed

    def _fallback(self) -> Any:
        entry = self.options.config_entries.get(DISABLE_CPU_FALLBACK)
        if entry is None:
            return self.fallback or "error"
        meant = {"1": "error", "0": "allow"}[entry]
        if self.fallback not in (None, meant):
            raise PlanError(
                f"fallback={self.fallback!r} and config entry {DISABLE_CPU_FALLBACK}={entry!r}, "
                f"which stands for {meant!r}, contradict each other; give one of them"
            )
        return meant

    def _all_pins(self) -> dict[str, str]:
        entries = self.options.config_entries
        by_name, by_annotation = (
            entries.get(LAYERS_BY_NAME),
            entries.get(LAYERS_BY_ANNOTATION),
        )
        if by_name and by_annotation:
            raise PinError(
                f"{LAYERS_BY_NAME} and {LAYERS_BY_ANNOTATION} are both set; give one of them"
            )
        pins = dict(self.pins)
        if by_name:
            pins = {**pins_by_name(by_name), **pins}
        if by_annotation:
            said = _annotations(load(self.source, limits=self.limits))
            pins = {**pins_by_annotation(by_annotation, said), **pins}
        return pins


def _annotations(graph: Graph) -> dict[str, str]:
    said: dict[str, str] = {}
    for node in graph.walk():
        text = node.source.metadata_props.get(_ANNOTATION)
        if text:
            said[node.name] = text
    return said


def declared_inputs(
    graph: Graph, opening: Opening
) -> tuple[dict[str, ValueType | None], dict[str, ValueType | None]]:
    """Give the types of inputs to feed, states left out, and of those that have a value of their own."""
    needed: dict[str, ValueType | None] = {}
    overridable: dict[str, ValueType | None] = {}
    kept = {state.input for state in opening.states}
    by_axis = opening.sizes_by_denotation()
    for name in graph.inputs:
        if name in kept:
            continue
        kind = with_sizes(graph.types.get(name), opening.options.dimensions_by_name)
        kind = _with_axes(kind, by_axis.get(name, {}))
        (overridable if name in graph.overridable else needed)[name] = kind
    return needed, overridable


def feed_check(
    inputs: Mapping[str, ValueType | None],
    overridable: Mapping[str, ValueType | None],
    pipeline: Pipeline,
) -> FeedCheck:
    """Give the check for a session's feeds, which knows the devices that it runs on."""
    return FeedCheck(
        {**inputs, **overridable},
        overridable=overridable,
        memories=pipeline.engine.memories,
    )


def _with_axes(kind: ValueType | None, sizes: Mapping[int, int]) -> ValueType | None:
    if not sizes or not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    dims = [
        dim if isinstance(dim, int) else sizes.get(axis, dim)
        for axis, dim in enumerate(kind.shape)
    ]
    return TensorType(kind.dtype, tuple(dims))


def output_types(
    graph: Graph, inferred: Mapping[str, ValueType | None]
) -> dict[str, ValueType | None]:
    """Give the types of the outputs: as declared, or inferred where that says more."""
    return {
        name: _fuller(graph.types.get(name), inferred.get(name))
        for name in graph.outputs
    }


def _fuller(declared: ValueType | None, inferred: ValueType | None) -> ValueType | None:
    if declared is None:
        return inferred
    if isinstance(declared, TensorType) and declared.shape is None:
        return inferred or declared
    return declared


def take_keywords(given: Mapping[str, Any]) -> None:
    """Name keywords of ONNX Runtime that change nothing; refuse any other."""
    for name in given:
        if name not in _IGNORED_KEYWORDS:
            guess = near(
                name,
                (
                    *_IGNORED_KEYWORDS,
                    "pins",
                    "fallback",
                    "seams",
                    "seam_form",
                    "limits",
                ),
            )
            raise TypeError(f"InferenceSession takes no keyword {name!r}{guess}")
    warn_unused("InferenceSession", (f"{k}={v!r}" for k, v in given.items()))


_IGNORED_KEYWORDS = ("disabled_optimizers", "enable_fallback", "read_config_from_model")
