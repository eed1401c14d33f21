"""
cuBLASLt by definition: what stands for ``nvmath.bindings.cublasLt`` where there is none.

It takes the calls of :mod:`seamline_cuda.blaslt` as they are: descriptors are numbers,
attributes are read from memory, matrices lie column by column. What the library refuses is
refused here with its status; so is what it would take and get wrong: an algorithm of
another problem, an address that is not as even as was promised, memory that is not mapped.
Products are submitted to the stream that they name, and computed when it gets there.
"""

from __future__ import annotations

import ctypes
import time

import numpy as np
from nvmath.bindings import cublasLt
from nvmath.bindings.cublas import ComputeType, Status
from tests.cuda.emulation.blas_products import (
    R_16BF,
    R_16F,
    R_32F,
    R_64F,
    TRANSPOSED,
    TYPES,
    Layout,
    Multiplying,
)
from tests.cuda.emulation.results import RefusedError
from tests.cuda.emulation.timeline import Work

#: Types of computation and scale, of the factors, and of the result, as documented.
SUPPORTED = {
    (int(ComputeType.COMPUTE_32F), R_32F): {
        (R_32F, R_32F), (R_16F, R_16F), (R_16BF, R_16BF), (R_16F, R_32F), (R_16BF, R_32F),
    },
    (int(ComputeType.COMPUTE_32F_FAST_TF32), R_32F): {(R_32F, R_32F)},
    (int(ComputeType.COMPUTE_64F), R_64F): {(R_64F, R_64F)},
}  # fmt: skip
_COUNTED = ("create", "destroy", "matmul")
_WORKSPACE = 4096  # bytes that every algorithm asks for here


class StatusError(Exception):
    """What the bindings raise as cuBLASLtError."""

    def __init__(self, status):
        self.status = int(status)
        super().__init__(Status(status).name)


