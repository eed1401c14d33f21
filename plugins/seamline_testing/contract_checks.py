"""
The contract around a run: the plugin, its spec, the life of a provider, its errors.

What happens in runs themselves is held to the contract in
:mod:`seamline_testing.running_checks` and :mod:`seamline_testing.thread_checks`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from seamline.errors import BuildError, KernelError, ProviderError, ProviderOptionError
from seamline.provider import CONTRACT_VERSION, Availability, Claim, Provider
from seamline_testing import running_checks, thread_checks
from seamline_testing.claiming import claimed_samples, claims_of
from seamline_testing.driving import Driven, driven
from seamline_testing.results import Check, Finding, Outcome
from seamline_testing.samples import SAMPLES, Sample
from seamline_testing.subject import Subject
from seamline_testing.verdicts import (
    Settled,
    declined,
    found,
    not_run,
    offered,
    opened,
    question,
    violation,
)

__all__ = ["checks"]

_PROBE_SECONDS = 1.0  #: `seamline providers` probes them all while somebody waits
_NOBODY = "nobody-has-an-option-of-this-name"


def checks(subject: Subject, quick: bool) -> tuple[Check, ...]:
    """Give the questions about the contract; ``quick`` asks them of fewer samples."""
    return (
        _earned("contract/plugin", _plugin),
        _earned("contract/options", _options),
        _earned("contract/probe", _probe),
        _earned("contract/members", _members),
        question("contract/lifecycle", _lifecycle),
        question("contract/memory-given-back", _memory_given_back),
        question("contract/arrays-let-go", _arrays_let_go),
        question("contract/bad-data", _bad_data),
        *running_checks.checks(quick),
        *thread_checks.checks(quick),
    )


def _earned(name: str, ask: Callable[[Subject], None]) -> Check:
    """Make a check whose pass counts only for a provider that offers to run something."""

    def run(subject: Subject) -> Finding:
        finding = found(ask)(subject)
        if finding.outcome is not Outcome.PASS or _takes_part(subject):
            return finding
        said = "right, but it claims nothing that the kit could run"
        return Finding(Outcome.PASS_NOT_CLAIMED, said)

    return Check(name, "contract", run)


def _takes_part(subject: Subject) -> bool:
    offer = offered(subject)
    if not offer.probe().usable:
        return True  # nothing can be claimed here; what was asked needs no device
    with opened(subject) as provider:
        claimed = any(
            isinstance(provider.claim(view), Claim)
            for sample in SAMPLES
            for view in sample.views()
        )
        with contextlib.suppress(Settled):
            claimed = claimed or bool(claimed_samples(provider, 1))
        return claimed


# --- what the plugin says -------------------------------------------------------------


def _plugin(subject: Subject) -> None:
    spec = offered(subject).spec
    if spec.contract_version != CONTRACT_VERSION:
        violation(f"its spec is for contract {spec.contract_version}")
    if not isinstance(spec.summary, str):
        violation(f"its spec's summary is {spec.summary!r}; it must be text")
    again = offered(subject).spec
    told = (spec.name, spec.aliases, spec.options, spec.contract_version)
    if told != (again.name, again.aliases, again.options, again.contract_version):
        violation("seamline_providers gives another spec when it is asked again")


def _options(subject: Subject) -> None:
    offer = offered(subject)
    if not offer.probe().usable:
        not_run(f"it is unavailable: {offer.probe().why}")
    try:
        offer.open({**subject.options, _NOBODY: 1}).close()
    except ProviderOptionError:
        pass
    else:
        violation("it opens with an option that its spec does not name")
    for option in offer.spec.options:
        for value in (*option.choices, option.default):
            chosen = {**subject.options, option.name: value}
            try:
                offer.open(chosen).close()
            except ProviderError as error:
                violation(f"it does not open with {option.name}={value!r}: {error}")


def _probe(subject: Subject) -> None:
    spec = offered(subject).spec
    before, start = _process(), time.perf_counter()
    try:
        said, again = spec.probe(), spec.probe()
    except Exception as error:
        violation(f"probe() raised {type(error).__name__}: {error}")
    seconds = (time.perf_counter() - start) / 2
    if not isinstance(said, Availability):
        violation(f"probe() gave {said!r}, which is no Availability")
    if said != again:
        violation(f"probe() gave {said} and then {again}")
    if seconds > _PROBE_SECONDS:
        violation(f"probe() took {seconds:.1f} s; it is to be cheap")
    if not said.usable and not said.why:
        violation("probe() says that it is unusable, without a reason")
    for what, now in _process().items():
        if now != before[what]:
            violation(f"probe() changed {what}: {before[what]}, then {now}")


def _process() -> Mapping[str, object]:
    """Look at what a probe must not touch, as far as the system shows it."""
    seen: dict[str, object] = {
        "the threads": threading.active_count(),
        "the working folder": str(Path.cwd()),
        "the environment": dict(os.environ),
    }
    for what, path in (("open files", "/proc/self/fd"), ("threads", "/proc/self/task")):
        if Path(path).is_dir():
            seen[f"the number of {what}"] = len(list(Path(path).iterdir()))
    return seen


def _members(subject: Subject) -> None:
    with opened(subject) as one, opened(subject) as other:
        if one is other:
            violation("create() gives one object to two sessions")
        for name in ("captures", "owns_intermediates"):
            if not isinstance(getattr(one, name), bool):
                violation(f"its {name} is {getattr(one, name)!r}, not True or False")
        memory = one.memory()
        if memory is not None and memory.device != one.device:
            violation(f"it is on {one.device}, and its memory on {memory.device}")
        if memory is None and one.device.kind != "cpu":
            violation(f"it is on {one.device} and has no memory there")


# --- life -----------------------------------------------------------------------------


def _one(provider: Provider) -> Driven:
    return driven(provider, claimed_samples(provider, 1)[0])


def _quiet(step: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception as error:
        violation(f"{step} raised {type(error).__name__}: {error}")


def _lifecycle(subject: Subject) -> None:
    with opened(subject) as provider:
        unbound = driven(provider, claimed_samples(provider, 1)[0], bound=False)
        _quiet("close() of a segment that was never bound", unbound.close)
        made = _one(provider)
        made.run(made.sample.feeds(0))
        _quiet("close() of a segment", made.close)
        _quiet("a second close() of a segment", made.executable.close)
        with _one(provider) as again:  # a closed segment took nothing along
            again.run(again.sample.feeds(1))
        _quiet("close() of the provider", provider.close)
        _quiet("a second close() of the provider", provider.close)
    with opened(subject) as provider, _one(provider) as made:
        made.run(made.sample.feeds(0))  # nor did a closed provider


def _memory_given_back(subject: Subject) -> None:
    with opened(subject) as provider:
        memory = provider.memory()
        if memory is None:
            not_run("its values live in the host's memory, which others count")
        before = memory.gauges()
        for sample in claimed_samples(provider, 3):
            with driven(provider, sample) as made:
                made.run(sample.feeds(0))
                if memory.gauges().content <= before.content:
                    violation("its gauges do not count what is allocated")
        after = memory.gauges()
        if after.content != before.content:
            violation(
                f"closed segments and buffers leave {after.content - before.content} "
                f"bytes of content"
            )
        provider.close()
        left = memory.gauges()
        if left.content or left.mapped or left.owned:
            violation(f"after the provider's close() its gauges are {left}")


def _arrays_let_go(subject: Subject) -> None:
    """On the host no gauge counts what a closed segment holds on to; the arrays tell."""
    with opened(subject) as provider:
        if provider.memory() is not None:
            not_run("its memory is its own, whose gauges tell what is held")
        made = _one(provider)
        made.run(made.sample.feeds(0))
        bound = {name: weakref.ref(held.view) for name, held in made.held.items()}
        made.close()
        gc.collect()
        kept = [name for name, view in bound.items() if view() is not None]
        if kept:
            violation(
                f"a closed segment still holds what was bound to {', '.join(kept)}"
            )


# --- errors ---------------------------------------------------------------------------


def _bad_data(subject: Subject) -> None:
    """Ask for a row that is not there: an error that names the node, or no harm at all."""
    node = helper.make_node("Gather", ["x", "at"], ["y"], name="the_Gather", axis=0)
    beyond = {"at": np.array([0, 99])}
    sample = Sample(
        "Gather beyond its input", "float32", (node,), {"x": (17, 33)}, beyond, np.array
    )
    with opened(subject) as provider:
        claims = claims_of(provider, sample.views())
        if isinstance(claims, str):
            declined(f"it claims no Gather: {claims}")
        made = driven(provider, sample, bound=False)
        try:
            _run_badly(made)
        finally:
            made.close()


def _run_badly(made: Driven) -> None:
    feeds = made.sample.feeds(0)
    try:
        made.places()
        made.feed(feeds)
        made.executable.bind(*made.bound())
        with np.errstate(all="ignore"):
            made.executable.run()
    except (BuildError, KernelError) as error:
        if not error.node:
            violation(f"{type(error).__name__} names no node: {error}")
    except Exception as error:
        violation(
            f"an index out of range raised an undeclared {type(error).__name__}: {error} "
            "(the contract: BuildError or KernelError)"
        )
    made.look(feeds)
