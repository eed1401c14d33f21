"""Errors of the CUDA provider; all of them are run errors of seamline's own hierarchy."""

from __future__ import annotations

from seamline.errors import RunError

__all__ = ["CudaError"]


class CudaError(RunError):
    """
    A call on NVIDIA's driver was refused, or reported work that failed earlier.

    Attributes
    ----------
    call
        The driver's function.
    code, number
        The result's name, such as ``CUDA_ERROR_OUT_OF_MEMORY``, and its value.
    explanation
        NVIDIA's own sentence for the result.
    """

    def __init__(self, call: str, code: str, number: int, explanation: str) -> None:
        self.call = call
        self.code = code
        self.number = number
        self.explanation = explanation
        super().__init__(
            f"{call}: {code} ({number}): {explanation}{_remedy(code)}", provider="cuda"
        )

    @property
    def is_lost(self) -> bool:
        """Tell whether the process can use the device no more, whatever it calls."""
        return self.code in _LOST


#: Results after which every call on the context fails, by the driver's documentation.
_LOST = frozenset(
    {
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
    }
)
_REMEDIES = {
    "CUDA_ERROR_NO_DEVICE": "no device is visible; look at nvidia-smi and at CUDA_VISIBLE_DEVICES",
    "CUDA_ERROR_INVALID_DEVICE": "there is no device of that number; set device_id",
    "CUDA_ERROR_OUT_OF_MEMORY": "the device is full; close other sessions or processes on it",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the driver is older than the compiler; update the driver",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the kernel was compiled for another device; empty the kernel cache",
}


def _remedy(code: str) -> str:
    if code in _LOST:
        return ". The device cannot be used by this process any more: start a new one"
    return f". To fix: {_REMEDIES[code]}" if code in _REMEDIES else ""