class EmulatedLt(Multiplying):
    """
    The library on an emulated machine.

    Parameters
    ----------
    state
        The machine's, see :class:`~tests.cuda.emulation.state.State`.
    """

    cuBLASLtError = StatusError  # noqa: N815 - the bindings' name
    matmul_heuristic_result_dtype = cublasLt.matmul_heuristic_result_dtype
    Epilogue = cublasLt.Epilogue
    MatmulDescAttribute = cublasLt.MatmulDescAttribute
    MatrixLayoutAttribute = cublasLt.MatrixLayoutAttribute
    MatmulPreferenceAttribute = cublasLt.MatmulPreferenceAttribute
    get_matmul_desc_attribute_dtype = staticmethod(
        cublasLt.get_matmul_desc_attribute_dtype
    )
    get_matrix_layout_attribute_dtype = staticmethod(
        cublasLt.get_matrix_layout_attribute_dtype
    )
    get_matmul_preference_attribute_dtype = staticmethod(
        cublasLt.get_matmul_preference_attribute_dtype
    )

    def __init__(self, state):
        self.state = state
        self.open = {}  # descriptors and handles that were not given back
        self.calls = []
        self.taken = []  # the algorithm of each product
        self.fail_at = None  # name of a call that is refused, and the status
        self.costs = (0.0,)  # seconds of each algorithm; one that takes None is refused
        self.between = lambda: None  # called between the halves of a product
        self._halves = {}
        self._next = 0x1000

    def __getattribute__(self, name):
        found = object.__getattribute__(self, name)
        counted = name.startswith(("matmul_", "matrix_")) or name in _COUNTED
        if counted and callable(found):
            object.__getattribute__(self, "_note")(name)
        return found

    def _note(self, name):
        self.calls.append(name)
        if self.fail_at and self.fail_at[0] == name:
            status, self.fail_at = self.fail_at[1], None
            raise StatusError(status)
        if name in _COUNTED:
            try:
                self.state.enter(f"cublasLt {name}", unsafe=name != "matmul")
            except RefusedError as error:
                raise StatusError(Status.EXECUTION_FAILED) from error

    def left(self):
        """Count what was opened and not closed."""
        return (
            {"descriptors and handles of cuBLASLt": len(self.open)} if self.open else {}
        )

    # -- handles and descriptors ---------------------------------------------------------

    def get_version(self):
        return 130000

    def get_status_name(self, status):
        return f"CUBLAS_STATUS_{Status(status).name}"

    def get_status_string(self, status):
        return f"the emulated library answers {Status(status).name}"

    def _made(self, thing):
        self._next += 16
        self.open[self._next] = thing
        return self._next

    def _given_back(self, handle):
        if self.open.pop(handle, None) is None:
            raise StatusError(Status.INVALID_VALUE)

    def create(self):
        return self._made("handle")

    destroy = matmul_desc_destroy = _given_back
    matrix_layout_destroy = matmul_preference_destroy = _given_back

    def matmul_desc_create(self, compute, scale):
        return self._made({"COMPUTE_TYPE": compute, "SCALE_TYPE": scale})

    def matrix_layout_create(self, kind, rows, cols, ld):
        return self._made(Layout(kind, rows, cols, ld))

    def matmul_preference_create(self):
        return self._made({})

    def matmul_desc_set_attribute(self, handle, which, address, nbytes):
        name = cublasLt.MatmulDescAttribute(which).name
        kind = cublasLt.get_matmul_desc_attribute_dtype(which)
        self.open[handle][name] = _read(address, kind, nbytes)

    def matmul_preference_set_attribute(self, handle, which, address, nbytes):
        name = cublasLt.MatmulPreferenceAttribute(which).name
        kind = cublasLt.get_matmul_preference_attribute_dtype(which)
        self.open[handle][name] = _read(address, kind, nbytes)

    def matrix_layout_set_attribute(self, handle, which, address, nbytes):
        names = {"BATCH_COUNT": "batch", "STRIDED_BATCH_OFFSET": "stride"}
        name = names[cublasLt.MatrixLayoutAttribute(which).name]
        kind = cublasLt.get_matrix_layout_attribute_dtype(which)
        setattr(self.open[handle], name, _read(address, kind, nbytes))

    # -- products ------------------------------------------------------------------------

    def matmul_algo_get_heuristic(
        self, handle, product, a, b, c, d, preference, asked, results, count
    ):
        assert self.open[handle] == "handle"
        wanted = self.open[preference]
        self._check(self.open[product], [self.open[x] for x in (a, b, c, d)])
        if wanted.get("MAX_WORKSPACE_BYTES", 0) < _WORKSPACE:
            raise StatusError(Status.NOT_SUPPORTED)
        many, kind = min(asked, len(self.costs)), self.matmul_heuristic_result_dtype
        raw = (ctypes.c_uint8 * (many * kind.itemsize)).from_address(results)
        found = np.frombuffer(raw, kind)
        even = [wanted.get(f"MIN_ALIGNMENT_{x}_BYTES", 256) for x in "ABCD"]
        found["algo"]["data_"][:, :6] = [product, a + b + c + d, *even]
        found["algo"]["data_"][:, 6] = range(many)
        found["workspace_size"] = _WORKSPACE
        ctypes.c_int.from_address(count).value = many

    def _check(self, product, layouts):
        a, b, c, d = layouts
        computed = (product["COMPUTE_TYPE"], product["SCALE_TYPE"])
        if (a.type, c.type) not in SUPPORTED.get(computed, ()) or a.type != b.type:
            raise StatusError(Status.NOT_SUPPORTED)
        (m, k), (other, n) = _meant(product, "TRANSA", a), _meant(product, "TRANSB", b)
        fits = (c.rows, c.cols) == (d.rows, d.cols) == (m, n) and k == other
        if not fits or c.type != d.type or len({x.batch for x in layouts}) > 1:
            raise StatusError(Status.INVALID_VALUE)
        if any(x.ld < x.rows or min(x.rows, x.cols, x.batch) < 1 for x in layouts):
            raise StatusError(Status.INVALID_VALUE)
        if d.batch > 1 and d.stride < d.ld * (d.cols - 1) + d.rows:
            raise StatusError(Status.INVALID_VALUE)  # its matrices would overlap

    def matmul(
        self, handle, product, alpha, a, adesc, b, bdesc, beta, c, cdesc, d, ddesc,
        algo, workspace, workspace_nbytes, stream,
    ):  # fmt: skip
        assert self.open[handle] == "handle"
        described = self.open[product]
        handles = (adesc, bdesc, cdesc, ddesc)
        layouts = [self.open[x] for x in handles]
        self._check(described, layouts)
        found = (ctypes.c_uint64 * 7).from_address(algo)
        cost = self.costs[found[6]]
        if cost is None:
            raise StatusError(Status.NOT_SUPPORTED)
        self.taken.append(found[6])
        if tuple(found[:2]) != (product, sum(handles)) or workspace_nbytes < _WORKSPACE:
            raise StatusError(Status.INVALID_VALUE)
        for even, layout, address in zip(
            found[2:6], layouts, (a, b, c, d), strict=True
        ):
            size = np.dtype(TYPES[layout.type]).itemsize
            if (address | (layout.batch > 1) * layout.stride * size) % even:
                raise StatusError(Status.INVALID_VALUE)
        kind = TYPES[described["SCALE_TYPE"]]
        scales = [_read(x, kind, np.dtype(kind).itemsize) for x in (alpha, beta)]
        described = dict(described)

        # As where the library splits a sum: one kernel writes parts, another joins them,
        # and what other threads submit to the stream may come between.
        def first():
            self.state.host(workspace, workspace_nbytes, "the workspace of a product")
            time.sleep(cost)
            self._halves[workspace] = (described, layouts, a, b, *scales)

        def then():
            described, layouts, a, b, *scales = self._halves[workspace]
            self.multiply(described, layouts, (a, b, c, d), *scales)

        submit = self.state.of("stream", stream).submit
        submit(Work("product", first))
        self.between()
        submit(Work("product", then))


def _meant(product, name, layout):
    swapped = product.get(name) == TRANSPOSED
    return (layout.cols, layout.rows) if swapped else (layout.rows, layout.cols)


def _read(address, kind, nbytes):
    assert nbytes == np.dtype(kind).itemsize
    raw = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.frombuffer(bytes(raw), kind)[0].item()
