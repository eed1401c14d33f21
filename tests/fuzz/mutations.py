"""
Mutations that know what a model means, and break it where loading and planning look.

A mutation changes a proto in place; one that finds nothing to change leaves it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from random import Random

import onnx
from google.protobuf.message import DecodeError
from onnx import helper
from tests.fuzz.fields import change_field, drop_field, messages, swap_messages
from tests.fuzz.odd_values import ATTRIBUTES, NUMBERS, PLACES, SIZES

__all__ = ["mutate"]

_SCHEMAS = sorted({(s.domain, s.name) for s in onnx.defs.get_all_schemas()})

Nodes = list[onnx.NodeProto]


def _all(model: onnx.ModelProto, kind: type) -> list:
    return [one for one in messages(model) if isinstance(one, kind)]


def _graph(model: onnx.ModelProto, rng: Random) -> onnx.GraphProto:
    return rng.choice([model.graph, *_all(model, onnx.GraphProto)])


def _node(model: onnx.ModelProto, rng: Random) -> onnx.NodeProto | None:
    nodes = _all(model, onnx.NodeProto)
    return rng.choice(nodes) if nodes else None


def _names(model: onnx.ModelProto) -> list[str]:
    found = {"", "nowhere"}
    for node in _all(model, onnx.NodeProto):
        found.update(node.input, node.output)
    for one in (*_all(model, onnx.ValueInfoProto), *_all(model, onnx.TensorProto)):
        found.add(one.name)
    return sorted(found)


def rewire_input(model: onnx.ModelProto, rng: Random) -> None:
    """Read another value: one from elsewhere, a later one (a circle), or none at all."""
    node = _node(model, rng)
    if node is not None and node.input:
        name = rng.choice([*_names(model), *node.output])
        node.input[rng.randrange(len(node.input))] = name


def rename_output(model: onnx.ModelProto, rng: Random) -> None:
    node = _node(model, rng)
    if node is not None and node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice(_names(model))


def change_arity(model: onnx.ModelProto, rng: Random) -> None:
    node = _node(model, rng)
    if node is None:
        return
    names = rng.choice((node.input, node.output))
    if names and rng.random() < 0.5:
        del names[rng.randrange(len(names))]
    elif rng.random() < 0.9:
        names.append(rng.choice(_names(model)))
    else:
        names.extend([""] * 200)


def change_operator(model: onnx.ModelProto, rng: Random) -> None:
    node = _node(model, rng)
    if node is not None:
        node.domain, node.op_type = rng.choice(_SCHEMAS)


def copy_node(model: onnx.ModelProto, rng: Random) -> None:
    """Write a node again, as it is or under other names of outputs."""
    graph, node = _graph(model, rng), _node(model, rng)
    if node is None or node.ByteSize() > 1 << 14:
        return
    copy = onnx.NodeProto.FromString(node.SerializeToString())
    if rng.random() < 0.7:
        outputs = [f"{name}_{rng.randrange(9)}" for name in node.output]
        del copy.output[:]
        copy.output.extend(outputs)
    graph.node.append(copy)


def give_attribute(model: onnx.ModelProto, rng: Random) -> None:
    """Give a node an odd attribute in place of its own of that name."""
    node = _node(model, rng)
    if node is None:
        return
    name, value = rng.choice(ATTRIBUTES)
    if node.attribute and rng.random() < 0.4:
        name = rng.choice(node.attribute).name
    kept = [one for one in node.attribute if one.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.append(helper.make_attribute(name, value))


def retype_attribute(model: onnx.ModelProto, rng: Random) -> None:
    attributes = _all(model, onnx.AttributeProto)
    if attributes:
        kinds = onnx.AttributeProto.AttributeType.values()
        rng.choice(attributes).type = rng.choice(kinds)


def refer_attribute(model: onnx.ModelProto, rng: Random) -> None:
    attributes = _all(model, onnx.AttributeProto)
    if attributes:
        rng.choice(attributes).ref_attr_name = rng.choice(("alpha", "slope", "nothing"))


def resize(model: onnx.ModelProto, rng: Random) -> None:
    """Change a tensor's dims, or a declared shape's."""
    tensors = _all(model, onnx.TensorProto)
    shapes = _all(model, onnx.TensorShapeProto)
    if tensors and (not shapes or rng.random() < 0.5):
        dims = rng.choice(tensors).dims
        if dims and rng.random() < 0.7:
            dims[rng.randrange(len(dims))] = rng.choice(SIZES)
        else:
            dims.extend([rng.choice(SIZES)] * rng.choice((1, 2, 70)))
    elif shapes:
        shape = rng.choice(shapes)
        dim = rng.choice(shape.dim) if shape.dim else shape.dim.add()
        if rng.random() < 0.6:
            dim.dim_value = rng.choice(SIZES)
        else:
            dim.dim_param = rng.choice(("N", "M", "", "?", "N+1", "-1", "class", "2"))


def retype(model: onnx.ModelProto, rng: Random) -> None:
    """Change an element type, of a tensor or a declaration."""
    found = [*_all(model, onnx.TensorProto), *_all(model, onnx.TypeProto.Tensor)]
    if found:
        kind = rng.choice([*onnx.TensorProto.DataType.values(), 99])
        one = rng.choice(found)
        setattr(one, "data_type" if isinstance(one, onnx.TensorProto) else "elem_type", kind)  # fmt: skip


def revalue(model: onnx.ModelProto, rng: Random) -> None:
    """Change the numbers in an initializer: they decide sizes, axes and indices."""
    tensors = [t for t in _all(model, onnx.TensorProto) if t.int64_data or t.raw_data]
    if not tensors:
        return
    tensor = rng.choice(tensors)
    if tensor.int64_data:
        at = rng.randrange(len(tensor.int64_data))
        tensor.int64_data[at] = rng.choice(SIZES)
        return
    data = bytearray(tensor.raw_data[: 1 << 16])
    at = rng.randrange(len(data)) & ~7
    piece = rng.choice(SIZES).to_bytes(8, "little", signed=True)
    data[at : at + 8] = piece[: len(data) - at]
    tensor.raw_data = bytes(data) + tensor.raw_data[1 << 16 :]


def relocate(model: onnx.ModelProto, rng: Random) -> None:
    """Change where external data lies, or make a tensor's data external."""
    tensors = _all(model, onnx.TensorProto)
    if not tensors:
        return
    outside = [one for one in tensors if one.external_data]
    tensor = rng.choice(outside or tensors)
    tensor.data_location = rng.choice((1, 1, 1, 0))
    if not outside:
        tensor.ClearField("raw_data")
        tensor.external_data.add(key="location", value="weights.bin")
    entry = rng.choice(tensor.external_data) if tensor.external_data else None
    if entry is None or rng.random() < 0.2:
        entry = tensor.external_data.add()
        entry.key = rng.choice(("location", "offset", "length", "checksum", "basepath", ""))  # fmt: skip
    entry.value = rng.choice(PLACES if entry.key == "location" else NUMBERS)


