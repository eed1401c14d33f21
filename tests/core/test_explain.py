"""Explanations: text, JSON that can be compared, advice, and a page of HTML."""

import copy
import json
from html.parser import HTMLParser

import numpy as np
import pytest
from onnx import parser
from tests.core.arithmetic import ALONE, PLUGINS, model

from seamline.explain import FORMAT, diff
from seamline.explain_html import as_html, band
from seamline.explain_text import as_text, bytes_text
from seamline.pipeline import Pipeline

CHAIN = """
g (float[2, 3] x) => (float[3, 2] y) {
  a = Mul (x, x)
  b = Add (a, x)
  c = Mul (b, x)
  d = Transpose <perm = [1, 0]> (c)
  e = Mul (d, d)
  f = Add (e, d)
  y = Mul (f, f)
}
"""
LATE = """
g (float[4] x) => (int64[K, 1] places, float[L, 1] doubled) {
  found = NonZero (x)
  places = Transpose <perm = [1, 0]> (found)
  real = Cast <to = 1> (places)
  doubled = Add (real, real)
}
"""
BRANCH = """
g (bool c, float[2] x) => (float[2] y) {
  twice = Add (x, x)
  y = If (c) <
    then_branch = t () => (float[2] p) { p = Mul (twice, x) },
    else_branch = e () => (float[2] q) { q = Sub (twice, x) }
  >
}
"""


def chain(*providers):
    return Pipeline.open(
        model(CHAIN), providers=providers, plugins=PLUGINS, settings=ALONE
    )


@pytest.fixture
def mixed():
    """A chain where Mul is on one provider and all else on another: seven segments."""
    pipeline = chain("lesser", "arithmetic")
    yield pipeline
    pipeline.close()


def on_cpu(text, feeds=None):
    """Explain a model on cpu and reference, after a run where feeds are given."""
    pipeline = Pipeline.open(model(text), providers=["cpu", "reference"])
    try:
        if feeds is not None:
            pipeline.run(feeds)
        return pipeline.explain()
    finally:
        pipeline.close()


# -- text ----------------------------------------------------------------------------------


def test_text_gives_counts_then_placement_then_seams(mixed):
    text = str(mixed.explain())
    assert "7 segments, 7 seams (7 TRANSFER), 0 transfers (0 B); 7 nodes" in text
    assert "signature  x: float32[2, 3]" in text
    order = [
        text.index(f"\n{word}")
        for word in ("placement", "refusals", "segments", "seams")
    ]
    assert order == sorted(order)
    assert "2 Add by lesser: no kernel for Add" in text
    assert "read in place" in text


def test_a_long_list_is_cut_short_and_says_so(mixed):
    data = copy.deepcopy(mixed.explain().data)
    data["plan"]["segments"] *= 4
    text = as_text(data)
    assert "... and 16 more (--json has all)" in text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 << 30, "5.0 GiB"),
        (None, "? B"),
    ],
)
def test_bytes_have_a_unit_that_leaves_a_readable_number(nbytes, text):
    assert bytes_text(nbytes) == text


# -- JSON ----------------------------------------------------------------------------------


def test_json_of_the_same_model_is_the_same_but_for_measurements(mixed):
    once = mixed.explain().to_json()
    other = chain("lesser", "arithmetic")
    assert other.explain().to_json() == once
    x = np.ones((2, 3), np.float32)
    timed = mixed.explain(timings=mixed.measure({"x": x}, 2)).data
    other.close()
    assert all(segment["us"] > 0 for segment in timed["plan"]["segments"])
    assert all(
        segment["us"] is None for segment in json.loads(once)["plan"]["segments"]
    )
    assert without_times(timed) == without_times(json.loads(once))


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "us"}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def test_json_holds_every_node_with_who_runs_it_and_who_refused(mixed):
    data = json.loads(mixed.explain().to_json())
    assert data["format"] == FORMAT
    plan = data["plan"]
    ran = [name for segment in plan["segments"] for name in segment["nodes"]]
    assert sorted(ran) == sorted(plan["nodes"])
    for node in plan["nodes"].values():
        assert node["provider"] == ("lesser" if node["op"] == "Mul" else "arithmetic")
        assert ("lesser" in node["refusals"]) is (node["op"] != "Mul")
        assert node["reason"]
    ids = [thing["id"] for kind in ("segments", "seams") for thing in plan[kind]]
    assert len(set(ids)) == len(ids)
    names = {segment["id"] for segment in plan["segments"]}
    assert {s["after"] for s in plan["seams"]} | {
        s["before"] for s in plan["seams"]
    } <= names


