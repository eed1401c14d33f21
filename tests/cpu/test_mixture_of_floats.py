"""MoE against its definition in float64, and onnxruntime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.cpu.expert_definition import mixture
from tests.cpu.movement import give, peer
from tests.cpu.packed_weights import error

R = np.random.default_rng(5)
F = np.float32
CONTRIB = "com.microsoft"


class Case:
    """A MoE node with its definition's result."""

    def __init__(self, tokens=6, experts=4, hidden=24, inner=20, *, k=2, normalize=1, mixer=0,
                 kind="silu", fusion=0, third=False, bias=True, dtype=F, **numbers):  # fmt: skip
        x = R.standard_normal((tokens, hidden)).astype(dtype)
        logits = R.standard_normal((tokens, experts)).astype(dtype)
        wide = 2 * inner if kind == "swiglu" and not third else inner
        sizes = {
            1: (wide, hidden),
            2: (hidden, inner),
            **({3: (inner, hidden)} if third else {}),
        }
        self.inputs, layers = [x, logits, *[None] * 6], {}
        for number, (n, depth) in sizes.items():
            w = (R.standard_normal((experts, n, depth)) / 4).astype(dtype)
            b = (R.standard_normal((experts, n)) * bias).astype(dtype)
            layers[number] = w.astype(float), b.astype(float)
            self.inputs[2 * number : 2 * number + 2] = w, b if bias else None
        self.want = mixture(x, logits, layers, k=k, normalize=normalize, mixer=mixer,
                            kind=kind, fusion=fusion, **numbers)  # fmt: skip
        names = {
            "alpha": "activation_alpha",
            "beta": "activation_beta",
            "limit": "swiglu_limit",
        }
        self.attributes = {
            "k": k, "normalize_routing_weights": normalize, "use_sparse_mixer": mixer,
            "activation_type": kind, "swiglu_fusion": fusion,
            **{names[name]: float(value) for name, value in numbers.items()},
        }  # fmt: skip
        self.x = x

    def given(self):
        (y,) = give(
            "MoE", self.inputs, np.zeros_like(self.x), domain=CONTRIB, **self.attributes
        )
        return y


@pytest.mark.parametrize("kind", ["identity", "relu", "silu", "gelu"])
@pytest.mark.parametrize("third", [False, True])
def test_every_activation(kind, third):
    case = Case(kind=kind, third=third, bias=third)
    assert error(case.given(), case.want) < 2e-6


@pytest.mark.parametrize("fusion", [0, 1, 2])
@pytest.mark.parametrize("normalize", [0, 1])
def test_swiglu_of_every_layout(fusion, normalize):
    case = Case(kind="swiglu", fusion=fusion, third=not fusion, normalize=normalize,
                alpha=1.7, beta=1.0, limit=0.9)  # fmt: skip
    assert error(case.given(), case.want) < 2e-6


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_floats_of_16_bits(dtype):
    case = Case(dtype=dtype)
    assert error(case.given(), case.want) < (1e-3 if dtype == np.float16 else 8e-3)


@pytest.mark.parametrize("normalize", [0, 1])
@pytest.mark.parametrize("kind", ["relu", "gelu", "swiglu"])
def test_onnxruntime_agrees(kind, normalize):
    case = Case(kind=kind, fusion=int(kind == "swiglu"), normalize=normalize)
    (theirs,) = peer("MoE", case.inputs, opset=21, domain=CONTRIB, **case.attributes)
    assert error(case.given(), theirs) < 2e-6


def test_what_is_not_implemented_is_refused():
    case = Case()
    for changed, why in (
        ({"activation_type": "geglu"}, "'geglu'"),
        ({"k": 5}, "4 experts"),
    ):
        with pytest.raises(NotImplementedError, match=why):
            give("MoE", case.inputs, np.zeros_like(case.x), domain=CONTRIB,
                 **{**case.attributes, **changed})  # fmt: skip
