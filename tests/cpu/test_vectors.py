"""Vector code against integers of any size, in every variant that this processor has."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from seamline_cpu.instruction_sets import INT8, choose, lacking
from seamline_cpu.ir import types
from seamline_cpu.jit import jit, native
from seamline_cpu.vectors import F32, I8, I16, I32, I64, Vectors, vector

R = np.random.default_rng(4)


def here(variant):
    reason = lacking(variant)
    return pytest.param(
        variant, marks=pytest.mark.skipif(bool(reason), reason=str(reason))
    )


EVERY = pytest.mark.parametrize("variant", [here(v) for v in INT8])


def compiled(emit, count):
    """Make a function of ``count`` addresses or numbers from what emits its code."""

    def generate(context, builder, signature, args):
        emit(builder, *args)
        return context.get_dummy_value()

    made = {
        2: lambda context, a, b: (types.void(*[types.int64] * 2), generate),
        3: lambda context, a, b, c: (types.void(*[types.int64] * 3), generate),
        4: lambda context, a, b, c, d: (types.void(*[types.int64] * 4), generate),
    }
    return native(made[count])


def run(emit, *values):
    code = compiled(emit, len(values))
    where = [v if isinstance(v, int) else v.ctypes.data for v in values]
    if len(values) == 2:
        jit(lambda a, b: code(a, b))(*where)
    elif len(values) == 3:
        jit(lambda a, b, c: code(a, b, c))(*where)
    else:
        jit(lambda a, b, c, d: code(a, b, c, d))(*where)


def extremes(dtype, size):
    """Give random numbers among which the ends of the range are many."""
    info = np.iinfo(dtype)
    x = R.integers(info.min, info.max, size, dtype, endpoint=True)
    return np.where(
        R.random(size) < 0.5, R.choice([info.min, info.max], size), x
    ).astype(dtype)


@EVERY
@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_the_dot_of_bytes_is_exact_at_the_ends_of_their_ranges(variant, lanes):
    def emit(builder, sums, u, s):
        v = Vectors(builder, variant)
        kind = vector(I32, lanes)
        v.store(v.bytes_dot(*[v.load(kind, p) for p in (sums, u, s)]), sums)

    u, s = extremes(np.uint8, 4 * lanes), extremes(np.int8, 4 * lanes)
    sums = R.integers(-(10**9), 10**9, lanes, np.int32)
    want = sums + (u.astype(int) * s).reshape(lanes, 4).sum(1)
    run(emit, sums, u, s)
    np.testing.assert_array_equal(sums, want)


@EVERY
def test_pairs_of_words_are_exact_and_wrap_nowhere_below_two_to_the_31(variant):
    def emit(builder, sums, a, b):
        v = Vectors(builder, variant)
        x, y = (v.load(vector(I16, 32), p) for p in (a, b))
        v.store(v.word_pairs(v.load(vector(I32, 16), sums), x, y), sums)

    a, b = extremes(np.int16, 32), R.integers(-32767, 32767, 32, np.int16)
    sums = np.arange(16, dtype=np.int32)
    want = sums + (a.astype(int) * b).reshape(16, 2).sum(1)
    run(emit, sums, a, b)
    np.testing.assert_array_equal(sums, want)


@EVERY
def test_eight_pairs_of_four_bit_codes_fit_into_words(variant):
    def emit(builder, out, u, s):
        v = Vectors(builder, variant)
        x, y = (v.load(vector(I32, 16), p) for p in (u, s))
        one = v.byte_pairs(x, y)
        total = one
        for _ in range(7):
            total = builder.add(total, one)
        v.store(v.widen_pairs(v.constant(vector(I32, 16), 5), total), out)

    for worst in (127, -127):
        u, s = np.full(64, 15, np.uint8), np.full(64, worst, np.int8)
        s[::7] = 3
        out = np.zeros(16, np.int32)
        run(emit, out, u, s)
        np.testing.assert_array_equal(
            out, 5 + 8 * (u.astype(int) * s).reshape(16, 4).sum(1)
        )


@EVERY
@pytest.mark.parametrize("count", [-1, 0, 1, 7, 15, 16, 40])
def test_a_part_is_all_that_is_read_and_written(variant, count):
    def emit(builder, source, target, n):
        v = Vectors(builder, variant)
        v.store_part(v.load_part(vector(F32, 16), source, n), target, n)

    x, y = np.arange(1, 17, dtype=np.float32), np.full(16, -1, np.float32)
    run(emit, x, y, count)
    inside = min(max(count, 0), 16)
    assert y.tolist() == x[:inside].tolist() + [-1.0] * (16 - inside)


@EVERY
def test_what_lies_past_a_part_is_zero(variant):
    def emit(builder, source, target, n):
        v = Vectors(builder, variant)
        v.store(v.load_part(vector(I8, 16), source, n), target)

    x, y = np.arange(1, 17, dtype=np.int8), np.full(16, -1, np.int8)
    run(emit, x, y, 5)
    assert y.tolist() == [1, 2, 3, 4, 5] + [0] * 11


@EVERY
def test_a_loop_carries_values_and_may_turn_no_time(variant):
    def emit(builder, out, turns):
        v = Vectors(builder, variant)
        kind = vector(F32, 16)

        def body(index, carried):
            step = v.load(F32, v.add(out, 64))
            return [v.multiply_add(v.splat(step, 16), carried[0], carried[0])]

        v.store(v.loop(turns, [v.load(kind, out)], body)[0], out)

    for turns in (0, 1, 5):
        x = np.append(np.arange(16), 1).astype(np.float32)
        run(emit, x, turns)
        np.testing.assert_array_equal(x[:16], np.arange(16) * 2.0**turns)


def assembly(variant, cpu, emit, count, *, optimised=False):
    """Compile for another processor; ``optimised`` as Numba does before."""
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * count), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    emit(Vectors(builder, variant), *function.args)
    builder.ret_void()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu=cpu, opt=3)
    parsed = llvm.parse_assembly(str(module))
    if optimised:
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        passes = llvm.create_pass_builder(machine, options)
        passes.getModulePassManager().run(parsed, passes)
    return machine.emit_assembly(parsed)


@pytest.mark.parametrize(
    ("variant", "cpu", "register"),
    [("avx512vnni", "sapphirerapids", "zmm"), ("avxvnni", "alderlake", "ymm")],
)
def test_the_dot_of_bytes_is_one_instruction_where_there_is_one(variant, cpu, register):
    def emit(v, sums, u, s):
        kind = vector(I32, 16)
        v.store(v.bytes_dot(*[v.load(kind, p) for p in (sums, u, s)]), sums)

    text = assembly(variant, cpu, emit, 3)
    lines = [line for line in text.splitlines() if "vpdpbusd" in line]
    assert len(lines) == (1 if register == "zmm" else 2)
    assert all(register in line for line in lines)
    assert "call" not in text


def test_a_variant_that_is_not_here_is_refused_with_its_reason():
    for variant in INT8:
        reason = lacking(variant)
        if reason is None:
            assert choose(forced=variant).variant == variant
        else:
            with pytest.raises(ValueError, match=variant) as error:
                choose(forced=variant)
            assert reason in str(error.value)
    with pytest.raises(ValueError, match="no variant 'mmx'"):
        choose(forced="mmx")


def test_the_choice_tells_what_was_passed_over():
    choice = choose()
    for variant in INT8[: INT8.index(choice.variant)]:
        assert f"not {variant}: {lacking(variant)}" in choice.because
