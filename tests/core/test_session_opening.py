"""Opening: providers, options and pins, in ONNX Runtime's forms."""

import warnings

import numpy as np
import pytest
from tests.core.arithmetic import model, open_session

from seamline.errors import (
    PinError,
    PlanError,
    ProviderOptionError,
    UnavailableProviderError,
    UnclaimedNodeError,
    UnknownProviderError,
)
from seamline.session_options import (
    ExecutionMode,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from seamline.settings import Settings
from seamline.unsupported import UnsupportedError, UnusedOptionWarning

TWO_NODES = "g (float[2] x) => (float[2] y) { t = Mul(x, x)  y = Add(t, x) }"
BY_NAME = "session.name_based_layer_assignment"
BY_ANNOTATION = "session.layer_assignment_settings"


def named(text, *names):
    proto = model(text)
    for node, name in zip(proto.graph.node, names, strict=True):
        node.name = name
    return proto


def runs(session):
    return {
        node.name: part.ep_name
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    }


# --- providers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("providers", "options"),
    [
        ([("arithmetic", {"flavour": "sharp"})], None),
        (["arithmetic"], [{"flavour": "sharp"}]),
        ([("ArithmeticExecutionProvider", {"flavour": "sharp"})], None),
    ],
    ids=["pairs", "two lists", "alias"],
)
def test_options_come_in_both_forms_and_under_aliases(providers, options):
    with open_session(TWO_NODES, None, providers, options) as session:
        assert session.get_providers() == ["arithmetic"]
        assert session.get_provider_options()["arithmetic"]["flavour"] == "sharp"


def test_the_first_provider_that_claims_a_node_runs_it():
    with open_session(
        named(TWO_NODES, "m", "a"), None, ["lesser", "arithmetic"]
    ) as session:
        assert session.get_providers() == ["lesser", "arithmetic"]
        assert runs(session) == {"m": "lesser", "a": "arithmetic"}
        assert session.run(None, {"x": [2, 3]})[0].tolist() == [6, 12]


def test_a_provider_named_twice_counts_once_and_warns():
    twice = [("arithmetic", {"flavour": "first"}), "ArithmeticExecutionProvider"]
    with (
        pytest.warns(UserWarning, match="'ArithmeticExecutionProvider' is named twice"),
        open_session(TWO_NODES, None, twice) as session,
    ):
        assert session.get_provider_options()["arithmetic"]["flavour"] == "first"


@pytest.mark.parametrize(
    ("providers", "options", "kind", "said"),
    [
        ([("arithmetic", {})], [{}], ValueError, "not in both"),
        (
            ["arithmetic"],
            [{}, {}],
            ValueError,
            "provider_options has 2 entries, providers has 1",
        ),
        ([3], None, TypeError, r"a provider is a name or \(name, options\), not 3"),
        (["arithmetik"], None, UnknownProviderError, "did you mean 'arithmetic'"),
        (
            [("arithmetic", {"flavor": 1})],
            None,
            ProviderOptionError,
            "did you mean 'flavour'",
        ),
        (
            ["absent"],
            None,
            UnavailableProviderError,
            "there is no such machine. To fix: buy one",
        ),
    ],
    ids=["mixed", "lengths", "no name", "unknown", "option", "unavailable"],
)
def test_what_names_no_usable_provider_is_refused(providers, options, kind, said):
    with pytest.raises(kind, match=said):
        open_session(TWO_NODES, None, providers, options)


def test_a_node_that_no_named_provider_claims_is_an_error():
    with pytest.raises(UnclaimedNodeError, match="no kernel for Add"):
        open_session(TWO_NODES, None, ["lesser"])


def test_providers_of_the_options_are_used_where_none_are_named():
    options = SessionOptions()
    options.add_provider("arithmetic", {"flavour": "sharp"})
    assert options.has_providers()
    with open_session(TWO_NODES, options, None) as session:
        assert session.get_provider_options()["arithmetic"]["flavour"] == "sharp"


def test_other_providers_can_be_set_later_and_a_failure_changes_nothing():
    feeds = {"x": np.array([2, 3], np.float32)}
    with open_session(named(TWO_NODES, "m", "a")) as session:
        assert runs(session) == {"m": "arithmetic", "a": "arithmetic"}
        with pytest.raises(UnclaimedNodeError):
            session.set_providers(["lesser"])
        assert session.run(None, feeds)[0].tolist() == [6, 12]
        session.set_providers(["lesser", "arithmetic"])
        assert runs(session) == {"m": "lesser", "a": "arithmetic"}
        assert session.run(None, feeds)[0].tolist() == [6, 12]


