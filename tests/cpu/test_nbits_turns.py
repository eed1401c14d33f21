"""Turns at packed weights: each is taken once, one's own first."""

from __future__ import annotations

import threading

import pytest

from seamline_cpu.jit import jit
from seamline_cpu.kernels.nbits_turns import clear_turns, counters, next_turn


@jit
def clear(address, shares):
    clear_turns(address, shares)


def taken(address, share, shares, every):
    found = []
    while (turn := next_turn(address, share, shares, every)) >= 0:
        found.append(turn)
    return found


@pytest.mark.parametrize("every", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("shares", [1, 2, 5])
def test_one_that_is_alone_takes_every_turn_beginning_with_its_own(every, shares):
    for share in range(shares):
        _room, address = counters(shares)
        found = taken(address, share, shares, every)
        assert sorted(found) == list(range(every))
        own = range(every * share // shares, every * (share + 1) // shares)
        assert found[: len(own)] == list(own)


def test_several_at_once_take_each_turn_once():
    _room, address = counters(4)
    found = [[] for _ in range(4)]
    every = 4001

    def work(share):
        found[share] = taken(address, share, 4, every)

    threads = [threading.Thread(target=work, args=(share,)) for share in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(turn for turns in found for turn in turns) == list(range(every))


def test_cleared_turns_are_there_again_and_counters_keep_off_each_others_lines():
    _room, address = counters(3)
    assert address % 64 == 0
    for _ in range(2):
        clear(address, 3)
        assert len(taken(address, 1, 3, 10)) == 10
    assert taken(address, 1, 3, 10) == []
