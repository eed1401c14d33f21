"""Inputs and outputs bound to memory: what is read when, what is written when."""

import ctypes

import numpy as np
import pytest
from tests.core.arithmetic import open_session

from seamline.errors import FeedError
from seamline.ortvalue import OrtValue
from seamline.unsupported import UnsupportedError

COUNTER = """
g (float[2] state, float[2] step) => (float[2] next, float[2] twice)
{ next = Add(state, step)  twice = Add(next, next) }"""
ONES = np.ones(2, np.float32)


@pytest.fixture
def session():
    with open_session(COUNTER) as opened:
        yield opened


def test_an_output_without_memory_is_allocated_by_each_run(session):
    binding = session.io_binding()
    binding.bind_cpu_input("state", ONES)
    binding.bind_cpu_input("step", ONES * 2)
    binding.bind_output("next")
    session.run_with_iobinding(binding)
    (first,) = binding.get_outputs()
    binding.bind_cpu_input("step", ONES * 3)
    session.run_with_iobinding(binding)
    assert first.numpy().tolist() == [3, 3]
    assert binding.copy_outputs_to_cpu()[0].tolist() == [4, 4]


def test_outputs_come_in_the_order_of_binding(session):
    binding = session.io_binding()
    binding.bind_cpu_input("state", ONES)
    binding.bind_cpu_input("step", ONES)
    binding.bind_output("twice")
    binding.bind_output("next")
    session.run_with_iobinding(binding)
    assert [a.tolist() for a in binding.copy_outputs_to_cpu()] == [[4, 4], [2, 2]]


def test_an_input_is_read_anew_by_every_run(session):
    state = ONES.copy()
    binding = session.io_binding()
    binding.bind_cpu_input("state", state)
    binding.bind_cpu_input("step", ONES)
    binding.bind_output("next")
    session.run_with_iobinding(binding)
    state[...] = 10
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tolist() == [11, 11]


def test_an_input_and_an_output_in_one_buffer_carry_a_state(session):
    state = OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("state", state)
    binding.bind_cpu_input("step", np.array([1, 2], np.float32))
    binding.bind_ortvalue_output("next", state)
    binding.bind_output("twice")
    for count in range(1, 6):
        session.run_with_iobinding(binding)
        assert state.numpy().tolist() == [count, 2 * count]
        assert binding.copy_outputs_to_cpu()[1].tolist() == [2 * count, 4 * count]


def test_memory_is_bound_by_its_address(session):
    state, target = np.array([1, 2], np.float32), np.zeros(2, np.float32)
    binding = session.io_binding()
    binding.bind_input("state", "cpu", 0, np.float32, [2], state.ctypes.data)
    binding.bind_cpu_input("step", ONES)
    binding.bind_output("next", "cpu", 0, np.float32, (2,), target.ctypes.data)
    session.run_with_iobinding(binding)
    assert target.tolist() == [2, 3]
    assert binding.get_outputs()[0].data_ptr() == target.ctypes.data


def test_an_output_at_an_odd_address_is_written_there(session):
    raw = ctypes.create_string_buffer(9)
    binding = session.io_binding()
    binding.bind_cpu_input("state", ONES)
    binding.bind_cpu_input("step", ONES)
    binding.bind_output(
        "next", element_type=1, shape=[2], buffer_ptr=ctypes.addressof(raw) + 1
    )
    session.run_with_iobinding(binding)
    assert np.frombuffer(raw.raw[1:9], np.float32).tolist() == [2, 2]


