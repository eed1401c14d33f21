"""Every block that the documentation calls runnable runs, and prints what is shown."""

from __future__ import annotations

import contextlib
import doctest
import io
import shlex

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.docs.code_blocks import PAGES, ROOT, blocks_of, name_of

from seamline.cli import app

WITH_RUNNABLE = [
    page for page in PAGES if any(b.mark == "runnable" for b in blocks_of(page))
]
WITH_FILES = [page for page in PAGES if any(b.file for b in blocks_of(page))]


def classifier():
    """Make the model of the guides: four features in, three scores out."""
    weights = {"w": np.eye(4, 3), "b": np.zeros(3)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"], "product"),
            helper.make_node("Add", ["product", "b"], ["shifted"], "shift"),
            helper.make_node("Relu", ["shifted"], ["positive"], "rectify"),
            helper.make_node("Softmax", ["positive"], ["y"], "scores", axis=-1),
        ],
        "classifier",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 3])],
        [
            onnx.numpy_helper.from_array(value.astype(np.float32), name)
            for name, value in weights.items()
        ],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10
    )


def printed_by_commands(text):
    printed = io.StringIO()
    for line in text.splitlines():
        assert line.startswith("$ seamline "), f"not a command of seamline: {line}"
        with contextlib.redirect_stdout(printed):
            app(shlex.split(line)[2:], standalone_mode=False)
    return printed.getvalue()


def printed_by_python(text, names, where):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, where, "exec"), names)
    return printed.getvalue()


def is_shown(printed, shown):
    """Compare as doctest does; ``...`` stands for anything left out."""
    tidy = ["\n".join(map(str.rstrip, t.strip().split("\n"))) for t in (shown, printed)]
    return doctest.OutputChecker().check_output(*tidy, doctest.ELLIPSIS)


@pytest.mark.parametrize("page", WITH_RUNNABLE, ids=name_of)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(classifier(), "model.onnx")
    names = {"__name__": "__main__"}
    printed = ""
    for block in blocks_of(page):
        where = f"{name_of(page)}:{block.line}"
        if block.mark == "prints":
            assert is_shown(printed, block.text), f"{where} printed:\n{printed}"
        elif block.language == "console":
            printed = printed_by_commands(block.text)
        elif block.mark == "runnable":
            assert block.language == "python", where
            printed = printed_by_python(block.text, names, where)


@pytest.mark.parametrize("page", WITH_FILES, ids=name_of)
def test_a_block_that_shows_a_file_is_that_file(page):
    for block in blocks_of(page):
        if block.file:
            assert block.text == (ROOT / block.file).read_text("utf-8"), block.file


def test_every_mark_in_the_pages_stands_before_a_block():
    for page in PAGES:
        marks = [
            line
            for line in page.read_text("utf-8").splitlines()
            if line.startswith(("<!-- runnable", "<!-- prints", "<!-- file:"))
        ]
        assert len(marks) == len(blocks_of(page)), name_of(page)


def test_the_guides_have_blocks_that_run():
    runnable = {name_of(page) for page in WITH_RUNNABLE}
    assert {"README.md", "docs/quickstart.md", "docs/explain.md"} <= runnable
    assert [name_of(page) for page in WITH_FILES] == ["docs/writing-a-provider.md"]
