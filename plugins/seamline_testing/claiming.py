"""What a provider claims of the kit's samples, and of the node suite where it claims none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from seamline.claims import ask
from seamline.errors import ContractError
from seamline.provider import Claim, NodeView, Provider, Refusal
from seamline_testing.samples import SAMPLES, Sample
from seamline_testing.verdicts import declined, violation

__all__ = ["claimed_samples", "claims_of"]

AnySample = TypeVar("AnySample", bound=Sample)


def claims_of(
    provider: Provider, views: tuple[NodeView, ...]
) -> tuple[Claim, ...] | str:
    """Give the claims of all nodes, or the first refusal in words."""
    claims: list[Claim] = []
    for view in views:
        said = ask(provider, view)
        if isinstance(said, ContractError):
            violation(str(said))
        if isinstance(said, Refusal):
            return str(said)
        claims.append(said)
    return tuple(claims)


def claimed_samples(provider: Provider, most: int) -> tuple[Sample, ...]:
    """
    Give samples that the provider claims, different operators first.

    Where it claims none of the kit's own, cases of ONNX's node suite stand in.
    """
    chosen, refused = _claimed(provider, SAMPLES)
    if not chosen:
        from seamline_testing.case_samples import case_samples

        stand_ins, _ = _claimed(provider, case_samples())
        chosen = tuple(sample for sample in stand_ins if sample.is_judged)
    if not chosen:
        declined(
            f"it claims none of {len(SAMPLES)} samples, and no case of the node suite "
            f"that could stand in for them; of {refused}"
        )
    firsts = {_operator(sample): sample for sample in reversed(chosen)}
    heads = [sample for sample in chosen if firsts[_operator(sample)] is sample]
    return (*heads, *(sample for sample in chosen if sample not in heads))[:most]


def _operator(sample: Sample) -> str:
    return sample.name.partition("/")[0]


def _claimed(
    provider: Provider, samples: Iterable[AnySample]
) -> tuple[tuple[AnySample, ...], str]:
    """Give the samples that are claimed, and the first refusal."""
    chosen, refused = [], ""
    for sample in samples:
        said = claims_of(provider, sample.views())
        if isinstance(said, str):
            refused = refused or f"{sample.name}: {said}"
        else:
            chosen.append(sample)
    return tuple(chosen), refused
