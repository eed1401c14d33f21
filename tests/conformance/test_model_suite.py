"""ONNX's stored models (``simple``, and those that PyTorch exported) over ``cpu``."""

import tomllib
from pathlib import Path

import onnx
import onnx.version_converter
import pytest
from onnx.backend.test.loader import load_model_tests
from tests.conformance.outcomes import PROVIDERS, differences, plain

from seamline.backend import Backend
from seamline.errors import KernelError, ModelError, UnclaimedNodeError
from seamline.versions import OLDEST_OPSET
from seamline_testing.tolerances import class_of

KINDS = ("simple", "pytorch-converted", "pytorch-operator")


def stored(kind):
    """Give the cases of a kind that lie in the onnx package, by name."""
    return {
        case.name: Path(case.model_dir)
        for case in load_model_tests(kind=kind)
        if case.model_dir
    }


DECLINED = tomllib.loads((Path(__file__).parent / "declined.toml").read_text())[
    "models"
]
CASES = {name: folder for kind in KINDS for name, folder in stored(kind).items()}

#: onnx's converter leaves these slopes one per channel; opset 7 aligns the last axes.
MISCONVERTED = frozenset(f"test_PReLU_{rank}d_multiparam" for rank in (1, 2, 3))


def value_of(path, proto):
    """Read one stored value of the type that the model declares."""
    data = path.read_bytes()
    kind = proto.type.WhichOneof("value")
    message = {
        "sequence_type": onnx.SequenceProto,
        "optional_type": onnx.OptionalProto,
    }.get(kind, onnx.TensorProto)()
    message.ParseFromString(data)
    if kind == "sequence_type":
        return onnx.numpy_helper.to_list(message)
    if kind == "optional_type":
        return onnx.numpy_helper.to_optional(message)
    return onnx.numpy_helper.to_array(message)


def values_of(folder, stem, protos):
    return [
        value_of(path, proto)
        for index, proto in enumerate(protos)
        if (path := folder / f"{stem}_{index}.pb").exists()
    ]


def refused_for_its_opset(model):
    """Tell whether loading refuses an operator as older than the oldest opset read."""
    try:
        Backend.prepare(model, providers=PROVIDERS).session.close()
    except UnclaimedNodeError:
        return False
    except ModelError as error:
        return "convert_version" in str(error)
    return False


def check_stored_outputs(model, folder):
    data_sets = sorted(folder.glob("test_data_set_*"))
    assert data_sets
    fixed = {tensor.name for tensor in model.graph.initializer}
    inputs = [one for one in model.graph.input if one.name not in fixed]
    with Backend.prepare(model, providers=PROVIDERS).session as session:
        for data in data_sets:
            given = values_of(data, "input", inputs)
            names = [value.name for value in inputs]
            got = session.run(None, dict(zip(names, given, strict=False)))
            want = values_of(data, "output", model.graph.output)
            assert len(want) == len(model.graph.output)
            kind = class_of(node.op_type for node in model.graph.node)
            wrong = differences(got, [plain(value) for value in want], kind)
            assert not wrong, wrong


@pytest.mark.parametrize("name", CASES)
def test_a_stored_model_gives_its_stored_outputs(name):
    model = onnx.load(CASES[name] / "model.onnx")
    opset = next(one.version for one in model.opset_import if not one.domain)
    if refused_for_its_opset(model):
        assert opset < OLDEST_OPSET
        # What the error says to do has to lead to a model that is right.
        model = onnx.version_converter.convert_version(model, OLDEST_OPSET)
    if name in MISCONVERTED:
        with pytest.raises(KernelError, match=r"PRelu: .* broadcast"):
            check_stored_outputs(model, CASES[name])
    elif name in DECLINED:
        with pytest.raises(UnclaimedNodeError, match=DECLINED[name]["operator"]):
            check_stored_outputs(model, CASES[name])
    else:
        check_stored_outputs(model, CASES[name])


def test_the_stored_models_are_all_there():
    assert len(CASES) >= 130
    assert CASES.keys() >= DECLINED.keys()
