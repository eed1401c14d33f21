"""The commands run, explain and bench: what they print, write, and refuse in one line."""

import json
import sys
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest
from onnx import parser
from tests.core.installed_plugins import install

from seamline.cli import main
from seamline.samples import sample_feeds
from seamline.tensors import TensorType

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[N, 3] x, float[3] w) => (float[N, 3] y, float[N] total) {
  a = Mul (x, w)
  b = Abs (a)
  y = Add (b, x)
  axes = Constant <value: tensor = int64[1] {1}> ()
  total = ReduceSum <keepdims = 0> (y, axes)
}
"""

PLUGIN = """
import numpy as np
from seamline.hookspecs import hookimpl
from seamline.kernels import KernelTable, provider_spec
import attrs

CONTRACT_VERSION = 1
table = KernelTable("doubler")

@table.simple("Mul")
def mul(a, b):
    return a * b

def peer(model, threads):
    def run(feeds):
        x, w = feeds["x"], feeds["w"]
        y = np.abs(x * w) + x + np.float32({error})
        return [y, y.sum(axis=1)]
    return run

@hookimpl
def seamline_providers():
    return [attrs.evolve(provider_spec(table, summary="Mul"), peer=peer)]
"""


def value(x, w):
    y = np.abs(x * w) + x
    return y, y.sum(axis=1)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(MODEL).SerializeToString())
    return path


@pytest.fixture
def seamline(monkeypatch, capsys):
    """Give a function that runs the command as a shell does: status, output, errors."""
    monkeypatch.setattr("seamline.discovery._found", {})

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["seamline", *map(str, arguments)])
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def good(result):
    status, out, err = result
    assert status == 0, (out, err)
    return out


# -- run -----------------------------------------------------------------------------------


def test_a_run_makes_up_inputs_of_the_sizes_given_and_keeps_what_comes(
    seamline, model, tmp_path
):
    kept = tmp_path / "kept.npz"
    out = good(seamline("run", model, "--dim", "N=4", "--seed", 3, "--save", kept))
    assert "y: float32[4, 3]" in out
    assert "total: float32[4]" in out
    types = {"x": TensorType("float32", ("N", 3)), "w": TensorType("float32", (3,))}
    feeds = sample_feeds(types, dims={"N": 4}, seed=3)
    with np.load(kept) as arrays:
        for name, want in zip(("y", "total"), value(**feeds), strict=True):
            np.testing.assert_allclose(arrays[name], want, rtol=1e-5)
    assert [p.name for p in tmp_path.glob(".*")] == []


def test_inputs_come_from_files_and_from_json(seamline, model, tmp_path):
    x = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    np.save(tmp_path / "x.npy", x)
    out = good(
        seamline(
            "run",
            model,
            "--input",
            f"x={tmp_path / 'x.npy'}",
            "-i",
            "w=[1,2,-1]",
            "--json",
        )
    )
    facts = json.loads(out)
    want = value(x, np.array([1, 2, -1], np.float32))
    assert facts["model"] == str(model)
    assert [o["name"] for o in facts["outputs"]] == ["y", "total"]
    assert [o["type"] for o in facts["outputs"]] == ["float32[2, 3]", "float32[2]"]
    for output, array in zip(facts["outputs"], want, strict=True):
        np.testing.assert_allclose(output["values"], array.ravel()[:8], rtol=1e-6)


def test_a_shape_alone_is_enough(seamline, model):
    out = good(seamline("run", model, "--shape", "x=5,3"))
    assert "total: float32[5]" in out


def test_a_profile_is_a_trace_of_complete_events(seamline, model, tmp_path):
    trace = tmp_path / "trace.json"
    good(seamline("run", model, "--profile", trace))
    events = json.loads(trace.read_text(encoding="utf-8"))
    events = events["traceEvents"] if isinstance(events, dict) else events
    spans = [e for e in events if e.get("ph") == "X"]
    assert spans
    assert all(e["dur"] >= 0 for e in spans)


def test_providers_take_options_and_pins_place_nodes(seamline, model):
    out = good(
        seamline(
            "explain", model, "-p", "cpu:num_threads=1", "-p", "reference",
            "--pin", "Abs=reference", "--json",
        )
    )  # fmt: skip
    data = json.loads(out)
    assert data["providers"][0]["options"]["num_threads"] == 1
    who = {node["op"]: node["provider"] for node in data["plan"]["nodes"].values()}
    assert who == {"Mul": "cpu", "Abs": "reference", "Add": "cpu", "ReduceSum": "cpu"}


# -- explain -------------------------------------------------------------------------------

PINNED = ("-p", "cpu", "-p", "reference", "--pin", "Abs=reference")


def test_a_warning_is_printed_as_text_without_a_line_of_code(seamline, model):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        status, _, said = seamline(
            "run", model, "--provider", "doubler", "--fallback", "warn"
        )
    assert status == 0
    assert said.startswith("SeamlineWarning: dropped: provider 'doubler': no plugin")
    assert ".py:" not in said


def test_an_explanation_is_text_for_people(seamline, model):
    out = good(seamline("explain", model, *PINNED))
    assert "3 segments, 2 seams" in out
    assert "pinned by 'Abs'" in out


def test_measuring_states_what_steps_and_seams_took(seamline, model):
    data = json.loads(
        good(seamline("explain", model, *PINNED, "--measure", 2, "--json"))
    )
    assert all(s["us"] > 0 for s in data["plan"]["segments"])
    assert all(s["us"] >= 0 for s in data["plan"]["seams"])
    plain = json.loads(good(seamline("explain", model, *PINNED, "--json")))
    assert all(s["us"] is None for s in plain["plan"]["segments"])


def test_a_diff_is_empty_for_the_same_plan_and_ends_with_status_1_for_another(
    seamline, model, tmp_path
):
    earlier = tmp_path / "earlier.json"
    earlier.write_text(good(seamline("explain", model, *PINNED, "--json")), "utf-8")
    again = seamline("explain", model, *PINNED, "--measure", 1, "--diff", earlier)
    assert again == (0, "no difference\n", "")
    status, out, _ = seamline("explain", model, "-p", "cpu", "--diff", earlier)
    assert status == 1
    lines = out.splitlines()
    assert all(line[0] in "+-~" for line in lines)
    assert any("reference -> cpu" in line for line in lines)
    assert sum(line.startswith("- plan.seams[") for line in lines) == 2 or (
        any(line.startswith("- plan.seams") for line in lines)
    )


def test_a_page_of_html_is_written_beside_the_text(seamline, model, tmp_path):
    page = tmp_path / "page.html"
    out = good(seamline("explain", model, *PINNED, "--html", page))
    assert "3 segments" in out
    text = page.read_text(encoding="utf-8")
    HTMLParser().feed(text)
    assert "<svg" in text
    assert [p.name for p in tmp_path.glob(".*")] == []


# -- bench ---------------------------------------------------------------------------------


def test_a_bench_alone_times_the_model(seamline, model):
    facts = json.loads(good(seamline("bench", model, "--runs", 3, "--json")))
    assert facts["runs"] == 3
    assert facts["providers"] == ["cpu"]
    assert 0 < facts["fastest_ms"]["seamline"] <= facts["median_ms"]["seamline"]
    assert "ratio" not in facts


def test_threads_reach_the_provider(seamline, model):
    given = seamline("bench", model, "--runs", 1, "--threads", 1, "--json")
    assert json.loads(good(given))["providers"] == ["cpu:num_threads=1"]


@pytest.mark.parametrize(("error", "gap"), [(0, 0.0), (0.5, 1.5)])
def test_a_peer_is_timed_in_turn_and_its_values_are_compared(
    seamline, model, plugin_folder, error, gap
):
    install(plugin_folder, "acme-doubler", PLUGIN.replace("{error}", str(error)))
    given = ("bench", model, "--peer", "doubler", "--runs", 2)
    facts = json.loads(good(seamline(*given, "--json")))
    times = facts["median_ms"]
    assert facts["ratio"] == pytest.approx(times["seamline"] / times["doubler"])
    assert facts["largest_difference"] == pytest.approx(gap, abs=1e-4)
    out = good(seamline(*given))
    for word in ("seamline", "doubler", "ratio", "largest difference"):
        assert word in out


def test_a_runtime_that_is_no_peer_is_an_error_that_lists_those_that_are(
    seamline, model, plugin_folder
):
    install(plugin_folder, "acme-doubler", PLUGIN.replace("{error}", "0"))
    status, out, err = seamline("bench", model, "--peer", "cpu")
    assert (status, out) == (1, "")
    assert "'cpu'" in err
    assert "doubler" in err


# -- what is wrong is said in one piece, with status 1 -------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "MODEL", "--input", "z=1"), "'z' is no input"),
        (("run", "MODEL", "--input", "x"), "write NAME=VALUE"),
        (("run", "MODEL", "--input", "x=none.npy"), "none.npy"),
        (("run", "MODEL", "--input", "x=one"), "neither a .npy file nor JSON"),
        (("run", "MODEL", "--input", "x=[[1,2,3],[4]]"), "'x'"),
        (("run", "MODEL", "--input", 'x=[["a","b","c"]]'), "'x'"),
        (("run", "MODEL", "--input", "x=[[1,2]]"), "'x'"),
        (("run", "MODEL", "--shape", "x=2,a"), "sizes are whole numbers"),
        (("run", "MODEL", "--shape", "x=2,-3"), "not negative"),
        (("run", "MODEL", "--shape", "x=2,4"), "'x'"),
        (("run", "MODEL", "--dim", "N=two"), "a size is a whole number"),
        (("run", "MODEL", "--fallback", "never"), "error, warn or allow"),
        (("run", "MODEL", "-p", "gpu"), "no plugin offers it"),
        (("run", "MODEL", "-p", "cpu:depth=2"), "depth"),
        (("run", "MODEL", "--pin", "Conv=cpu"), "Conv"),
        (("run", "MODEL", "--save", "FOLDER/none/kept.npz"), "none"),
        (("run", "MODEL", "--profile", "FOLDER/none/trace.json"), "none"),
        (("run", "FOLDER/none.onnx"), "none.onnx"),
        (("run", "MODEL", "--seed", "-1"), "seed"),
        (("explain", "MODEL", "--diff", "FOLDER/none.json"), "none.json"),
        (("explain", "MODEL", "--diff", "MODEL"), "--diff"),
        (("explain", "MODEL", "--html", "FOLDER/none/page.html"), "none"),
        (("explain", "MODEL", "--measure", "-2"), "measure"),
        (("bench", "MODEL", "--peer", "onnxruntim"), "onnxruntime"),
        (("bench", "MODEL", "--runs", "0"), "runs"),
        (("bench", "MODEL", "--threads", "-1"), "threads"),
    ],
)
def test_a_wrong_option_is_an_error_in_one_line(
    seamline, model, tmp_path, arguments, said
):
    places = {"MODEL": str(model), "FOLDER": str(tmp_path)}
    given = list(arguments)
    for word, place in places.items():
        given = [text.replace(word, place) for text in given]
    status, out, err = seamline(*given)
    assert status == 1, (out, err)
    assert out == ""
    assert said in err
    assert len(err.strip().splitlines()) == 1, err


def test_a_json_file_that_is_no_explanation_is_said_to_be_none(
    seamline, model, tmp_path
):
    other = tmp_path / "other.json"
    other.write_text('{"format": 0}', encoding="utf-8")
    status, _, err = seamline("explain", model, "--diff", other)
    assert status == 1
    assert "no explanation of format 1" in err


def test_a_page_without_jinja_says_what_to_install(
    seamline, model, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    status, _, err = seamline("explain", model, "--html", tmp_path / "page.html")
    assert status == 1
    assert "seamline[reports]" in err
    assert not (tmp_path / "page.html").exists()
