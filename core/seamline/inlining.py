"""
Functions of a model, put in place of their calls.

Each call gets its own copy: its inner names are put under the name of the call
(``call/inner``), attributes come from the call, else from the function's defaults, and
what is in neither is left out, as the standard says. The version of the standard that
the body was written for must mean the same under the model's imports.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from seamline.call_graph import (
    FunctionId,
    called,
    callees_first,
    calls_in,
    check_size,
)
from seamline.cloning import GraphCopier, check_extent
from seamline.errors import ModelError
from seamline.limits import LoadLimits
from seamline.naming import walk_graphs
from seamline.scoping import resolve_scopes
from seamline.versions import check_versions, since_version

__all__ = ["inline_functions", "replace_call"]


def inline_functions(model: ir.Model, file: str, limits: LoadLimits) -> None:
    """
    Inline every call, at any depth; no function is left.

    Raises
    ------
    ModelError
        Functions call each other in a circle, which is shown; a call does not fit its
        function; or a function needs another version of an operator than the model.
    UnsafeModelError
        The result would go past a limit; found before anything is expanded.
    """
    functions = model.functions
    if not functions:
        return
    order = callees_first(functions, file)
    check_size(model, order, file, limits)
    for function in functions.values():
        resolve_scopes(function.graph, file)
    checked: set[FunctionId] = set()
    calls = list(calls_in(model.graph, functions))
    while calls:
        call = calls.pop()
        function = functions[call.op_identifier()]
        if call.op_identifier() not in checked:
            checked.add(call.op_identifier())
            _settle_opsets(model, function, file)
        for node in _expand(call, function, file):
            if node.op_identifier() in functions:
                calls.append(node)
            for attr in node.attributes.values():
                for body in _bodies(attr):
                    calls += calls_in(body, functions)
    functions.clear()
    check_extent(model.graph, file, limits)


def _bodies(attr: ir.Attr) -> list[ir.Graph]:
    if not attr.is_ref() and attr.type == ir.AttributeType.GRAPH:
        return [attr.as_graph()]
    if not attr.is_ref() and attr.type == ir.AttributeType.GRAPHS:
        return list(attr.as_graphs())
    return []


def _settle_opsets(model: ir.Model, function: ir.Function, file: str) -> None:
    """Import what the function imports, or refuse it where a meaning would change."""
    where = f"function {called(function.identifier())}"
    own = check_versions(f"{file}: {where}", 1, function.opset_imports.items())
    for _, nodes in walk_graphs(function.graph):
        for node in nodes:
            if node.op_identifier() in model.functions:
                continue
            wanted = own.get(node.domain)
            name = node.domain or "ai.onnx"
            if wanted is None:
                raise ModelError(
                    file,
                    where,
                    f"its node {node.name or node.op_type!r} needs the domain {name!r}, "
                    "which the function does not import",
                )
            given = _import_of(model, node.domain, wanted)
            if given != wanted and not _same_meaning(node, wanted, given):
                raise ModelError(
                    file,
                    where,
                    f"it is written for opset {wanted} of {name!r} and the model imports "
                    f"{given}, where {node.op_type} is another operator; convert one "
                    "of them (onnx.version_converter)",
                )


def _import_of(model: ir.Model, domain: str, wanted: int) -> int:
    """Give the model's import of a domain, made if there is none."""
    for written in (domain, "ai.onnx") if domain == "" else (domain,):
        if written in model.opset_imports:
            return model.opset_imports[written]
    model.opset_imports[domain] = wanted
    return wanted


def _same_meaning(node: ir.Node, first: int, second: int) -> bool:
    since = [since_version(node.op_type, node.domain, v) for v in (first, second)]
    return since[0] == since[1]


def _check_call(call: ir.Node, function: ir.Function, file: str) -> None:
    for what, given, taken in (
        ("inputs", len(call.inputs), len(function.inputs)),
        ("outputs", len(call.outputs), len(function.outputs)),
    ):
        if given > taken:
            raise ModelError(
                file,
                f"node {call.name or call.op_type!r}",
                f"it has {given} {what}; the function {called(function.identifier())} "
                f"has {taken}",
            )


def _expand(call: ir.Node, function: ir.Function, file: str) -> list[ir.Node]:
    """Put a function's nodes in place of a call, and give them."""
    _check_call(call, function, file)
    where = f"node {call.name or call.op_type!r}"
    name = called(function.identifier())
    values: dict[ir.Value, ir.Value | None] = dict.fromkeys(function.inputs)
    values.update(zip(function.inputs, call.inputs, strict=False))
    prefix = call.name or call.op_type
    copier = GraphCopier(
        values,
        _attribute_source(call, function, file),
        lambda inner: f"{prefix}/{inner}",
    )
    nodes = copier.nodes(function.graph)
    results: list[ir.Value] = []
    for value, formal in zip(call.outputs, function.outputs, strict=False):
        inner = values.get(formal)
        if inner is None and value.name:
            why = f"its output {value.name!r} is an input of {name} that is left out"
            raise ModelError(file, where, why)
        # An output that is an input, or two outputs that are one: each keeps its name.
        if inner is None or inner in results or formal in function.inputs:
            copy = ir.Node("", "Identity", [inner], name=f"{prefix}/{formal.name}")
            nodes.append(copy)
            inner = copy.outputs[0]
        results.append(inner)
    replace_call(call, nodes, results)
    return nodes


def _attribute_source(
    call: ir.Node, function: ir.Function, file: str
) -> Callable[[ir.Attr], ir.Attr | None]:
    """Give what resolves references to the function's attributes for one call."""
    given = {
        name: attr
        for name, attr in function.attributes.items()
        if attr.value is not None
    }
    given.update(call.attributes)

    def resolve(attr: ir.Attr) -> ir.Attr | None:
        if not attr.is_ref():
            return attr
        found = given.get(attr.ref_attr_name or "")
        if found is None:
            return None
        if attr.type not in (found.type, ir.AttributeType.UNDEFINED):
            raise ModelError(
                file,
                f"node {call.name or call.op_type!r}",
                f"its attribute {found.name!r} is {found.type.name}; the function uses "
                f"it as {attr.type.name}",
            )
        return ir.Attr(attr.name, found.type, found.value)

    return resolve


def replace_call(call: ir.Node, nodes: list[ir.Node], results: list[ir.Value]) -> None:
    """Put nodes in place of one, and their results in place of its outputs."""
    graph = call.graph
    assert isinstance(graph, ir.Graph)  # a call was found by walking graphs
    graph.insert_before(call, nodes)
    for old, new in zip(call.outputs, results, strict=False):
        if not old.name:
            continue
        new.name = old.name
        new.type = old.type or new.type
        new.shape = old.shape if old.shape is not None else new.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(call, safe=True)
