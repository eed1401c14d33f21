"""
Options of a session and of a run, under ONNX Runtime's names.

Every option of ONNX Runtime can be set. Those that change nothing here are named in one
:class:`~seamline.unsupported.UnusedOptionWarning` when a session is opened, or a run
started, with a value other than the default.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from seamline.errors import near
from seamline.levels import GraphOptimizationLevel
from seamline.states import State
from seamline.unsupported import UnsupportedError

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "RunOptions",
    "SessionOptions",
]


class ExecutionMode(enum.IntEnum):
    """Whether nodes run one after the other or side by side."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """In which of the permitted orders nodes run."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


DISABLE_CPU_FALLBACK = "session.disable_cpu_ep_fallback"
RECORD_ASSIGNMENT = "session.record_ep_graph_assignment_info"
LAYERS_BY_ANNOTATION = "session.layer_assignment_settings"
LAYERS_BY_NAME = "session.name_based_layer_assignment"
PRODUCTS_LEVEL = "session.qdq_matmulnbits_accuracy_level"
_SESSION_KEYS = (
    DISABLE_CPU_FALLBACK,
    RECORD_ASSIGNMENT,
    LAYERS_BY_ANNOTATION,
    LAYERS_BY_NAME,
    PRODUCTS_LEVEL,
)
_FLAGS = (DISABLE_CPU_FALLBACK, RECORD_ASSIGNMENT)


def _count(owner: object, field: attrs.Attribute[int], value: object) -> None:
    if type(value) is not int or value < 0:
        raise ValueError(f"{field.name} is a count, 0 or more; it was given {value!r}")


