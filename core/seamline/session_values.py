"""Runs of a session from values to values, and between what is bound."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from seamline.binding import IOBinding
from seamline.errors import FeedError
from seamline.ortvalue import OrtValue
from seamline.session_facts import SessionFacts
from seamline.session_options import RunOptions

if TYPE_CHECKING:
    from seamline.session import InferenceSession

__all__ = ["SessionValues"]


class SessionValues(SessionFacts):
    """The part of a session that runs with values instead of arrays."""

    _lock: threading.RLock

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """Run the model; a session's own."""
        raise NotImplementedError

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run the model from values to values; see :meth:`run`."""
        fetches = self._fetches(output_names)
        results = self.run(fetches, input_dict_ort_values, run_options)
        return [
            OrtValue.of(
                value, None if isinstance(value, np.ndarray) else self._outputs[name]
            )
            for name, value in zip(fetches, results, strict=True)
        ]

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """
        Run the model between what is bound.

        Raises
        ------
        FeedError
            The binding is another session's, binds no output, or something in it does
            not fit; then nothing bound was written.
        """
        if iobinding.session is not self:
            raise FeedError("the binding belongs to another session; use its own")
        if not iobinding.output_names:
            raise FeedError("no output is bound; bind_output(name) first")
        with self._lock:
            results = self.run(iobinding.output_names, iobinding.feeds, run_options)
            iobinding.deliver(results)

    def io_binding(self) -> IOBinding:
        """Give an empty binding of inputs and outputs."""
        return IOBinding(cast("InferenceSession", self))
