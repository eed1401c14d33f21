"""What a session tells of its model, under ONNX Runtime's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seamline.errors import FeedError, near
from seamline.metadata import (
    ModelMetadata,
    NodeArg,
    OrtEpAssignedSubgraph,
    assigned_subgraphs,
    model_metadata,
)
from seamline.ortvalue import OrtValue
from seamline.profiling import SessionProfile
from seamline.session_options import SessionOptions
from seamline.tensors import ValueType
from seamline.unsupported import UnsupportedAttributeError, UnsupportedError

if TYPE_CHECKING:
    from seamline.explain import Explanation
    from seamline.pipeline import Pipeline
    from seamline.state_store import States

__all__ = ["SessionFacts"]

_ABSENT = {
    "get_input_memory_infos": "inputs are fed from the host",
    "get_output_memory_infos": "outputs are given on the host",
    "get_input_epdevices": "get_provider_graph_assignment_info says who runs what",
    "get_tuning_results": "nothing is tuned at run time",
    "set_tuning_results": "nothing is tuned at run time",
    "run_with_ortvaluevector": "use run_with_ort_values or run_with_iobinding",
}


class SessionFacts:
    """The part of a session that only answers."""

    _pipeline: Pipeline
    _options: SessionOptions
    _profile: SessionProfile
    _inputs: dict[str, ValueType | None]
    _overridable: dict[str, ValueType | None]
    _outputs: dict[str, ValueType | None]
    _output_names: tuple[str, ...]

    if not TYPE_CHECKING:

        def __getattr__(self, name):  # noqa: ANN001, ANN204
            """Say of what ONNX Runtime's sessions have and this one does not, why."""
            if name in _ABSENT:
                raise UnsupportedAttributeError(
                    f"InferenceSession.{name}", _ABSENT[name]
                )
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)

    @property
    def states(self) -> States:
        """Give what is kept between runs: ``read``, ``write``, ``truncate``, ``reset``."""
        return self._pipeline.states

    def get_inputs(self) -> list[NodeArg]:
        """Describe the inputs that a run is fed, in the order of the model; no states."""
        return [NodeArg.of(name, kind) for name, kind in self._inputs.items()]

    def get_outputs(self) -> list[NodeArg]:
        """Describe the outputs that a run gives, in the order of the model; no states."""
        return [NodeArg.of(name, self._outputs[name]) for name in self._output_names]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Describe the inputs that have a value in the model and may be fed all the same."""
        return [NodeArg.of(name, kind) for name, kind in self._overridable.items()]

    def get_modelmeta(self) -> ModelMetadata:
        """Give what the model file says of itself."""
        return model_metadata(self._pipeline.graph)

    def output_type(self, name: str) -> ValueType | None:
        """Give the type of an output, as seamline writes it; None where unknown."""
        return self._outputs[self._fetches([name])[0]]

    def get_session_options(self) -> SessionOptions:
        """Give the options that it was opened with; changing them now has no effect."""
        return self._options

    def get_providers(self) -> list[str]:
        """Give the providers' own names in order of precedence."""
        return list(self._pipeline.providers)

    def get_provider_options(self) -> dict[str, dict[str, Any]]:
        """Give the options in force, defaults included, by provider."""
        return {
            name: dict(given) for name, given in self._pipeline.provider_options.items()
        }

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Say which provider runs which nodes, those of bodies after their owner."""
        return assigned_subgraphs(
            self._pipeline.graph.walk(), self._pipeline.assignments()
        )

    def explain(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Explanation:
        """
        Explain who runs what and why, and where the seams are; ``str`` of it is text.

        Parameters
        ----------
        shapes
            Sizes of inputs by name; those of the last run where left out, or else as
            declared, with 1 for every size that is not.
        """
        return self._pipeline.explain(shapes)

    def get_profiling_start_time_ns(self) -> int:
        """Give the ``time.perf_counter_ns`` at which the profile began; 0 without one."""
        return self._profile.start_ns

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """Allocate a tensor of zeros on the host; see :class:`OrtValue`."""
        return OrtValue.ortvalue_from_shape_and_type(
            shape, element_type, device_type, device_id
        )

    def disable_fallback(self) -> None:
        """Do nothing: a run never moves to another provider."""

    def enable_fallback(self) -> None:
        """Refuse: a run never moves to another provider."""
        raise UnsupportedError(
            "enable_fallback",
            "open the session with fallback='allow', which decides per node",
        )

    def set_ep_dynamic_options(self, options: object) -> None:
        """Refuse: options are fixed at opening."""
        raise UnsupportedError(
            "set_ep_dynamic_options", "set_providers opens the model with other options"
        )

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Refuse: recordings belong to programs."""
        raise UnsupportedError(
            "release_captured_graph",
            "the session keeps as many programs as programs= says",
        )

    def _fetches(self, names: Sequence[str] | None) -> list[str]:
        if not names:
            return list(self._output_names)
        for name in names:
            if name not in self._outputs:
                known = ", ".join(self._outputs)
                guess = near(str(name), self._outputs)
                raise FeedError(
                    f"Invalid output name: {name!r}{guess} (there are: {known})"
                )
        return list(names)