def reversion(model: onnx.ModelProto, rng: Random) -> None:
    if rng.random() < 0.15:
        model.ir_version = rng.choice((-1, 0, 1, 3, 7, 10, 13, 14, 99))
    elif model.opset_import:
        entry = rng.choice(model.opset_import)
        entry.version = rng.choice((*range(-1, 28), 1 << 31, 1 << 62))
    if rng.random() < 0.2:
        domain = rng.choice(("", "ai.onnx", "own", "ai.onnx.ml", "ai.onnx.training"))
        model.opset_import.add(domain=domain, version=rng.choice((1, 13, 21, 99)))


def nest(model: onnx.ModelProto, rng: Random) -> None:
    """Put the graph's nodes into bodies within bodies, up to what protobuf holds."""
    graph = model.graph
    if model.ByteSize() > 1 << 14:
        return
    for level in range(rng.choice((1, 1, 2, 5, 12, 33))):
        inner = _around(graph, level)
        del graph.node[:], graph.output[:]
        graph.node.append(inner)
        graph.output.add(name=f"o{level}")
    if all(info.name != "c" for info in graph.input):
        graph.input.append(
            helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])
        )


def _around(graph: onnx.GraphProto, level: int) -> onnx.NodeProto:
    body = onnx.GraphProto(name=f"b{level}")
    body.node.extend(graph.node)
    body.output.extend(graph.output[:1])
    other = onnx.GraphProto(name=f"e{level}")
    constant = helper.make_node("Constant", [], [f"k{level}"], value_float=1.0)
    other.node.append(constant)
    other.output.add(name=f"k{level}")
    return helper.make_node(
        "If", ["c"], [f"o{level}"], then_branch=body, else_branch=other
    )


def call_itself(model: onnx.ModelProto, rng: Random) -> None:
    """Let functions call each other, or give a node's operator a body."""
    if not model.functions:
        function = model.functions.add(domain="own", name="made")
        function.opset_import.add(domain="", version=21)
        function.input.append("x")
        function.output.append("x2")
        function.node.append(helper.make_node("Neg", ["x"], ["x2"]))
    function, callee = (rng.choice(model.functions) for _ in range(2))
    call = function.node.add(op_type=callee.name, domain=callee.domain)
    call.input.extend(function.input[:1])
    call.output.append("again")
    node = _node(model, rng)
    if node is not None and rng.random() < 0.5:
        function.domain, function.name = node.domain, node.op_type


def feed_constants(model: onnx.ModelProto, rng: Random) -> None:
    """Make an input of the graph a constant, so that what reads it is folded."""
    graph = model.graph
    if not graph.input:
        return
    info = rng.choice(graph.input)
    kind = info.type.tensor_type
    sizes = [max(1, min(dim.dim_value, 4)) for dim in kind.shape.dim][:6]
    count = 1
    for size in sizes:
        count *= size
    values = [rng.randrange(3) for _ in range(count)]
    try:
        tensor = helper.make_tensor(info.name, kind.elem_type, sizes, values)
    except Exception:  # no such type, or one that does not hold numbers
        return
    graph.initializer.append(tensor)
    if rng.random() < 0.8:
        graph.input.remove(info)


_MEANINGS: Sequence[Callable[[onnx.ModelProto, Random], None]] = (
    rewire_input, rewire_input, rename_output, change_arity, change_operator, copy_node,
    give_attribute, give_attribute, retype_attribute, refer_attribute, resize, resize,
    retype, revalue, revalue, relocate, reversion, nest, call_itself, feed_constants,
    feed_constants,
)  # fmt: skip
_FORMS = (change_field, change_field, drop_field, swap_messages)


def mutate(model: onnx.ModelProto, rng: Random) -> None:
    """Change a model in one to a dozen ways; most often in few."""
    for _ in range(1 + min(int(rng.expovariate(0.8)), 11)):
        how = rng.choice(_MEANINGS if rng.random() < 0.75 else _FORMS)
        with contextlib.suppress(DecodeError):  # deeper than protobuf holds
            how(model, rng)
