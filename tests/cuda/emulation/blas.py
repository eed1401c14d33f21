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
import math

import attrs
import ml_dtypes
import numpy as np
from nvmath import CudaDataType
from nvmath.bindings import cublasLt
from nvmath.bindings.cublas import ComputeType, Status
from tests.cuda.emulation.results import RefusedError
from tests.cuda.emulation.timeline import Work

TYPES = {
    int(CudaDataType.CUDA_R_32F): np.float32,
    int(CudaDataType.CUDA_R_16F): np.float16,
    int(CudaDataType.CUDA_R_16BF): ml_dtypes.bfloat16,
    int(CudaDataType.CUDA_R_64F): np.float64,
}
_32F, _16F, _16BF, _64F = TYPES
#: Types of computation and scale, of the factors, and of the result, as documented.
SUPPORTED = {
    (int(ComputeType.COMPUTE_32F), _32F): {(_32F, _32F), (_16F, _16F), (_16BF, _16BF), (_16F, _32F), (_16BF, _32F)},
    (int(ComputeType.COMPUTE_32F_FAST_TF32), _32F): {(_32F, _32F)},
    (int(ComputeType.COMPUTE_64F), _64F): {(_64F, _64F)},
}  # fmt: skip
_TRANSPOSED = 1
_COUNTED = ("create", "destroy", "matmul")
_WORKSPACE = 4096  # bytes that every algorithm asks for here
_BIAS_ALIGNED = 16


class StatusError(Exception):
    """What the bindings raise as cuBLASLtError."""

    def __init__(self, status):
        self.status = int(status)
        super().__init__(Status(status).name)


@attrs.define(eq=False)
class Layout:
    """A matrix, column by column."""

    type: int
    rows: int
    cols: int
    ld: int
    batch: int = 1
    stride: int = 0

    def extent(self):
        """Give the elements from the first to one past the last."""
        return (self.batch - 1) * self.stride + (self.cols - 1) * self.ld + self.rows


class EmulatedLt:
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
        self.fail_at = None  # name of a call that is refused, and the status
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
        found = np.frombuffer(
            (ctypes.c_uint8 * self.matmul_heuristic_result_dtype.itemsize).from_address(results),
            self.matmul_heuristic_result_dtype,
        )  # fmt: skip
        even = [wanted.get(f"MIN_ALIGNMENT_{x}_BYTES", 256) for x in "ABCD"]
        found["algo"]["data_"][0, :6] = [product, a + b + c + d, *even]
        found["workspace_size"] = _WORKSPACE
        ctypes.c_int.from_address(count).value = min(asked, 1)

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
        found = (ctypes.c_uint64 * 6).from_address(algo)
        if tuple(found[:2]) != (product, sum(handles)) or workspace_nbytes < _WORKSPACE:
            raise StatusError(Status.INVALID_VALUE)
        for even, layout, address in zip(found[2:], layouts, (a, b, c, d), strict=True):
            size = np.dtype(TYPES[layout.type]).itemsize
            if (address | (layout.batch > 1) * layout.stride * size) % even:
                raise StatusError(Status.INVALID_VALUE)
        kind = TYPES[described["SCALE_TYPE"]]
        scales = [_read(x, kind, np.dtype(kind).itemsize) for x in (alpha, beta)]
        described = dict(described)

        def act():
            self.state.host(workspace, workspace_nbytes, "the workspace of a product")
            self._multiplied(described, layouts, (a, b, c, d), *scales)

        self.state.of("stream", stream).submit(Work("product", act))

    def _multiplied(self, product, layouts, addresses, alpha, beta):
        wide = np.float64 if product["SCALE_TYPE"] == _64F else np.float32
        a, b, c, _ = (
            self._matrices(x, address, wide)
            for x, address in zip(layouts, addresses, strict=True)
        )
        if product["COMPUTE_TYPE"] == ComputeType.COMPUTE_32F_FAST_TF32:
            a, b = _shortened(a), _shortened(b)
        a = a.swapaxes(1, 2) if product.get("TRANSA") == _TRANSPOSED else a
        b = b.swapaxes(1, 2) if product.get("TRANSB") == _TRANSPOSED else b
        with np.errstate(all="ignore"):
            made = wide(alpha) * (a @ b)
            if beta:
                made = made + wide(beta) * c
            made = self._finished(product, layouts[3], made, wide)
            self._store(layouts[3], addresses[3], made)

    def _finished(self, product, layout, made, wide):
        after = cublasLt.Epilogue(
            product.get("EPILOGUE", cublasLt.Epilogue.DEFAULT)
        ).name
        if "BIAS" in after:
            address, kind = product["BIAS_POINTER"], product["BIAS_DATA_TYPE"]
            assert address % _BIAS_ALIGNED == 0, "kernels load the bias by 16 bytes"
            made = made + self._flat(TYPES[kind], address, layout.rows)[:, None].astype(
                wide
            )
        if "RELU" in after:
            made = np.where(made < 0, wide(0), made)
        if "GELU" in after:
            inner = math.sqrt(2 / math.pi) * (made + 0.044715 * made**3)
            made = 0.5 * made * (1 + np.tanh(inner))
        return made

    def _matrices(self, layout, address, wide):
        return np.array(self._view(layout, address), wide)

    def _store(self, layout, address, made):
        self._view(layout, address)[...] = made.astype(TYPES[layout.type])

    def _view(self, layout, address):
        flat = self._flat(TYPES[layout.type], address, layout.extent())
        size = flat.itemsize
        return np.lib.stride_tricks.as_strided(
            flat,
            (layout.batch, layout.rows, layout.cols),
            (layout.stride * size, size, layout.ld * size),
        )

    def _flat(self, kind, address, count):
        nbytes = count * np.dtype(kind).itemsize
        there = self.state.host(address, nbytes, "a matrix of a product")
        raw = (ctypes.c_uint8 * nbytes).from_address(there)
        return np.frombuffer(raw, np.uint8).view(kind)


def _meant(product, name, layout):
    swapped = product.get(name) == _TRANSPOSED
    return (layout.cols, layout.rows) if swapped else (layout.rows, layout.cols)


def _read(address, kind, nbytes):
    assert nbytes == np.dtype(kind).itemsize
    raw = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.frombuffer(bytes(raw), kind)[0].item()


def _shortened(values):
    """Round to TF32: ten bits of mantissa, halves to even."""
    bits = values.view(np.uint32)
    low = (bits >> 13) & 1
    return ((bits + np.uint32(0xFFF) + low) & np.uint32(0xFFFFE000)).view(np.float32)