def test_ids_do_not_depend_on_what_else_the_model_holds():
    longer = CHAIN.replace("y = Mul (f, f)", "g2 = Mul (f, f)\n  y = Add (g2, g2)")
    plans = []
    for text in (CHAIN, longer):
        pipeline = Pipeline.open(
            model(text),
            providers=["lesser", "arithmetic"],
            plugins=PLUGINS,
            settings=ALONE,
        )
        plans.append(pipeline.explain().data["plan"])
        pipeline.close()
    short, long = ([seam["id"] for seam in plan["seams"]] for plan in plans)
    assert long[: len(short)] == short
    assert len(long) == len(short) + 1


def test_what_waits_for_a_size_is_named_and_planned_once_it_ran():
    before = on_cpu(LATE).data["plan"]["rest"]
    assert before["planned"] is False
    assert before["waits_for"] == ["found"]
    after = on_cpu(LATE, {"x": np.array([0, 1, 0, 2], np.float32)}).data["plan"]["rest"]
    assert after["planned"] is True
    assert [node["op"] for node in after["nodes"].values()] == [
        "Transpose",
        "Cast",
        "Add",
    ]


def test_a_body_that_ran_has_a_plan_of_its_own():
    feeds = {"c": np.array(True), "x": np.ones(2, np.float32)}
    bodies = on_cpu(BRANCH, feeds).data["plan"]["bodies"]
    (name,) = bodies
    assert name.endswith(".then_branch")
    assert [node["op"] for node in bodies[name]["nodes"].values()] == ["Mul"]


# -- diff ----------------------------------------------------------------------------------


def test_no_difference_between_two_looks_at_one_plan(mixed):
    x = np.ones((2, 3), np.float32)
    timed = mixed.explain(timings=mixed.measure({"x": x}, 1)).data
    assert diff(mixed.explain().data, timed) == []
    assert diff(json.loads(mixed.explain().to_json()), mixed.explain().data) == []


def test_a_planted_change_shows_and_nothing_else(mixed):
    before = mixed.explain().data
    after = copy.deepcopy(before)
    node = next(iter(after["plan"]["nodes"]))
    after["plan"]["nodes"][node]["variant"] = "cublas"
    (line,) = diff(before, after)
    assert line.startswith("~ plan.nodes")
    assert line.endswith(": numpy -> cublas")
    assert node in line


def test_a_seam_that_comes_or_goes_is_one_line(mixed):
    before = mixed.explain().data
    after = copy.deepcopy(before)
    gone = after["plan"]["seams"].pop(2)
    (line,) = diff(before, after)
    assert line.startswith(f"- plan.seams[{gone['id']!r}]")
    (line,) = diff(after, before)
    assert line.startswith(f"+ plan.seams[{gone['id']!r}]")
    after["plan"]["seams"].clear()
    assert len(diff(before, after)) == len(before["plan"]["seams"])


# -- advice --------------------------------------------------------------------------------


def test_the_first_advice_is_the_operator_that_joins_most(mixed):
    advice = mixed.explain().data["advice"]
    best = advice[0]
    # Mul Add Mul Transpose Mul Add Mul: with Add, only the Transpose stands between.
    assert (best["provider"], best["op_type"], best["nodes"]) == ("lesser", "Add", 2)
    assert best["segments"] == [7, 3]
    # Six values of 2 x 3 floats cross now; then those into and out of the Transpose.
    assert (best["crossings"], best["nbytes"]) == ([6, 2], [144, 48])
    assert best["text"].startswith(
        "if lesser claimed Add (2 nodes): 7 segments become 3"
    )
    assert [a["op_type"] for a in advice] == ["Add", "Transpose"]
    assert advice[1]["segments"] == [7, 5]


def test_one_provider_needs_no_advice():
    pipeline = chain("arithmetic")
    assert pipeline.explain().data["advice"] == []
    pipeline.close()


# -- HTML ----------------------------------------------------------------------------------

VOID = {"meta", "br", "rect", "line", "link", "img"}


