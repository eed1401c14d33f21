"""
The matrices of MatMul and its kin: sizes, how they are stored, and work for a product.

A stack times one matrix is one product with more rows. All others are batches, see
:mod:`seamline_cuda.stacks`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import attrs

from seamline.tensors import numpy_dtype
from seamline_cuda.stacks import Stacks
from seamline_cuda.works import Matrix, ProductWork

__all__ = ["Factor", "Multiplied", "multiplied"]


@attrs.frozen
class Factor:
    """
    How a stack of matrices is stored.

    Attributes
    ----------
    outer
        Sizes of the stack.
    rows, columns
        Of each matrix as it is meant.
    swapped
        The transpose is stored.
    leading
        Elements from one stored row to the next.
    distance
        Elements from one matrix to the next.
    """

    outer: tuple[int, ...]
    rows: int
    columns: int
    swapped: bool
    leading: int
    distance: int

    @classmethod
    def of(
        cls, sizes: Sequence[int], *, is_left: bool, swapped: bool, outward: bool
    ) -> Factor:
        """
        Read an operand's sizes; a vector is a row on the left and a column on the right.

        Parameters
        ----------
        swapped
            The last two axes change places; those of a vector do not.
        outward
            The first axis is where rows are, with the stack between it and the last.
        """
        if len(sizes) == 1:
            sizes, swapped = ((1, *sizes) if is_left else (*sizes, 1)), False
        *outer, rows, columns = sizes
        leading, distance = columns, rows * columns
        if outward and outer:
            rows, *outer = sizes[:-1]
            leading, distance = math.prod(outer) * columns, columns
        if swapped:
            rows, columns = columns, rows
        return cls(tuple(outer), rows, columns, swapped, leading, distance)

    @property
    def is_dense(self) -> bool:
        """Tell whether the rows of all its matrices follow one another."""
        return not self.swapped and self.distance == self.rows * self.columns

    def matrix(self, address: int, width: int, index: int, step: int) -> Matrix:
        """Show the matrices from ``index`` on, each ``step`` of them from the one before."""
        place = address + index * self.distance * width
        return Matrix(place, self.leading, self.swapped, step * self.distance)


@attrs.frozen
class Multiplied:
    """
    What is multiplied, by sizes alone.

    Attributes
    ----------
    rows, columns, depth
        Of each product.
    a, b
        The factors.
    stacks
        The products.
    """

    rows: int
    columns: int
    depth: int
    a: Factor
    b: Factor
    stacks: Stacks

    @property
    def is_single(self) -> bool:
        """Tell whether there is one product only."""
        return self.stacks.batch * len(self.stacks.starts) == 1

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to write."""
        stacks = self.stacks
        return not (self.rows and self.columns and stacks.batch and stacks.starts)

    def work(
        self, a: int, b: int, target: int, dtype: str, *, alpha: float, tf32: bool
    ) -> Iterator[ProductWork]:
        """Give the products over addresses; none of the sizes may be 0."""
        width = numpy_dtype(dtype).itemsize
        stacks, size = self.stacks, self.rows * self.columns
        for first, second, third in stacks.starts:
            yield ProductWork(
                self.a.matrix(a, width, first, stacks.a_step),
                self.b.matrix(b, width, second, stacks.b_step),
                Matrix(target + third * size * width, self.columns, stride=stacks.step * size),
                self.rows, self.columns, self.depth, dtype, batch=stacks.batch,
                alpha=alpha, tf32=tf32,
            )  # fmt: skip


def multiplied(a: Factor, b: Factor) -> Multiplied:
    """Arrange a product as ONNX defines it for these factors, which fit."""
    if math.prod(b.outer) == 1 and a.is_dense:
        rows = math.prod(a.outer) * a.rows
        a = Factor((), rows, a.columns, False, a.leading, rows * a.columns)
        b = attrs.evolve(b, outer=())
    stacks = Stacks.of(a.outer, b.outer)
    return Multiplied(a.rows, b.columns, a.columns, a, b, stacks)
