"""Options: every value of the right kind, whatever form it came in."""

from pathlib import Path

import numpy as np
import pytest

from seamline.errors import ProviderOptionError
from seamline.options import validate_options
from seamline.provider import Option

SCHEMA = (
    Option("threads", int, 0, "0 for one each core", minimum=0),
    Option("scale", float, 1.0, minimum=0.5),
    Option("record", bool, True),
    Option("folder", str, None),
    Option("level", str, "all", choices=("none", "all")),
    Option("block", int, 32, choices=(16, 32)),
)


def check(**given):
    return validate_options("mine", SCHEMA, given)


def refused(**given):
    with pytest.raises(ProviderOptionError) as caught:
        check(**given)
    assert caught.value.provider == "mine"
    return str(caught.value)


def test_nothing_given_is_every_default_in_the_schemas_order():
    wanted = [("threads", 0), ("scale", 1.0), ("record", True), ("folder", None)]
    wanted += [("level", "all"), ("block", 32)]
    assert list(validate_options("mine", SCHEMA, None).items()) == wanted
    assert list(check().items()) == wanted


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("threads", "4", 4),
        ("threads", 4, 4),
        ("threads", np.int64(4), 4),
        ("scale", "0.5", 0.5),
        ("scale", 2, 2.0),
        ("scale", np.float32(2), 2.0),
        ("scale", "inf", float("inf")),
        ("record", "true", True),
        ("record", "True", True),
        ("record", "1", True),
        ("record", "on", True),
        ("record", 1, True),
        ("record", np.True_, True),
        ("record", "false", False),
        ("record", "0", False),
        ("record", "off", False),
        ("record", False, False),
        ("folder", "here", "here"),
        ("folder", Path("here"), "here"),
        ("folder", None, None),
        ("level", "none", "none"),
        ("block", "16", 16),
    ],
    ids=repr,
)
def test_a_value_comes_out_of_its_kind(name, given, value):
    got = check(**{name: given})[name]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("threads", "four", "an integer"),
        ("threads", "4.0", "an integer"),
        ("threads", 4.0, "an integer"),
        ("threads", True, "an integer"),
        ("threads", None, "an integer"),
        ("threads", -1, "0 or more"),
        ("threads", "-1", "0 or more"),
        ("scale", "fast", "a number"),
        ("scale", False, "a number"),
        ("scale", 0.25, "0.5 or more"),
        ("scale", float("nan"), "0.5 or more"),
        ("record", "yes please", "true or false"),
        ("record", 2, "true or false"),
        ("record", "", "true or false"),
        ("record", None, "true or false"),
        ("record", [], "true or false"),
        ("folder", 3, "text"),
        ("folder", b"here", "text"),
        ("level", "some", "one of 'none', 'all'"),
        ("block", 17, "one of 16, 32"),
    ],
    ids=repr,
)
def test_a_value_that_does_not_fit_is_refused_by_what_would(name, given, says):
    message = refused(**{name: given})
    assert says in message
    assert repr(name) in message
    assert repr(given) in message


def test_an_unknown_option_names_what_is_near_and_what_there_is():
    message = refused(thread=1)
    assert "has no option 'thread'; did you mean 'threads'" in message
    assert "threads, scale, record, folder, level, block" in message


def test_a_provider_without_options_says_so():
    with pytest.raises(ProviderOptionError, match="there are: none"):
        validate_options("mine", (), {"threads": 1})
