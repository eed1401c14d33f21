"""Results are read into arrays that the memory gives, and those are what it should give."""

from __future__ import annotations

import numpy as np
import pytest
from tests.core.toys import FarMemory, model, open_over, toys

from seamline.errors import ContractError

TEXT = "g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Giving(FarMemory):
    """A far memory that gives arrays as a function makes them."""

    gives_arrays = True

    def __init__(self, make):
        super().__init__()
        self.make, self.given = make, []

    def array(self, kind):
        self.given.append(self.make(kind.sizes, np.float32))
        return self.given[-1]


def opened(make):
    far = toys()["far"]
    far.own = Giving(make)
    return far.own, open_over(model(TEXT), far)


def test_what_a_run_gives_is_the_array_that_the_memory_gave():
    memory, session = opened(np.empty)
    found = [session.run({"x": X + n})[0] for n in range(2)]
    assert [y is given for y, given in zip(found, memory.given, strict=True)] == [
        True
    ] * 2
    for n, y in enumerate(found):
        np.testing.assert_array_equal(y, -(X + n))
    session.close()


def _read_only(sizes, dtype):
    made = np.empty(sizes, dtype)
    made.flags.writeable = False
    return made


OTHERS = {
    "type": lambda sizes, dtype: np.empty(sizes, np.float64),
    "shape": lambda sizes, dtype: np.empty(sizes[::-1], dtype),
    "order": lambda sizes, dtype: np.empty(sizes[::-1], dtype).T,
    "no array": lambda sizes, dtype: bytearray(24),
    "read only": _read_only,
}


@pytest.mark.parametrize("kind", OTHERS)
def test_an_array_of_another_kind_is_an_error_that_names_the_provider(kind):
    _, session = opened(OTHERS[kind])
    with pytest.raises(ContractError, match=r"far.*give an array of .*it gave"):
        session.run({"x": X})
    session.close()
