"""Every kernel compiles for every architecture that is promised; no device is needed."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path

import pytest
from tests.cuda.plain import groups_of

pytest.importorskip("numba_cuda", reason="the extra 'cuda' is not installed")

from seamline_cuda import compiler, edge_kernel, mailbox, scattering
from seamline_cuda.compiler import compiled, counts, ptx_of
from seamline_cuda.device_kernel import DeviceKernel
from seamline_cuda.driver import LinkError, linked
from seamline_cuda.elementwise import generated

ARCHITECTURES = ((8, 0), (9, 0), (10, 0))

#: Each takes in many operators, since a kernel computes all nodes of its group.
KERNELS = {
    "functions": """g (float[64] x) => (float[64] y) {
        a = Abs(x) b = Sqrt(a) c = Exp(b) d = Log(c) e = Sin(d) f = Cos(e) h = Tanh(f)
        i = Erf(h) j = Floor(i) k = Ceil(j) l = Round(k) m = Reciprocal(l) n = Sign(m)
        o = Neg(n) p = Relu(o) y = Sigmoid(p) }""",
    "activations": """g (float[64] x) => (float[64] y) {
        a = Elu(x) b = LeakyRelu(a) c = HardSigmoid(b) d = HardSwish(c) e = Softplus(d)
        f = Softsign(e) h = Gelu(f) y = Gelu<approximate = "tanh">(h) }""",
    "arithmetic": """g (float[64] x, float[64] z) => (float[64] y) {
        a = Add(x, z) b = Mul(a, x) c = Sub(b, z) d = Div(c, a) e = Min(d, x, z)
        f = Max(e, x) h = Sum(f, x, z) y = Clip(h, x, z) }""",
    "choices": """g (float[64] x, float[64] z, bool[64] m) => (float[64] y) {
        a = Less(x, z) b = Greater(x, z) c = LessOrEqual(x, z) d = GreaterOrEqual(x, z)
        e = Equal(x, z) f = And(a, b) h = Or(c, d) i = Xor(e, m) j = And(f, h)
        k = Or(i, j) l = Not(k) y = Where(l, x, z) }""",
    "half": """g (float16[64] x, bfloat16[64] z) => (float16[64] y, bfloat16[64] w) {
        a = Mul(x, x) b = Add(a, x) y = Cast<to = 10>(b) c = Mul(z, z) d = Add(c, z)
        w = Cast<to = 16>(d) }""",
    "integers": """g (int64[64] x, int32[64] z, uint8[64] u) => (int64[64] y, int32[64] w, uint8[64] v) {
        a = Mul(x, x) b = Div(a, x) y = Sub(b, x) c = Mul(z, z) d = Div(c, z) w = Sub(d, z)
        e = Add(u, u) v = Div(e, u) }""",
    "doubles": """g (double[64] x) => (float16[64] y, int64[64] w, bool[64] v) {
        a = Mul(x, x) b = Add(a, x) y = Cast<to = 10>(b) w = Cast<to = 7>(b)
        v = Cast<to = 9>(b) }""",
    "broadcast": """g (float[4,5,6] x, float[5,1] z, float[4,1,6] u, float s) => (float[4,5,6] y) {
        a = Add(x, z) b = Mul(a, u) y = Sub(b, s) }""",
    "codes": """g (float[4,5,6] x, float[5] s, uint8[5] z, float16[6] h) => (float16[4,5,6] y) {
        a = QuantizeLinear(x, s, z) b = DequantizeLinear(a, s, z) c = Cast<to = 10>(b)
        d = QuantizeLinear<axis = 2, output_dtype = 5>(c, h)
        y = DequantizeLinear<axis = 2>(d, h) }""",
}  # fmt: skip
#: Kernels with a text of their own, for one element type each.
WRITTEN = {
    "edge": edge_kernel.EDGE,
    "mailbox": mailbox.MAILBOX,
    "tensor_scatter": DeviceKernel(
        "tensor_scatter",
        scattering._TEXT,
        ("uint16*", "int64*", "uint16*", "uint32*", *["int64"] * 7),
    ),
}
LISTED = tomllib.loads(Path(__file__).with_name("registers.toml").read_text())


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEAMLINE_CACHE_DIR", str(tmp_path))
    return tmp_path / "cuda"


def kernel_of(name):
    if name in WRITTEN:
        return WRITTEN[name]
    (group,) = groups_of(KERNELS[name])
    return generated(group).kernel


@pytest.mark.parametrize("name", [*KERNELS, *WRITTEN])
def test_a_kernel_compiles_everywhere_within_its_listed_registers_and_spills_nothing(
    name,
):
    kernel = kernel_of(name)
    for major, minor in ARCHITECTURES:
        made = compiled(kernel, (major, minor))
        listed = LISTED[name][f"sm_{major}{minor}"]
        assert made.cubin.startswith(b"\x7fELF")
        assert made.registers is not None
        assert made.spilled == 0
        # Assemblers of one year differ by a few; a table that says more is out of date.
        assert listed - 8 <= made.registers <= listed


def test_the_table_lists_these_kernels_and_no_other():
    assert set(LISTED) == {*KERNELS, *WRITTEN}


def test_a_product_in_a_chain_is_not_joined_with_the_sum_after_it():
    (group,) = groups_of(
        "g (float[8] x, float[8] z) => (float[8] y) { t = Mul(x, z)  y = Add(t, x) }"
    )
    text = ptx_of(generated(group).kernel, (9, 0)).decode()
    assert "mul.rn.f32" in text
    assert "fma" not in text


def test_what_was_compiled_is_loaded_by_the_next_and_found_by_its_content(own_cache):
    kernel = kernel_of("broadcast")
    before = dict(counts)
    first = compiled(kernel, (9, 0))
    again = compiled(kernel, (9, 0))
    other = compiled(kernel, (8, 0))
    assert again == first != other
    assert counts["compiled"] - before["compiled"] == 2
    assert counts["loaded"] - before["loaded"] == 1
    assert len(list(own_cache.iterdir())) == 2


def test_a_damaged_file_costs_a_warning_and_a_compilation(own_cache):
    kernel = kernel_of("broadcast")
    first = compiled(kernel, (9, 0))
    (path,) = own_cache.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    compiler._warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="is damaged.*SEAMLINE_CACHE_DIR"):
        assert compiled(kernel, (9, 0)).registers == first.registers
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(kernel, (9, 0)).entry == first.entry == kernel.name


def test_a_folder_that_cannot_be_made_costs_a_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEAMLINE_CACHE_DIR", str(tmp_path / "file"))
    compiler._warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="are not cached in"):
        compiled(kernel_of("broadcast"), (9, 0))


def test_text_that_the_assembler_refuses_is_an_error_with_what_it_said():
    with pytest.raises(LinkError, match=r"nvJitLink.*syntax error|nvJitLink.*ERROR"):
        linked(
            b".version 8.0\n.target sm_80\n.address_size 64\nnonsense\0",
            ("-arch=sm_80",),
        )


@pytest.mark.parametrize("name", ["functions", "activations", "arithmetic", "half"])
def test_kernels_of_32_and_16_bits_never_compute_in_64(name):
    text = ptx_of(kernel_of(name), (9, 0)).decode()
    lines = [line for line in text.splitlines() if ".f64" in line]
    # Sine and cosine reduce large arguments in 64 bits, in NVIDIA's own library.
    assert [line for line in lines if name != "functions"] == []
