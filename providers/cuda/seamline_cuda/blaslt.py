"""
The only place where cuBLASLt is called, through the bindings of ``nvmath-python``.

Every call goes through :func:`call`, which turns each status other than success into a
:class:`BlasError`. Nothing is imported or loaded before the first one: the package, the
library and the driver may each be missing, and :func:`missing` says which.
"""

from __future__ import annotations

import functools
from typing import Any

import attrs
import numpy as np

from seamline_cuda.driver import touched
from seamline_cuda.errors import CudaError

__all__ = [
    "BlasError",
    "Described",
    "call",
    "constant",
    "described",
    "missing",
    "record_of_heuristic",
    "version",
]

_INSTALL = "to fix: pip install 'seamline[cuda]'"


class BlasError(CudaError):
    """A call of cuBLASLt was refused; ``call``, ``code`` and ``explanation`` say how."""


@functools.cache
def _library() -> Any:
    from nvmath.bindings import cublasLt

    return cublasLt


def call(name: str, *given: Any) -> Any:
    """
    Call one function of the bindings, such as ``matmul``.

    Raises
    ------
    BlasError
        Its status is no success, or the library is not there.
    """
    touched(name)
    return _called(name, *given)


def _called(name: str, *given: Any) -> Any:
    library = _library()
    try:
        return getattr(library, name)(*given)
    except library.cuBLASLtError as error:
        raise _error(name, int(error.status)) from error
    except RuntimeError as error:  # the bindings' own, where a library is missing
        raise BlasError(name, "NOT_LOADED", -1, f"{error}; {_INSTALL}") from error


def _error(name: str, status: int) -> BlasError:
    library = _library()
    code, said = library.get_status_name(status), library.get_status_string(status)
    return BlasError(f"cublasLt {name}", code, status, said)


def constant(kind: str, name: str) -> int:
    """Give a member of one of the library's enumerations."""
    from nvmath import CudaDataType
    from nvmath.bindings.cublas import ComputeType  # nvmath's own has other numbers

    others = {"CudaDataType": CudaDataType, "ComputeType": ComputeType}
    return int((others.get(kind) or getattr(_library(), kind))[name])


def record_of_heuristic() -> Any:
    """Give NumPy's type of what the library says of an algorithm; it begins with it."""
    return _library().matmul_heuristic_result_dtype


def version() -> int:
    """
    Give the library's version, such as 130200 for 13.2.0; touches no device.

    Raises
    ------
    BlasError
        It cannot be loaded.
    """
    return int(_called("get_version"))


def missing() -> str:
    """Say why no product can be made here and what to install; empty where one can."""
    try:
        version()
    except ImportError as error:
        return f"the bindings of cuBLASLt cannot be imported ({error}); {_INSTALL}"
    except BlasError as error:
        return f"cuBLASLt cannot be loaded ({error.explanation})"
    return ""


@attrs.define(eq=False)
class Described:
    """
    A descriptor of the library: of a product, a matrix, or what is preferred.

    Attributes
    ----------
    kind
        ``matmul_desc``, ``matrix_layout`` or ``matmul_preference``.
    """

    kind: str
    handle: int

    def set(self, attribute: str, value: float) -> None:
        """
        Set an attribute by its name in the library's enumeration.

        Raises
        ------
        BlasError
            The library does not take the value.
        """
        which = constant(_ATTRIBUTES[self.kind], attribute)
        kind: Any = call(f"get_{self.kind}_attribute_dtype", which)
        given = np.array([value], kind)
        call(
            f"{self.kind}_set_attribute",
            self.handle,
            which,
            given.ctypes.data,
            given.nbytes,
        )

    def close(self) -> None:
        """Give it back; a second call does nothing."""
        handle, self.handle = self.handle, 0
        if handle:
            call(f"{self.kind}_destroy", handle)


_ATTRIBUTES = {
    "matmul_desc": "MatmulDescAttribute",
    "matrix_layout": "MatrixLayoutAttribute",
    "matmul_preference": "MatmulPreferenceAttribute",
}


def described(kind: str, *given: int) -> Described:
    """
    Make a descriptor.

    Parameters
    ----------
    given
        Types of computation and scale of a product; element type, rows, columns and
        leading dimension of a matrix; nothing for what is preferred.
    """
    return Described(kind, int(call(f"{kind}_create", *given)))