def test_a_result_that_does_not_fit_writes_nothing(session):
    good, bad = np.zeros(2, np.float32), np.zeros(3, np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("state", ONES)
    binding.bind_cpu_input("step", ONES)
    binding.bind_ortvalue_output("next", OrtValue.ortvalue_from_numpy(good))
    binding.bind_ortvalue_output("twice", OrtValue.ortvalue_from_numpy(bad))
    with pytest.raises(
        FeedError, match=r"output 'twice' is float32\[2\]; the memory bound"
    ):
        session.run_with_iobinding(binding)
    assert good.tolist() == [0, 0]
    assert bad.tolist() == [0, 0, 0]


def test_memory_that_can_never_fit_is_refused_when_it_is_bound(session):
    binding = session.io_binding()
    with pytest.raises(
        FeedError, match="output 'next' is float32; the memory bound to it is int"
    ):
        binding.bind_ortvalue_output(
            "next", OrtValue.ortvalue_from_numpy(np.zeros(2, np.int64))
        )
    frozen = ONES.copy()
    frozen.flags.writeable = False
    with pytest.raises(FeedError, match="read-only"):
        binding.bind_ortvalue_output("next", OrtValue.ortvalue_from_numpy(frozen))
    with pytest.raises(FeedError, match="only a tensor can be written into"):
        binding.bind_ortvalue_output("next", OrtValue.of([ONES]))


def test_a_bound_output_stays_its_owners_when_another_is_bound(session):
    first, second = np.zeros(2, np.float32), np.zeros(2, np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("state", ONES)
    binding.bind_cpu_input("step", ONES)
    binding.bind_ortvalue_output("next", OrtValue.ortvalue_from_numpy(first))
    session.run_with_iobinding(binding)
    binding.bind_ortvalue_output("next", OrtValue.ortvalue_from_numpy(second))
    with pytest.raises(FeedError, match="have no value yet"):
        binding.get_outputs()
    session.run_with_iobinding(binding)
    assert (first.tolist(), second.tolist()) == ([2, 2], [2, 2])


def test_cleared_bindings_are_gone(session):
    binding = session.io_binding()
    binding.bind_cpu_input("state", ONES)
    binding.bind_cpu_input("step", ONES)
    binding.bind_output("next")
    binding.clear_binding_inputs()
    with pytest.raises(FeedError, match="Required inputs"):
        session.run_with_iobinding(binding)
    binding.clear_binding_outputs()
    with pytest.raises(FeedError, match="no output is bound"):
        session.run_with_iobinding(binding)
    assert binding.get_outputs() == []


def test_names_devices_and_addresses_are_checked(session):
    binding = session.io_binding()
    with pytest.raises(
        FeedError, match="Invalid input name: 'stat'; did you mean 'state'"
    ):
        binding.bind_cpu_input("stat", ONES)
    with pytest.raises(
        FeedError, match="Invalid output name: 'nex'; did you mean 'next'"
    ):
        binding.bind_output("nex")
    with pytest.raises(UnsupportedError, match="output 'next' on cuda:0"):
        binding.bind_output("next", "cuda")
    with pytest.raises(UnsupportedError, match="input 'state' on cuda:1"):
        binding.bind_input("state", "cuda", 1, np.float32, [2], 4096)
    with pytest.raises(FeedError, match="is no address"):
        binding.bind_input("state", "cpu", 0, np.float32, [2], 0)
    with pytest.raises(FeedError, match="sizes are 0 or more"):
        binding.bind_input("state", "cpu", 0, np.float32, [-1], 4096)
    with pytest.raises(FeedError, match="strings have no address"):
        binding.bind_input("state", "cpu", 0, np.str_, [2], 4096)
    with pytest.raises(FeedError, match="buffer_ptr needs element_type and shape"):
        binding.bind_output("next", buffer_ptr=4096)
    with pytest.raises(FeedError, match="ndarray is no OrtValue"):
        binding.bind_ortvalue_input("state", ONES)


def test_a_binding_belongs_to_one_session(session):
    with (
        open_session(COUNTER) as other,
        pytest.raises(FeedError, match="another session"),
    ):
        session.run_with_iobinding(other.io_binding())


def test_synchronising_is_never_needed_and_harmless(session):
    binding = session.io_binding()
    binding.bind_cpu_input("state", ONES)
    binding.bind_cpu_input("step", ONES)
    binding.bind_output("next")
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    assert binding.get_outputs_as_ortvaluevector()[0].numpy().tolist() == [2, 2]
