"""A provider of a few operators, in Python, for tests of the front door."""

import numpy as np
from onnx import parser

from seamline.hookspecs import hookimpl
from seamline.kernels import KernelTable, provider_spec
from seamline.provider import Availability, Option
from seamline.session import InferenceSession
from seamline.settings import Settings

table = KernelTable("arithmetic")


@table.simple("Add")
def add(a, b):
    return a + b


@table.simple("Mul")
def mul(a, b):
    return a * b


@table.simple("Identity")
def identity(x):
    return x


@table.simple("Transpose")
def transpose(x, *, perm=None):
    return np.ascontiguousarray(np.transpose(x, perm))


@table.simple("Div", dtypes=("int64",))
def div(a, b):
    if not b.all():
        raise ZeroDivisionError("an integer was divided by zero")
    return a // b


lesser = KernelTable("lesser")


@lesser.simple("Mul")
def lesser_mul(a, b):
    return a * b


class Arithmetic:
    """The plugin."""

    CONTRACT_VERSION = 1

    @hookimpl
    def seamline_providers(self):
        return (
            provider_spec(
                table,
                summary="a few operators",
                aliases=("ArithmeticExecutionProvider",),
                options=(
                    Option("num_threads", int, 0),
                    Option("flavour", str, "plain"),
                ),
            ),
            provider_spec(lesser, summary="Mul, and nothing else"),
            provider_spec(
                KernelTable("absent"),
                probe=lambda: Availability(
                    False, "there is no such machine", "buy one"
                ),
            ),
        )


PLUGINS = (Arithmetic(),)

ALONE = Settings(block=("seamline",))  # whatever is installed beside it


def model(text):
    """Give a model from ONNX's own syntax, without its first lines."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')


def open_session(source, options=None, providers=("arithmetic",), *rest, **chosen):
    """Open a model, or the text of one, on the providers of this module."""
    if isinstance(source, str) and "=>" in source:
        source = model(source)
    chosen.setdefault("plugins", PLUGINS)
    chosen.setdefault("settings", ALONE)
    return InferenceSession(source, options, providers, *rest, **chosen)
