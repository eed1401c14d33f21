"""QMoE against its definition in float64: routing, activations, forms of weights."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state
from tests.cpu.expert_definition import mixture, routed
from tests.cpu.movement import give, peer
from tests.cpu.packed_weights import error, packed_codes

from seamline_cpu.kernels.nbits_codebooks import CODEBOOKS

R = np.random.default_rng(7)
CONTRIB = "com.microsoft"
QMOE = next(
    set(schema.attributes)
    for schema in onnxruntime_pybind11_state.get_all_operator_schema()
    if schema.name == "QMoE"
)
F = np.float32


def layer(experts, n, k, bits=4, block=0, points=False, bias=True, dtype=F):
    """Give a layer's inputs (weights, scales, bias, zero points), and what they stand for."""
    blocks, top = (k // block if block else 1), 1 << bits
    q = R.integers(0, top, (experts, n, blocks, k // blocks))
    scale = (R.integers(4, 17, (experts, n, blocks)) / 256).astype(dtype)
    z, zeros = np.full((experts, n, blocks), top // 2), None
    if points:
        each = 8 // bits
        z = R.integers(0, top, z.shape)
        if block:
            filler = -blocks % each
            zeros = packed_codes(np.pad(z, ((0, 0), (0, 0), (0, filler))), bits)
        else:
            zeros = packed_codes(np.pad(z[..., 0], ((0, 0), (0, -n % each))), bits)
    w = (q - z[..., None]) * scale.astype(float)[..., None]
    b = (R.standard_normal((experts, n)) if bias else np.zeros((experts, n))).astype(
        dtype
    )
    codes = packed_codes(q.reshape(experts, n, k), bits)
    given = (codes, scale if block else scale[..., 0], b if bias else None, zeros)
    return given, (w.reshape(experts, n, k), b.astype(float))


class Case:
    """A QMoE node with its definition's result."""

    def __init__(self, tokens=5, experts=4, hidden=64, inner=48, *, bits=4, block=16, k=2,
                 normalize=1, mixer=0, kind="silu", fusion=0, third=False, points=False,
                 bias=True, dtype=F, level=0, states=False, logits=None,
                 **numbers):  # fmt: skip
        self.x = R.standard_normal((tokens, hidden)).astype(dtype)
        self.logits = R.standard_normal((tokens, experts)).astype(dtype)
        if logits is not None:
            self.logits = logits
        stated = R.random((tokens, experts)).astype(dtype) if states else None
        wide = 2 * inner if kind == "swiglu" and not third else inner
        form = {
            "bits": bits,
            "block": block,
            "points": points,
            "bias": bias,
            "dtype": dtype,
        }
        sizes = {1: (wide, hidden), 2: (hidden, inner)}
        if third:
            sizes[3] = (inner, hidden)
        inputs = [self.x, self.logits, *[None] * 13]
        layers = {}
        for number, (n, depth) in sizes.items():
            given, layers[number] = layer(experts, n, depth, **form)
            at = 3 * number - 1
            inputs[at : at + 3], inputs[10 + number] = given[:3], given[3]
        inputs[14] = stated
        self.inputs = inputs
        self.want = mixture(
            self.x, self.logits, layers, k=k, normalize=normalize, mixer=mixer,
            stated=stated, kind=kind, fusion=fusion, **numbers,
        )  # fmt: skip
        renamed = {"alpha": "activation_alpha", "beta": "activation_beta",
                   "limit": "swiglu_limit"}  # fmt: skip
        self.attributes = {
            "k": k, "normalize_routing_weights": normalize, "use_sparse_mixer": mixer,
            "activation_type": kind, "swiglu_fusion": fusion, "expert_weight_bits": bits,
            "accuracy_level": level, "weights_prepacked": 0,
            **({"block_size": block} if block else {}),
            **{renamed[name]: float(value) for name, value in numbers.items()},
        }  # fmt: skip

    @property
    def constant(self):
        return [i for i in range(2, 14) if self.inputs[i] is not None]

    def given(self):
        (y,) = give("QMoE", self.inputs, np.zeros(self.x.shape, self.x.dtype),
                    constant=self.constant, domain=CONTRIB, **self.attributes)  # fmt: skip
        return y

    def error(self):
        return error(self.given(), self.want)


EXACT, BYTES = 2e-6, 3e-2  # two products in a row, over few terms


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [0, 16, 32])
@pytest.mark.parametrize("points", [False, True])
def test_weights_of_every_form_give_the_definition(bits, block, points):
    case = Case(bits=bits, block=block, points=points, inner=32, hidden=96)
    assert case.error() < EXACT


@pytest.mark.parametrize("kind", ["identity", "relu", "silu", "gelu"])
@pytest.mark.parametrize("third", [False, True])
def test_every_activation_with_a_gate_of_its_own_and_without(kind, third):
    assert Case(kind=kind, third=third).error() < EXACT


@pytest.mark.parametrize("fusion", [0, 1, 2])
@pytest.mark.parametrize("limit", [{}, {"limit": 0.75}])
def test_swiglu_takes_its_halves_from_where_its_fusion_says(fusion, limit):
    case = Case(
        kind="swiglu", fusion=fusion, third=not fusion, alpha=1.702, beta=1.0, **limit
    )
    assert case.error() < EXACT


@pytest.mark.parametrize("normalize", [0, 1])
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("k", [1, 3])
def test_what_a_choice_weighs(normalize, states, k):
    assert Case(normalize=normalize, states=states, k=k).error() < EXACT


def test_the_sparse_mixer_weighs_against_what_is_near():
    logits = [[1, 1.01, 0.9, 1.005], [-1, -1.01, -3, -1.2], [0, 0, 5, 4.95]]
    case = Case(mixer=1, k=2, tokens=3, logits=np.array(logits, F))
    chosen, weights = routed(np.array(logits[0]), 2, mixer=1)
    assert chosen == [1, 3]
    assert weights[0] == pytest.approx(1 / (1 + np.exp(-0.01) + np.exp(-0.005)))
    assert case.error() < EXACT


def test_of_equal_logits_the_first_expert_is_taken():
    case = Case(k=2, tokens=2)
    case.inputs[1][...] = 0
    (y,) = give("QMoE", case.inputs, np.zeros_like(case.x), constant=case.constant,
                domain=CONTRIB, **case.attributes)  # fmt: skip
    only = [
        None if x is None else x[:2] if i > 1 else x for i, x in enumerate(case.inputs)
    ]
    only[1] = np.zeros((2, 2), F)
    (want,) = give("QMoE", only, np.zeros_like(case.x), constant=case.constant,
                   domain=CONTRIB, **case.attributes)  # fmt: skip
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("level", [0, 4])
def test_any_number_of_rows_of_an_expert(tokens, level):
    case = Case(tokens=tokens, experts=5, k=3, level=level, kind="swiglu", fusion=1)
    assert case.error() < (BYTES if level == 4 else EXACT)


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize(("inner", "hidden"), [(40, 72), (100, 80), (18, 22)])
def test_sizes_that_are_no_multiples_of_a_group(level, points, inner, hidden):
    case = Case(hidden=hidden, inner=inner, block=0, points=points, level=level)
    assert case.error() < (BYTES if level == 4 else EXACT)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("level", [0, 4])
def test_floats_of_16_bits(dtype, level):
    case = Case(dtype=dtype, level=level, kind="swiglu", fusion=1)
    rounding = 1e-3 if dtype == np.float16 else 8e-3
    assert case.error() < rounding + (BYTES if level == 4 else 0)


def test_bits_of_each_layer():
    case = Case(bits=4, third=True, kind="silu", level=4)
    other = Case(bits=8, third=True, kind="silu", level=4)
    inputs = list(case.inputs)
    for at in (8, 9, 10, 13):
        inputs[at] = other.inputs[at]
    attributes = {**case.attributes, "fc3_expert_weight_bits": 8}
    (y,) = give("QMoE", inputs, np.zeros_like(case.x), constant=case.constant,
                domain=CONTRIB, **attributes)  # fmt: skip
    (plain,) = give("QMoE", inputs, np.zeros_like(case.x), constant=case.constant,
                    domain=CONTRIB, **{**attributes, "accuracy_level": 0})  # fmt: skip
    assert 0 < error(y, plain) < BYTES


@pytest.mark.parametrize(
    "form",
    [
        {"kind": "swiglu", "fusion": 1, "alpha": 1.702, "beta": 1.0, "limit": 7.0},
        {"kind": "swiglu", "fusion": 1},
        {"kind": "silu"},
        {"kind": "gelu"},
        {"kind": "relu", "bits": 8, "block": 0},
        {"kind": "identity", "block": 0, "points": True},
        {"kind": "silu", "states": True},
    ],
)
def test_onnxruntime_agrees(form):
    case = Case(tokens=6, inner=32, **form)
    # Versions before 1.32 do not know the attributes that say what is the default.
    known = {name: value for name, value in case.attributes.items() if name in QMOE}
    (theirs,) = peer("QMoE", case.inputs, opset=21, domain=CONTRIB, **known)
    assert error(case.given(), theirs) < 2e-3  # its products may go through bytes


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("tokens", [1, 9])
def test_mxfp4_is_multiplied_as_codes(level, tokens):
    case = Case(tokens=tokens, hidden=64, inner=32, block=32, level=level)
    e2m1, layers = np.array(CODEBOOKS["e2m1"]), {}
    case.inputs += [None] * 2
    for number, (n, k) in {1: (32, 64), 2: (64, 32)}.items():
        at = 3 * number - 1
        q = R.integers(0, 16, (4, n, k))
        scale = np.exp2(R.integers(-6, 2, (4, n, k // 32))).astype(
            ml_dtypes.float8_e8m0fnu
        )
        whole = R.uniform(0.5, 2, 4).astype(F)
        case.inputs[at : at + 2] = packed_codes(q, 4), scale
        case.inputs[14 + number] = whole
        w = e2m1[q] * np.repeat(scale.astype(float), 32, axis=2) * whole[:, None, None]
        layers[number] = w, case.inputs[at + 2].astype(float)
    attributes = {**case.attributes, "quant_type": "fp4"}
    constant = [*case.constant, 15, 16]
    (y,) = give("QMoE", case.inputs, np.zeros_like(case.x), constant=constant, domain=CONTRIB,
                **attributes)  # fmt: skip
    want = mixture(case.x, case.logits, layers, k=2, normalize=1, kind="silu")
    assert error(y, want) < (BYTES if level == 4 else EXACT)
