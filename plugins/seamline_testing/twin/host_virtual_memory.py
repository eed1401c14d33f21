"""The virtual memory that the twin's device memory is: the host's own, made invisible."""

from __future__ import annotations

from seamline.host_virtual_memory import HostVirtualMemory

__all__ = ["HostVirtualMemory"]
