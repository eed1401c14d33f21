"""A baseline holds a model to the seams that it is known to have, on the command line too."""

from __future__ import annotations

import json
import sys

import pytest
from tests.core.toys import model, open_over, toys

from seamline.cli import main
from seamline.errors import SeamlineError
from seamline.seam_baseline import baseline_of, held, read_baseline

TEXT = "g (float[N,3] x) => (float[N,3] y) { [a] a = Neg(x) [b] b = Abs(a) [c] y = Relu(b) }"


def explained(**pins):
    made = toys()
    pipeline = open_over(model(TEXT), made["a"], made["b"], pins=pins)
    try:
        return pipeline.explain({"x": (2, 3)}).data
    finally:
        pipeline.close()


def test_the_same_plan_has_no_new_seam(tmp_path):
    path = tmp_path / "seams.json"
    path.write_text(baseline_of(explained(b="b")))
    found = held(read_baseline(path), explained(b="b"))
    assert (found.new, found.gone) == ((), ())


def test_a_new_seam_is_named_with_its_reason_and_one_that_is_gone_by_its_id(tmp_path):
    path = tmp_path / "seams.json"
    path.write_text(baseline_of(explained(b="b")))
    found = held(read_baseline(path), explained(c="b"))
    (new,) = found.new
    assert new.startswith("new seam TRANSFER:a:a|b:c [b]: ")
    assert "pinned by 'c'" in new
    assert found.gone == ("TRANSFER:a:a|b:b", "TRANSFER:b:b|a:c")


def test_seams_of_bodies_and_of_a_rest_are_told_by_their_region():
    seam = {"id": "X:p|q", "cause": "X", "why": "so", "values": ["v"]}
    body = {"seams": [seam], "bodies": {}, "rest": None}
    rest = {"planned": True, **body}
    plan = {"seams": [seam], "bodies": {"i.then_branch": body}, "rest": rest}
    kept = json.loads(baseline_of({"model": "/somewhere/m.onnx", "plan": plan}))
    assert kept["model"] == "m.onnx"
    assert [one["id"] for one in kept["seams"]] == [
        "X:p|q", "i.then_branch/X:p|q", "rest/X:p|q",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no json", "Expecting value"),
        ("[]", "no baseline of format 1"),
        ('{"format": 2, "seams": []}', "--write-baseline"),
        ('{"format": 1, "seams": [1]}', "no baseline of format 1"),
        (None, "No such file"),
    ],
)
def test_what_is_no_baseline_is_refused_and_says_how_to_make_one(tmp_path, text, said):
    path = tmp_path / "seams.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SeamlineError, match=said):
        read_baseline(path)


# --- the command line -------------------------------------------------------------------


@pytest.fixture
def seamline(monkeypatch, capsys):
    """Give a function that runs the command as a shell does: status, output, errors."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["seamline", *map(str, words)])
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "m.onnx"
    made.write_bytes(model(TEXT).SerializeToString())
    return made


def test_a_command_writes_a_baseline_and_a_later_one_fails_on_a_new_seam(
    path, tmp_path, seamline
):
    kept = tmp_path / "seams.json"
    shared = ("explain", path, "-p", "cpu", "-p", "reference", "--optimize", "none")
    status, _, _ = seamline(*shared, "--write-baseline", kept)
    assert status == 0
    assert json.loads(kept.read_text()) == {
        "format": 1, "model": "m.onnx", "seams": [],
    }  # fmt: skip
    assert seamline(*shared, "--baseline", kept)[:2] == (0, "no new seam\n")
    status, out, _ = seamline(*shared, "--pin", "b=reference", "--baseline", kept)
    assert status == 1
    assert [line.split(" [")[0] for line in out.splitlines()] == [
        "new seam TRANSFER:cpu:a|reference:b",
        "new seam TRANSFER:reference:b|cpu:c",
    ]
    status, out, _ = seamline(
        *shared, "--pin", "b=reference", "--baseline", kept, "--json"
    )
    assert status == 1
    assert len(json.loads(out)["new"]) == 2


def test_a_form_that_is_none_is_refused_in_one_line(path, seamline):
    status, _, err = seamline("explain", path, "--seam-form", "post")
    assert status != 0
    assert "--seam-form: seam_form= takes 'auto' or 'eager'" in err
