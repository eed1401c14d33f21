"""ONNX's own cases of the operators over rows and windows, by their kernels' text."""

from __future__ import annotations

import pytest
from tests.cuda.worked import node_worked
from tests.node_cases import as_array, check, node_cases

from seamline.provider import Refusal

REDUCTIONS = [
    f"Reduce{name}"
    for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
]  # fmt: skip
OPERATORS = (
    *REDUCTIONS, "ArgMax", "ArgMin", "Softmax", "LogSoftmax", "Hardmax", "CumSum", "CumProd",
    "LayerNormalization", "RMSNormalization", "GroupNormalization", "InstanceNormalization",
    "BatchNormalization", "LpNormalization", "MeanVarianceNormalization", "TopK", "MaxPool",
    "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool",
)  # fmt: skip
#: Cases that are refused, and what the refusal says.
REFUSED = {
    "test_batchnorm_epsilon_training_mode": "training mode",
    "test_batchnorm_example_training_mode": "training mode",
}
#: A hundred thousand windows each, which the emulation takes half a minute for; the other
#: cases of three axes have the same text, and a device runs these in the conformance kit.
LARGE = {f"test_{op}_3d_default" for op in ("lppool", "averagepool", "maxpool")}
CASES = {case[0]: case[1:] for case in node_cases(*OPERATORS) if case[0] not in LARGE}


@pytest.mark.parametrize("name", CASES)
def test_a_case_of_the_standard_gives_its_outputs(name):
    node, opset, inputs, outputs = CASES[name]
    found = node_worked(node, inputs, outputs, opset=opset, constant=(1,))
    if name in REFUSED:
        assert isinstance(found, Refusal)
        assert REFUSED[name] in str(found)
        return
    assert not isinstance(found, Refusal), str(found)
    # Some of the cases give four digits.
    want = [None if x is None else as_array(x) for x in outputs]
    assert check(found, want, rtol=3e-4) is None


def test_every_operator_has_cases_or_tests_of_its_own():
    seen = {node.op_type for node, *_ in CASES.values()}
    # ONNX has no single-node case of these; the tests of their families hold them.
    assert set(OPERATORS) - seen == {"GlobalLpPool"}
