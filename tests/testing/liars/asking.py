"""Asks the kit's questions of the providers beside this module."""

from __future__ import annotations

from seamline_testing import (
    capture_checks,
    claims_checks,
    contract_checks,
    partition_checks,
    transfers_checks,
)
from seamline_testing.subject import Subject

LIARS = "tests.testing.liars"
MODULES = {
    "contract": contract_checks,
    "claims": claims_checks,
    "partition": partition_checks,
    "transfers": transfers_checks,
    "capture": capture_checks,
}


def liar(name):
    return Subject(name, plugins=(f"{LIARS}.{name}",))


def found(subject, check):
    """Ask a provider one question of the kit."""
    (asked,) = [
        one
        for one in MODULES[check.partition("/")[0]].checks(subject, True)
        if one.id == check
    ]
    return asked.run(subject)


def outcomes(subject, *groups, only=""):
    """Ask all questions of some groups; ``only``: those whose id has this in it."""
    return {
        check.id: check.run(subject)
        for group in groups
        for check in MODULES[group].checks(subject, True)
        if only in check.id
    }