def test_threads_become_the_option_of_providers_that_have_it_and_were_not_told():
    options = SessionOptions()
    options.intra_op_num_threads = 3
    with open_session(TWO_NODES, options) as session:
        assert session.get_provider_options()["arithmetic"]["num_threads"] == 3
    told = [("arithmetic", {"num_threads": 1})]
    with open_session(TWO_NODES, options, told) as session:
        assert session.get_provider_options()["arithmetic"]["num_threads"] == 1


def test_threads_that_no_provider_takes_are_named():
    options = SessionOptions(intra_op_num_threads=3)
    with (
        pytest.warns(UnusedOptionWarning, match="intra_op_num_threads=3"),
        open_session(
            "g (float[2] x) => (float[2] y) { y = Mul(x, x) }", options, ["lesser"]
        ),
    ):
        pass


# --- pins -----------------------------------------------------------------------------------------


def test_a_pin_puts_a_node_on_a_provider():
    both = ["lesser", "arithmetic"]
    with open_session(
        named(TWO_NODES, "m", "a"), None, both, pins={"m": "arithmetic"}
    ) as session:
        assert runs(session)["m"] == "arithmetic"


def test_layers_are_assigned_by_parts_of_names():
    options = SessionOptions()
    options.add_session_config_entry(BY_NAME, "lesser(layers.0/)")
    proto = named(TWO_NODES, "layers.0/mul", "layers.1/add")
    with open_session(proto, options, ["arithmetic", "lesser"]) as session:
        assert runs(session) == {"layers.0/mul": "lesser", "layers.1/add": "arithmetic"}


def test_layers_are_assigned_by_annotations():
    proto = named(TWO_NODES, "m", "a")
    for node, said in zip(proto.graph.node, ("encoder_0", "decoder_0"), strict=True):
        node.metadata_props.add(key="layer_ann", value=said)
    options = SessionOptions()
    options.add_session_config_entry(
        BY_ANNOTATION, "lesser(enc); arithmetic(=decoder_0)"
    )
    with open_session(proto, options, ["arithmetic", "lesser"]) as session:
        assert runs(session) == {"m": "lesser", "a": "arithmetic"}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({BY_NAME: "lesser(m", }, r"is not device\(pattern, ...\)"),
        ({BY_NAME: "lesser(=m)"}, "asks for an exact match"),
        ({BY_NAME: "lesser(nowhere)"}, "matches no node name"),
        ({BY_NAME: "lesser(m,)"}, "has an empty pattern"),
        ({BY_ANNOTATION: "lesser(enc)"}, "matches no node's layer_ann"),
        ({BY_NAME: "lesser(m)", BY_ANNOTATION: "lesser(m)"}, "are both set"),
    ],
    ids=["grammar", "exact", "nothing", "empty", "no annotation", "both"],
)  # fmt: skip
def test_an_assignment_that_cannot_be_kept_is_refused(entries, said):
    options = SessionOptions()
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    with pytest.raises(PinError, match=said):
        open_session(named(TWO_NODES, "m", "a"), options, ["arithmetic", "lesser"])


# --- options ----------------------------------------------------------------------------------------


def test_options_without_effect_are_named_in_one_warning():
    options = SessionOptions()
    options.enable_mem_pattern = False
    options.execution_mode = ExecutionMode.ORT_PARALLEL
    options.add_session_config_entry("session.disable_cpu_ep_falback", "1")
    with pytest.warns(UnusedOptionWarning) as caught, open_session(TWO_NODES, options):
        pass
    (warning,) = caught
    for part in (
        "enable_mem_pattern=False",
        "execution_mode=",
        "did you mean 'session.disable_cpu",
    ):
        assert part in str(warning.message)


def test_default_options_warn_of_nothing():
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_session(TWO_NODES, options).close()


def test_the_cpu_fallback_key_and_the_keyword_may_not_contradict():
    options = SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "0")
    with pytest.raises(PlanError, match="contradict each other"):
        open_session(TWO_NODES, options, fallback="error")
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(UnclaimedNodeError):
        open_session(TWO_NODES, options, ["lesser"])


