"""ONNX's node cases again: fed as constants, and with sizes that only a run tells."""

import numpy as np
import onnx
import pytest
from tests.conformance.outcomes import DECLINED, PASS, plain, run_case
from tests.conformance.test_node_suite import by_operator, declined_in

from seamline_testing.draws import PROPERTIES
from seamline_testing.oracles import judge


def as_constants(model, inputs):
    """Turn inputs that are numbers into initializers, which are folded and packed."""
    kept, fed = [], []
    for proto, value in zip(model.graph.input, inputs, strict=False):
        array = plain(value)
        if not isinstance(array, np.ndarray) or array.dtype.kind in "USO":
            kept.append(onnx.ValueInfoProto.FromString(proto.SerializeToString()))
            fed.append(value)
        elif proto.type.HasField("tensor_type"):
            tensor = model.graph.initializer.add()
            is_proto = isinstance(value, onnx.TensorProto)
            tensor.CopyFrom(value if is_proto else onnx.numpy_helper.from_array(array))
            tensor.name = proto.name
        else:  # an optional that is given
            kept.append(onnx.ValueInfoProto.FromString(proto.SerializeToString()))
            fed.append(value)
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return fed


def with_symbols(model, inputs):
    """Give every declared size another name."""
    for proto in (*model.graph.input, *model.graph.output):
        if proto.type.HasField("tensor_type"):
            for axis, dim in enumerate(proto.type.tensor_type.shape.dim):
                dim.dim_param = f"{proto.name}_{axis}"
    return inputs


@pytest.mark.parametrize("change", [as_constants, with_symbols])
@pytest.mark.parametrize("operator", [name for name in by_operator() if name not in PROPERTIES])  # fmt: skip
def test_a_case_gives_the_same_in_another_form(operator, change):
    problems = []
    for case in by_operator()[operator]:
        inputs, _ = case.data[0]
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        right = judge(case.model, case.feeds(), case.stored())
        wanted = right.wanted if not right.why_not else case.stored()
        finding = run_case(model, change(model, inputs), wanted)
        if finding.outcome is DECLINED and declined_in(case):
            continue
        if finding.outcome is not PASS:
            problems.append(f"{case.id}: {finding.outcome}: {finding.said}")
    assert not problems, "\n".join(problems)
