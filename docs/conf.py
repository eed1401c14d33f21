"""Sphinx settings; ``scripts/docs`` builds with every warning an error."""

from __future__ import annotations

import re
from importlib import metadata

from docutils.nodes import Element
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

project = "Seamline"
author = "The Seamline authors"
project_copyright = "The Seamline authors"
release = version = metadata.version("seamline")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "ONNX models across providers in Python"}
html_static_path: list[str] = []
html_copy_source = False

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]

napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "none"  # the signatures' types are other projects' as often as ours
autodoc_preserve_defaults = True

nitpicky = True
# Written by others, and not looked up: the docs build without a network.
nitpick_ignore_regex = [
    (r"py:.*", r"(numpy|np|onnx|onnx_ir|ir|pluggy|typer)\..*"),
    (r"py:.*", r"(typing|collections|os|threading|time|enum)\..*"),
    (r"py:class", r"(Exception|UserWarning|ValueError|NotImplementedError)"),
    (r"py:class", r"(AttributeError|Array|View|ValueType|seamline\.constants\.Known)"),
    # Shown with their heirs.
    (r"py:class", r"seamline\.session_(facts\.SessionFacts|values\.SessionValues)"),
    (r"py:class", r"seamline\.opened_model\.OpenedModel"),
]

_HEADS = re.compile(r"^\w+(, \w+)+$")


def _readable(
    app: Sphinx, what: str, name: str, found: object, options: object, lines: list[str]
) -> None:
    """Bring what the docstrings do for people into the form that napoleon reads."""
    if what == "property" and lines:  # it would take "Give an id: ..." for a type
        lines[0] = lines[0].replace(": ", " \N{EN DASH} ", 1)
    if what == "module" and any(
        line.startswith("    \N{BOX DRAWINGS LIGHT VERTICAL AND RIGHT}")
        for line in lines
    ):
        lines[1:1] = ["", "::"]  # a tree that was drawn stays as drawn
    made: list[str] = []
    section = ""
    for index, line in enumerate(lines):
        after = lines[index + 1] if index + 1 < len(lines) else ""
        if after.startswith("---"):
            section = line
        if section == "Attributes" and _HEADS.match(line):
            told = _indented(lines[index + 1 :])
            for head in line.split(", ")[:-1]:
                made += [head, *told]
            line = line.split(", ")[-1]
        made.append(line)
    lines[:] = made


def _indented(lines: list[str]) -> list[str]:
    told = []
    for line in lines:
        if line and not line.startswith(" "):
            break
        told.append(line)
    return told


def _by_short_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: Element
) -> Element | None:
    """Resolve a name that is unique in the docs: docstrings write what code writes."""
    domain = env.domains.python_domain
    if node.get("refdomain") != "py":
        return None
    target = node.get("reftarget", "")
    ends = [n for n in domain.objects if n.endswith(f".{target}")]
    near = [n for n in ends if n.startswith(f"{node.get('py:module')}.")]
    ends = near or ends
    if not target or len(ends) != 1:
        return None
    found = domain.objects[ends[0]]
    return make_refnode(
        app.builder, node["refdoc"], found.docname, found.node_id, text, ends[0]
    )


def setup(app: Sphinx) -> None:
    """Hear of docstrings before napoleon does."""
    app.connect("autodoc-process-docstring", _readable, priority=400)
    app.connect("missing-reference", _by_short_name)
