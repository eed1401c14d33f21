"""Elementwise commands joined into one: the same bits, and refused where order is seen."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import model

from seamline.pipeline import Pipeline
from seamline_cpu.chains import BLOCK, chained
from seamline_cpu.commands import in_list
from seamline_cpu.kernels import activation_loops, broadcast_commands
from seamline_cpu.kernels.activation_commands import bind_loop
from seamline_cpu.kernels.broadcast_commands import bind_binary, bind_unary
from seamline_cpu.kernels.cast_commands import bind_cast

f32 = np.float32
SIZE = 5 * BLOCK + 77


class Call:
    options = {"num_threads": 1}  # noqa: RUF012


def drawn(seed=0, size=SIZE):
    return np.random.default_rng(seed).standard_normal(size).astype(f32)


def run_all(runs):
    """Run a list of them; give how many commands it has, and how many chains."""
    rows, made = chained(runs)
    in_list(rows, (runs, made))()
    return len(rows), len(made)


@pytest.mark.parametrize("shared", [False, True])
def test_a_chain_gives_the_bits_of_its_commands_one_by_one(shared, monkeypatch):
    if shared:
        monkeypatch.setattr(broadcast_commands, "_SHARED_FROM", 1)
        monkeypatch.setattr(Call, "options", {"num_threads": 3})
    x, half = drawn(), np.array(0.5, f32)
    a, b, c = (np.full(SIZE, np.nan, f32) for _ in range(3))
    whole = np.zeros(SIZE, np.int32)
    runs = [
        bind_unary("Abs", Call, x, a),
        bind_binary("Mul", Call, a, half, b),
        bind_binary("Sub", Call, half, b, b),
        bind_loop(activation_loops.tanh, b, c, 0.0, 0.0, 1),
        bind_binary("Max", Call, c, x, a),
        bind_cast(Call, a, whole),
    ]
    for run in runs:
        run()
    want = [array.copy() for array in (a, b, c, whole)]
    for array in (a, b, c, whole):
        array.fill(7)
    assert run_all(runs) == (1, 1)
    for got, expected in zip((a, b, c, whole), want, strict=True):
        assert got.tobytes() == expected.tobytes()


def test_a_value_in_the_place_of_one_that_is_dead_may_lie_there_but_not_shifted():
    room = np.zeros(2 * SIZE, f32)
    dead, y = room[:SIZE], np.zeros(SIZE, f32)
    dead[:] = drawn()
    want = np.negative(np.abs(dead))
    same = [bind_unary("Abs", Call, dead, y), bind_unary("Neg", Call, y, dead)]
    assert run_all(same) == (1, 1)
    np.testing.assert_array_equal(dead, want)
    for shift in (1, BLOCK, SIZE - 1):
        dead[:] = drawn()
        shifted = room[shift : shift + SIZE]
        runs = [bind_unary("Abs", Call, dead, y), bind_unary("Neg", Call, y, shifted)]
        assert run_all(runs) == (2, 0)
        np.testing.assert_array_equal(shifted, want)


def test_a_number_that_a_later_command_overwrites_is_no_part_of_a_chain():
    room = drawn(size=2 * SIZE)
    number, x, y = room[3:4].reshape(()), drawn(1), np.zeros(SIZE, f32)
    want = -(x * number)
    runs = [
        bind_binary("Mul", Call, x, number, y),
        bind_unary("Neg", Call, y, room[:SIZE]),
    ]
    assert run_all(runs) == (2, 0)
    np.testing.assert_array_equal(room[:SIZE], want)


def test_a_number_that_a_chain_would_write_ends_it():
    x, y = drawn(), np.zeros(SIZE, f32)
    first = y[:1].reshape(())
    z = np.zeros(SIZE, f32)
    runs = [bind_unary("Abs", Call, x, y), bind_binary("Add", Call, y, first, z)]
    assert run_all(runs) == (2, 0)
    np.testing.assert_array_equal(z, np.abs(x) + abs(x[0]))


def test_what_lies_between_parts_a_chain_and_small_arrays_make_none():
    x, y, z = drawn(), np.zeros(SIZE, f32), np.zeros(SIZE, f32)
    row = drawn(1, 7)
    between = bind_unary("Neg", Call, row, np.zeros(7, f32))
    pair = [bind_unary("Abs", Call, x, y), bind_unary("Sqrt", Call, y, z)]
    assert run_all([pair[0], between, pair[1]]) == (3, 0)
    assert run_all([*pair, between, *pair]) == (3, 2)
    assert run_all([between, between]) == (2, 0)
    assert chained([]) == ([], [])


def test_an_argument_that_its_owner_changes_is_followed():
    x, y, z = drawn(), np.zeros(SIZE, f32), np.zeros(SIZE, f32)
    first, second = bind_unary("Abs", Call, x, y), bind_unary("Neg", Call, y, z)
    rows, made = chained([first, second])
    run = in_list(rows, (made, first, second))
    run()
    first.arguments()[0] = broadcast_commands.UNARY["Relu"]
    run()
    np.testing.assert_array_equal(z, -np.maximum(x, 0))


def test_a_recorded_model_has_chains_and_the_same_result():
    text = f"""g (float[{SIZE}] x, float[1] w) => (y) {{
        a = Mul(x, x) b = Sigmoid(a) c = Mul(a, b) d = Add(c, w) y = Relu(d) }}"""
    pipeline = Pipeline.open(model(text), providers=[("cpu", {"num_threads": 2})])
    eager = Pipeline.open(
        model(text), providers=[("cpu", {"num_threads": 2})], record=False
    )
    for seed in range(4):
        feeds = {"x": drawn(seed), "w": np.array([seed], f32)}
        (got,), (want,) = pipeline.run(feeds), eager.run(feeds)
        assert got.tobytes() == want.tobytes()
    (captured,) = pipeline.runner.latest().captured.values()
    ((call, _),) = captured.recording.calls
    assert len(call.rows) == 1