class Page(HTMLParser):
    """Checks that elements close in order; keeps text, and what is loaded or run."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.texts, self.ids, self.links = [], [], [], []
        self.tags = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags[tag] = self.tags.get(tag, 0) + 1
        assert not any(name.startswith("on") for name in attrs)
        assert "src" not in attrs
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if "href" in attrs:
            self.links.append(attrs["href"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(" ".join(data.split()))


def test_a_page_holds_every_segment_seam_node_and_reason(mixed):
    data = mixed.explain().data
    page = Page(mixed.explain().to_html())
    plan = data["plan"]
    for kind in ("segments", "seams", "transfers"):
        assert {thing["id"] for thing in plan[kind]} <= set(page.texts), kind
    assert set(plan["nodes"]) <= set(page.texts)
    for node in plan["nodes"].values():
        for reason in node["refusals"].values():
            assert reason in page.texts
    assert data["advice"][0]["text"] in page.texts
    assert page.tags["rect"] == len(plan["segments"])
    assert page.tags["line"] == len({seam["before"] for seam in plan["seams"]})


def test_a_page_needs_nothing_but_itself(mixed):
    text = mixed.explain().to_html()
    page = Page(text)
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not any(word in text for word in ("http://", "https://", "url(", "@import"))
    assert "prefers-color-scheme: dark" in text
    assert len(set(page.ids)) == len(page.ids)
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert page.links


@pytest.mark.parametrize(
    "name",
    ["<script>alert(1)</script>", '"><img src=x onerror=y>', "{{ data }}", "a&amp;b"],
)
def test_names_are_text_whatever_they_are(name):
    graph = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]>\n'
        "g (float[2] x) => (float[2] y) { a = Abs (x)\n y = Neg (a) }"
    )
    graph.graph.node[0].name = name
    graph.graph.node[0].output[0] = graph.graph.node[1].input[0] = f"value {name}"
    pipeline = Pipeline.open(
        graph, providers=["cpu", "reference"], pins={"Neg": "reference"}
    )
    text = pipeline.explain().to_html()
    data = pipeline.explain().data
    pipeline.close()
    page = Page(text)
    assert name in data["plan"]["nodes"]
    assert name in page.texts
    assert f"value {name}" in page.texts
    assert not {"script", "img"} & set(page.tags)


def test_a_page_shows_what_waits_what_came_of_it_and_bodies():
    waiting = Page(on_cpu(LATE).to_html())
    assert any("planned once these are sized" in text for text in waiting.texts)
    known = on_cpu(LATE, {"x": np.array([0, 1, 0, 2], np.float32)})
    page = Page(known.to_html())
    assert "Then, once sizes are known" in page.texts
    assert {seam["id"] for seam in known.data["plan"]["seams"]} <= set(page.texts)
    feeds = {"c": np.array(True), "x": np.ones(2, np.float32)}
    branch = on_cpu(BRANCH, feeds)
    page = Page(branch.to_html())
    (body,) = branch.data["plan"]["bodies"].values()
    assert {segment["id"] for segment in body["segments"]} <= set(page.texts)
    assert len(set(page.ids)) == len(page.ids)


def test_a_page_of_a_model_of_no_node_is_a_page():
    pipeline = Pipeline.open(
        model("g (float[2] x) => (float[2] x) { }"), providers=["cpu"]
    )
    page = Page(pipeline.explain().to_html())
    pipeline.close()
    assert "rect" not in page.tags


def test_a_band_is_full_and_a_lone_node_beside_many_is_still_seen(mixed):
    plan = copy.deepcopy(mixed.explain().data["plan"])
    plan["segments"][0]["nodes"] = [f"n{i}" for i in range(1000)]
    laid = band(plan)
    assert sum(piece.width for piece in laid.pieces) == pytest.approx(
        laid.width, abs=0.1
    )
    assert [p.x for p in laid.pieces] == sorted(p.x for p in laid.pieces)
    assert min(piece.width for piece in laid.pieces) > laid.width / 2 / 8
    assert laid.pieces[0].width > laid.width / 2
    starts = {piece.segment["id"]: piece.x for piece in laid.pieces}
    for mark in laid.marks:
        assert {starts[seam["before"]] for seam in mark.seams} == {mark.x}


def test_a_page_reads_an_explanation_that_was_kept_as_json(mixed):
    explanation = mixed.explain()
    assert as_html(json.loads(explanation.to_json())) == explanation.to_html()