def test_the_cpu_fallback_key_lets_cpu_take_what_is_left():
    options = SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "0")
    with open_session(
        named(TWO_NODES, "m", "a"),
        options,
        ["lesser"],
        settings=Settings(allow=("seamline",)),
    ) as session:
        assert runs(session) == {"m": "lesser", "a": "cpu"}
        assert session.run(None, {"x": [2, 3]})[0].tolist() == [6, 12]


def test_config_entries_are_text_and_can_be_read_back():
    options = SessionOptions()
    options.add_session_config_entry(BY_NAME, "cpu(a)")
    assert options.get_session_config_entry(BY_NAME) == "cpu(a)"
    with pytest.raises(KeyError, match="no config entry 'nothing'"):
        options.get_session_config_entry("nothing")
    with pytest.raises(TypeError, match="a config entry is text"):
        options.add_session_config_entry("a", 1)
    with pytest.raises(ValueError, match="takes '0' or '1'"):
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "yes")


@pytest.mark.parametrize("bad", [-1, True, 1.5, "2"])
def test_a_count_of_threads_is_a_count(bad):
    with pytest.raises(ValueError, match="intra_op_num_threads is a count"):
        SessionOptions().intra_op_num_threads = bad


def test_what_cannot_be_honoured_is_refused_with_what_to_do():
    options, run = SessionOptions(), RunOptions()
    for call in (
        lambda: options.add_initializer("w", None),
        lambda: options.add_provider_for_devices([]),
        lambda: options.set_provider_selection_policy(0),
        lambda: options.set_provider_selection_policy_delegate(print),
        lambda: options.register_custom_ops_library("x.so"),
        lambda: options.set_load_cancellation_flag(True),
        lambda: run.add_active_adapter(None),
    ):
        with pytest.raises(UnsupportedError) as caught:
            call()
        assert caught.value.instead
        assert isinstance(caught.value, NotImplementedError)
    options.set_load_cancellation_flag(False)


def test_a_session_refuses_what_it_has_not_and_says_why():
    with open_session(TWO_NODES) as session:
        assert not hasattr(session, "get_input_memory_infos")
        with pytest.raises(UnsupportedError, match="inputs are fed from the host"):
            session.get_input_memory_infos()
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = session.nothing
        session.disable_fallback()
        for call in (
            session.enable_fallback,
            lambda: session.set_ep_dynamic_options({}),
            session.release_captured_graph,
        ):
            with pytest.raises(UnsupportedError):
                call()


def test_onnx_runtimes_own_keywords_are_named_and_others_refused():
    with (
        pytest.warns(UnusedOptionWarning, match="disabled_optimizers"),
        open_session(TWO_NODES, disabled_optimizers=["all"]),
    ):
        pass
    with pytest.raises(TypeError, match="no keyword 'pin'; did you mean 'pins'"):
        open_session(TWO_NODES, pin={})


# --- what it tells ----------------------------------------------------------------------------------


def test_a_session_describes_its_model():
    proto = model("g (float[N, 3] x, int64 s) => (float[N, 3] y) { y = Add(x, x) }")
    proto.producer_name, proto.domain, proto.model_version = "maker", "org.example", 7
    proto.doc_string, proto.graph.doc_string = "about", "inside"
    proto.metadata_props.add(key="author", value="me")
    with open_session(proto) as session:
        assert [(a.name, a.type, a.shape) for a in session.get_inputs()] == [
            ("x", "tensor(float)", ["N", 3]),
            ("s", "tensor(int64)", []),
        ]
        assert [(a.name, a.type, a.shape) for a in session.get_outputs()] == [
            ("y", "tensor(float)", ["N", 3])
        ]
        meta = session.get_modelmeta()
    assert (meta.producer_name, meta.domain, meta.version) == (
        "maker",
        "org.example",
        7,
    )
    assert (meta.description, meta.graph_description, meta.graph_name) == (
        "about",
        "inside",
        "g",
    )
    assert meta.custom_metadata_map == {"author": "me"}


def test_a_session_explains_who_runs_what():
    with open_session(
        named(TWO_NODES, "m", "a"), None, ["lesser", "arithmetic"]
    ) as session:
        text = str(session.explain())
    assert "lesser" in text
    assert "arithmetic" in text
