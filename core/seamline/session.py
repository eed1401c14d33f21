"""
The front door, in the shape of ONNX Runtime's ``InferenceSession``.

Where the two differ it is on purpose: an unknown provider raises, a node that nobody
named would run raises (``fallback="error"``), and what has no effect is named in a
warning. Runs of one session are serialised: any thread may call :meth:`run`, one runs at
a time, and two sessions run side by side.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from seamline.async_runs import AsyncRuns, Callback
from seamline.errors import RunError
from seamline.profiling import SessionProfile
from seamline.provider_choice import ProviderEntry
from seamline.session_opening import (
    Opening,
    declared_inputs,
    feed_check,
    output_types,
    take_keywords,
)
from seamline.session_options import RunOptions, SessionOptions
from seamline.session_values import SessionValues
from seamline.unsupported import warn_unused

if TYPE_CHECKING:
    import onnx

    from seamline.limits import LoadLimits
    from seamline.pipeline import Fallback
    from seamline.settings import Settings
    from seamline.states import State

__all__ = ["InferenceSession"]


class InferenceSession(SessionValues):
    """
    A model, opened on providers, ready to run.

    Parameters
    ----------
    path_or_bytes
        A path, the bytes of a model, or an ``onnx.ModelProto``.
    providers
        In decreasing order of precedence: names or (name, options). ``("cpu",)`` where
        neither this nor ``sess_options`` names any. ONNX Runtime's names are aliases.
    provider_options
        Options for each of ``providers``, instead of pairs.
    pins
        Node name, pattern of names or operator -> provider.
    fallback
        What to do with a node that no named provider claims: "error" (the default), or
        let ``cpu`` run it with a warning ("warn") or without ("allow").
    seams, max_seams, seam_form
        What to do when execution leaves a recorded segment, how often it may, and how it
        does: by the cheapest form ("auto"), or by one wherever that is possible.
    limits, programs
        Caps for loading files that nobody vouches for; how many programs are kept, one
        for each signature of input shapes.
    states
        Inputs that are kept between runs, each written anew by an output: a decoder's
        caches. They are neither fed nor given; see ``session.states``. Those of
        ``sess_options`` come on top.
    settings, plugins
        Which plugins may load (from the environment and the configuration file if None);
        plugins, modules or instances, beside the installed ones.

    Raises
    ------
    ModelError
        The file is not a model that can be read.
    ProviderError
        A provider is unknown, unavailable, or was given wrong options.
    PlanError
        A node that nobody claims, a pin that cannot be kept, too many seams.

    Examples
    --------
    ::

        with seamline.InferenceSession("model.onnx", providers=["cpu"]) as session:
            (y,) = session.run(None, {"x": x})
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str] | onnx.ModelProto,
        sess_options: SessionOptions | None = None,
        providers: Sequence[ProviderEntry] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        pins: Mapping[str, str] | None = None,
        fallback: Fallback | None = None,
        seams: Literal["allow", "warn", "error"] = "allow",
        max_seams: int | None = None,
        seam_form: Literal["auto", "eager", "mailbox", "host_node"] = "auto",
        limits: LoadLimits | None = None,
        programs: int = 8,
        states: Sequence[State] = (),
        settings: Settings | None = None,
        plugins: Sequence[Any] = (),
        **kwargs: Any,
    ) -> None:
        self._options = options = sess_options or SessionOptions()
        take_keywords(kwargs)
        warn_unused("SessionOptions", options.unused())
        prefix = options.profile_file_prefix if options.enable_profiling else None
        self._profile = SessionProfile(prefix)
        self._lock = threading.RLock()
        self._async = AsyncRuns()
        self._opening = Opening(
            path_or_bytes, options, dict(pins or {}), fallback, seams, max_seams,
            seam_form, limits, programs, (*options.states, *states), settings,
            tuple(plugins), self._profile,
        )  # fmt: skip
        self._closed = False
        self._use(providers, provider_options)
        self._profile.keep_for(self)

    def _use(
        self,
        providers: Sequence[ProviderEntry] | None,
        provider_options: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        self._pipeline = pipeline = self._opening.open(providers, provider_options)
        self._inputs, self._overridable = declared_inputs(pipeline.graph, self._opening)
        self._outputs = output_types(pipeline.graph, pipeline.types)
        kept = pipeline.states.outputs
        self._output_names = tuple(n for n in pipeline.graph.outputs if n not in kept)
        self._check = feed_check(self._inputs, self._overridable, pipeline)

    def set_providers(
        self,
        providers: Sequence[ProviderEntry] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """
        Open the model anew on other providers; a failure leaves the session as it was.

        States begin empty again.
        """
        with self._lock:
            self._ensure_open()
            before = self._pipeline
            self._use(providers, provider_options)
            before.close()

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """
        Run the model.

        Parameters
        ----------
        output_names
            Which outputs to give, in which order; None or empty for all but states.
        input_feed
            Input name -> array, or whatever :mod:`seamline.feeds` takes. Never written to.

        Returns
        -------
        list
            Arrays of the caller's own; lists for sequences, None for absent optionals.

        Raises
        ------
        FeedError
            An input is missing, unknown or does not fit; an output is unknown.
        RunError
            A kernel failed; names the node. The session stays usable.
        """
        fetches = self._fetches(output_names)
        return self._execute(self._check(input_feed), fetches, run_options)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """
        Run the model in a thread of its own.

        Feeds are checked before it returns, and raise here; do not change them until
        the callback is called.

        Parameters
        ----------
        callback
            Called in that thread as ``callback(outputs, user_data, error)``: ``error`` is
            empty, or says why there are no outputs.
        """
        fetches, feeds = self._fetches(output_names), self._check(input_feed)
        self._async.start(
            lambda: self._execute(feeds, fetches, run_options), callback, user_data
        )

    def _execute(
        self,
        feeds: Mapping[str, Any],
        fetches: Sequence[str],
        options: RunOptions | None,
    ) -> list[Any]:
        if options is not None:
            warn_unused("RunOptions", options.unused())
            if options.terminate:
                raise RunError("the run was terminated: RunOptions.terminate is set")
        with self._lock:
            self._ensure_open()
            profile = self._profile.current
            if profile is None:
                return self._pipeline.run(feeds, fetches)
            with self._profile.span("model_run"):
                return self._pipeline.run(feeds, fetches, profile=profile)

    def end_profiling(self) -> str:
        """
        Write the profile and stop profiling.

        Returns
        -------
        str
            The file's path.

        Raises
        ------
        RunError
            Profiling is not on, or was ended before.
        """
        with self._lock:
            return self._profile.end()

    def close(self) -> None:
        """Wait for runs under way, write an unfinished profile, give everything back."""
        self._async.join()
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                if self._profile.current is not None:
                    self._profile.end()
            finally:
                self._pipeline.close()

    def _ensure_open(self) -> None:
        if self._closed:
            raise RunError("the session is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
