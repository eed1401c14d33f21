"""
Whether the provider can be used here: cheap, and without touching a device.

The driver is asked for its version only. Counting devices would initialise it, after which
the process may not be forked any more; that there is none is told when one is opened.
"""

from __future__ import annotations

import importlib.util
import os

from seamline.provider import Availability

__all__ = ["probe"]

_OLDEST = (
    13,
    0,
)  #: CUDA of the compiler's packages: older drivers cannot load its code
_INSTALL = "pip install 'seamline[cuda]'"
_DRIVER = (
    "install NVIDIA's driver 580 or newer, or take 'cuda' out of the list of providers"
)


def probe() -> Availability:
    """Say that it is usable, or why not and what to do."""
    for module in ("numba_cuda", "cuda.bindings"):
        if not _is_there(module):
            why = f"the package of {module!r} is not installed"
            return Availability(False, why, _INSTALL)
    from seamline_cuda.driver import version
    from seamline_cuda.errors import CudaError

    try:
        found = version()
    except CudaError as error:
        why = f"there is no NVIDIA driver ({error.explanation.strip()})"
        return Availability(False, why, _DRIVER)
    if found < _OLDEST:
        said = f"the driver knows CUDA {found[0]}.{found[1]}, older than {_OLDEST[0]}.0"
        return Availability(False, said, _DRIVER)
    if os.path.isdir(_LISTED) and not os.listdir(_LISTED):
        why = "the driver is loaded and lists no device"
        return Availability(
            False, why, "look at nvidia-smi; a container needs --gpus all"
        )
    return Availability(True)


_LISTED = "/proc/driver/nvidia/gpus"


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