def _seconds(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (not isinstance(value, int | float) or not value > 0):
        raise ValueError(
            f"{field.name} is in seconds, above 0, or None; it was given {value!r}"
        )


def _states(given: Iterable[State]) -> tuple[State, ...]:
    return tuple(given)


def _config_pair(key: object, value: object) -> tuple[str, str]:
    if not isinstance(key, str) or not isinstance(value, str) or not key:
        raise TypeError(f"a config entry is text under a name, not {key!r}: {value!r}")
    return key, value


def _changed(owner: Any, names: tuple[str, ...]) -> list[str]:
    """Name the fields among ``names`` that do not hold their defaults."""
    fields = attrs.fields_dict(type(owner))
    return [
        f"{name}={getattr(owner, name)!r}"
        for name in names
        if getattr(owner, name) != fields[name].default
    ]


@attrs.define(eq=False)
class SessionOptions:
    """
    Options of a session.

    These have an effect: ``enable_profiling``, ``profile_file_prefix``,
    ``intra_op_num_threads`` (the option ``num_threads`` of providers that have it),
    ``graph_optimization_level`` (see :mod:`seamline.optimization`), the free dimension
    overrides, the providers added, and these config entries:

    ``session.disable_cpu_ep_fallback``
        "1" stands for ``fallback="error"``, "0" for ``fallback="allow"``.
    ``session.record_ep_graph_assignment_info``
        Taken, whichever value; the information is always recorded.
    ``session.name_based_layer_assignment``, ``session.layer_assignment_settings``
        Pins; see :mod:`seamline.layer_rules`.
    ``session.qdq_matmulnbits_accuracy_level``
        "0" to "4": MatMulNBits' level for products that are made of dequantised weights.
        Without it they are exact ("0"), where ONNX Runtime has "4".

    Four are seamline's own: ``states`` (inputs kept between runs), ``record_segments`` (True: segments of providers that can
    are recorded at their second run), ``verify_capture`` (how many replays of each
    recording are compared with a run) and ``provider_deadline`` (seconds that one call on
    a provider may take; None: no limit).

    Examples
    --------
    >>> options = SessionOptions()
    >>> options.enable_mem_pattern = False
    >>> options.unused()
    ['enable_mem_pattern=False']
    """

    enable_profiling: bool = False
    profile_file_prefix: str = "seamline_profile_"
    intra_op_num_threads: int = attrs.field(default=0, validator=_count)
    inter_op_num_threads: int = attrs.field(default=0, validator=_count)
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    graph_optimization_level: GraphOptimizationLevel = (
        GraphOptimizationLevel.ORT_ENABLE_ALL
    )
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    record_segments: bool = True
    verify_capture: int = attrs.field(default=0, validator=_count)
    provider_deadline: float | None = attrs.field(default=None, validator=_seconds)
    states: tuple[State, ...] = attrs.field(default=(), converter=_states)
    config_entries: dict[str, str] = attrs.field(factory=dict, init=False)
    dimensions_by_name: dict[str, int] = attrs.field(factory=dict, init=False)
    dimensions_by_denotation: dict[str, int] = attrs.field(factory=dict, init=False)
    providers: list[tuple[str, dict[str, Any]]] = attrs.field(factory=list, init=False)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a config entry; both are text, as in ONNX Runtime."""
        key, value = _config_pair(key, value)
        if key in _FLAGS and value not in ("0", "1"):
            raise ValueError(f"{key} takes '0' or '1'; it was given {value!r}")
        if key == PRODUCTS_LEVEL and value not in ("0", "1", "2", "3", "4"):
            raise ValueError(f"{key} takes '0' to '4'; it was given {value!r}")
        self.config_entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """
        Give a config entry.

        Raises
        ------
        KeyError
            It was not set; names those that are close.
        """
        if key not in self.config_entries:
            raise KeyError(f"no config entry {key!r}{near(key, self.config_entries)}")
        return self.config_entries[key]

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the size of every input dimension that carries a symbol of this name."""
        self.dimensions_by_name[name] = _size(name, size)

    def add_free_dimension_override_by_denotation(
        self, denotation: str, size: int
    ) -> None:
        """Fix the size of every input dimension that has this denotation."""
        self.dimensions_by_denotation[denotation] = _size(denotation, size)

    def add_provider(
        self, provider: str, provider_options: Mapping[str, Any] | None = None
    ) -> None:
        """Add a provider after those added before; used where the session names none."""
        self.providers.append((provider, dict(provider_options or {})))

    def has_providers(self) -> bool:
        """Tell whether providers were added."""
        return bool(self.providers)

    def add_initializer(self, name: str, ortvalue: object) -> None:
        """Refuse: weights come from the model."""
        raise UnsupportedError(
            f"add_initializer({name!r})",
            "store the tensor in the model, or make it an input",
        )

    def add_provider_for_devices(self, devices: object, options: object = None) -> None:
        """Refuse: providers are named."""
        raise UnsupportedError(
            "add_provider_for_devices", "name it with add_provider(name)"
        )

    def set_provider_selection_policy(self, policy: object) -> None:
        """Refuse: the order of the providers is the policy."""
        raise UnsupportedError(
            "set_provider_selection_policy", "list providers in order of precedence"
        )

    def set_provider_selection_policy_delegate(self, delegate: object) -> None:
        """Refuse: the order of the providers is the policy."""
        raise UnsupportedError(
            "set_provider_selection_policy_delegate",
            "list providers in order of precedence",
        )

    def register_custom_ops_library(self, path: str) -> None:
        """Refuse: operators come from providers."""
        raise UnsupportedError(
            f"register_custom_ops_library({path!r})",
            "its ABI is ONNX Runtime's; offer the operator from a provider plugin",
        )

    def set_load_cancellation_flag(self, cancel: bool) -> None:
        """Refuse to cancel; False, the default, is taken."""
        if cancel:
            raise UnsupportedError(
                "set_load_cancellation_flag(True)", "do not open the model"
            )

    def unused(self) -> list[str]:
        """Name what was set and changes nothing."""
        named = _changed(self, _UNUSED_SESSION)
        unknown = [key for key in self.config_entries if key not in _SESSION_KEYS]
        return named + [
            f"config entry {key!r}{near(key, _SESSION_KEYS)}" for key in unknown
        ]


_UNUSED_SESSION = (
    "inter_op_num_threads", "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse",
    "execution_mode", "execution_order", "log_severity_level", "log_verbosity_level",
    "logid", "optimized_model_filepath", "use_deterministic_compute",
    "use_per_session_threads",
)  # fmt: skip


def _size(name: str, size: int) -> int:
    if type(size) is not int or size < 0:
        raise ValueError(f"dimension {name!r} takes a size of 0 or more, not {size!r}")
    return size


@attrs.define(eq=False)
class RunOptions:
    """
    Options of a run.

    ``terminate`` set before a run makes it raise; a run under way is not stopped. Config
    entries change nothing.
    """

    terminate: bool = False
    only_execute_path_to_fetches: bool = False
    logid: str = ""
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    training_mode: bool = False
    config_entries: dict[str, str] = attrs.field(factory=dict, init=False)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set a config entry; both are text."""
        key, value = _config_pair(key, value)
        self.config_entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """Give a config entry; raises KeyError where it was not set."""
        if key not in self.config_entries:
            raise KeyError(f"no config entry {key!r}{near(key, self.config_entries)}")
        return self.config_entries[key]

    def add_active_adapter(self, adapter: object) -> None:
        """Refuse: there are no adapters."""
        raise UnsupportedError("add_active_adapter", "merge the adapter into the model")

    def unused(self) -> list[str]:
        """Name what was set and changes nothing."""
        return _changed(self, _UNUSED_RUN) + [
            f"config entry {k!r}" for k in self.config_entries
        ]


_UNUSED_RUN = (
    "only_execute_path_to_fetches", "logid", "log_severity_level", "log_verbosity_level",
    "training_mode",
)  # fmt: skip
