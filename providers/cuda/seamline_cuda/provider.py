"""The CUDA provider: claims without a device, everything else on one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from seamline.errors import RecordingError
from seamline.forms import ChainSpec, FormPrice
from seamline.kernels import KernelProvider, KernelSegment
from seamline.provider import (
    BuildContext,
    Claim,
    Executable,
    Memory,
    NodeView,
    Recording,
    Refusal,
    SegmentSpec,
    VirtualMemoryError,
)
from seamline_cuda import blaslt
from seamline_cuda.chain import record_chain
from seamline_cuda.compiler import counts, folder
from seamline_cuda.device import Gpu
from seamline_cuda.edges import EDGE_LIMIT
from seamline_cuda.errors import CudaError
from seamline_cuda.form_prices import PRICES
from seamline_cuda.loading import Loader
from seamline_cuda.memory import CudaMemory
from seamline_cuda.products import Products
from seamline_cuda.segment import CudaSegment
from seamline_cuda.table import LIBRARY, TABLE

__all__ = ["CudaProvider"]


class CudaProvider(KernelProvider):
    """
    Runs nodes on one NVIDIA GPU by generated kernels, recorded as graphs of the driver.

    Parameters
    ----------
    options
        ``device_id``; ``gpu_mem_limit``, bytes that it may own, 0 for all that there is;
        ``pool_bytes``, bytes of pages kept between two uses; ``deadline``, seconds that the
        host waits for the device at most, 0 for as long as it takes; ``tf32``, whether
        factors of float32 products may be rounded to 10 bits of mantissa;
        ``answer_deadline``, seconds that a recording waits for the host; ``edge_limit``,
        bytes of the largest value whose copy a recording takes in, 0 for none;
        ``measure_products``, whether the library's algorithms are measured.

    Raises
    ------
    CudaError
        There is no driver or no such device.
    """

    captures = True

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        chosen = dict(options or {})
        self.gpu = Gpu.open(int(chosen.get("device_id", 0)))
        self.gpu.deadline = float(chosen.get("deadline", 0)) or None
        super().__init__(TABLE, chosen, device=self.gpu.device)
        try:
            self._memory = CudaMemory.open(
                self.gpu,
                limit=int(chosen.get("gpu_mem_limit", 0)) or None,
                pool_nbytes=int(chosen.get("pool_bytes", 0)),
            )
            self._loader = Loader(self.gpu)
            self._products = Products(
                self._memory, bool(chosen.get("measure_products", False))
            )
            self._unmade = blaslt.missing()
            self._apart: dict[str, str] = {}
            self._patience = float(chosen.get("answer_deadline", 10.0))
            self.edge_limit = int(chosen.get("edge_limit", EDGE_LIMIT))
        except BaseException:
            self.gpu.close()
            raise

    def claim(self, node: NodeView) -> Claim | Refusal:
        """Offer what the table has, but no product where the library for it is missing."""
        answer = super().claim(node)
        if self._unmade and isinstance(answer, Claim) and answer.variant == LIBRARY:
            return Refusal(self._unmade)
        return answer

    def memory(self) -> Memory | None:
        """Give the device's memory, always the same."""
        return self._memory

    def build(self, segment: SegmentSpec, context: BuildContext) -> Executable:
        """Find every node's kernel; binding makes launches of them."""
        self.gpu.usable()
        made = cast(KernelSegment, super().build(segment, context))
        return CudaSegment(
            made.provider, made.spec, made.kernels, made.context, made.options,
            memory=self._memory, loader=self._loader, products=self._products,
            apart=self._apart,
        )  # fmt: skip

    def forms(self) -> Sequence[FormPrice]:
        """Give the forms of excursions, with their prices on such a device."""
        return PRICES

    def record_chain(self, chain: ChainSpec) -> Recording:
        """Record segments as one graph, the host's work between them."""
        self.gpu.usable()
        try:
            return record_chain(self._memory, self._loader, chain, self._patience)
        except (CudaError, VirtualMemoryError) as error:
            self.gpu.usable()
            # One by one its segments need nothing of what could not be had.
            raise RecordingError(
                f"what its excursions need: {error}",
                provider=self.name,
                segment=chain.name,
            ) from error

    def facts(self) -> Mapping[str, object]:
        """
        Say which device it is, what memory it holds, and what was copied so far.

        ``taken_apart`` has the nodes that would be one kernel if they did not lie where
        they do, and why they are not. ``pinned_results`` counts the bytes of results'
        arrays that the driver has pinned; ``not_pinned`` is what it said where it did not.
        """
        held = self._memory.gauges()
        pool = self._memory.arena.pool
        return {
            "device": f"{self.gpu.name} ({self.gpu.device})",
            "granule": self._memory.virtual.granularity,
            "content": held.content,
            "mapped": held.mapped,
            "owned": held.owned,
            "pooled": pool.held,
            "pages_created": pool.counts["created"],
            "pages_reused": pool.counts["reused"],
            "kernels": len(self._loader.loaded),
            "products": self._unmade or "by cuBLASLt",
            "products_workspace": self._products.workspace_nbytes,
            "taken_apart": dict(self._apart),
            "pinned_results": self._memory.transfers.arrays.pinned_nbytes,
            "not_pinned": self._memory.transfers.arrays.refused,
            **self._memory.transfers.counts(),
        }

    def cached(self) -> Mapping[str, object]:
        """Count what this process compiled and what it found compiled, and say where."""
        return {**counts, "cache": str(folder())}

    def close(self) -> None:
        """Give memory, kernels, streams and the context back; once."""
        if not self.gpu.is_open:
            return
        try:
            if not self.gpu.lost:
                self._products.close()
            self._memory.close()
            if not self.gpu.lost:
                self._loader.close()
        finally:
            self.gpu.close()
