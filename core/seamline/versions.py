"""What versions of ONNX a model may need."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import helper

from seamline.errors import ModelError

__all__ = ["OLDEST_OPSET", "check_versions", "since_version"]

OLDEST_OPSET = 7  #: of ONNX's own; an older operator must mean the same in it

_RELEASE = helper.VERSION_TABLE[-1]
# ONNX's own domains by the newest version that the installed onnx knows.
_NEWEST = {"": onnx.defs.onnx_opset_version(), "ai.onnx.ml": int(_RELEASE[3])}


def check_versions(
    file: str, ir_version: int, opsets: Iterable[tuple[str, int]]
) -> dict[str, int]:
    """
    Check a model's versions, and give its opset imports by domain.

    Raises
    ------
    ModelError
        A version is missing, too old, or newer than the installed onnx knows; names
        both numbers. Domains that are not ONNX's own are not looked at.
    """
    if ir_version < 1:
        raise ModelError(
            file,
            "",
            "it states no IR version, so it is not an ONNX model, or is cut off",
        )
    if ir_version > onnx.IR_VERSION:
        raise ModelError(
            file,
            "",
            f"its IR version is {ir_version}; the installed onnx {onnx.__version__} "
            f"knows up to {onnx.IR_VERSION}. To fix: upgrade onnx, or export for an "
            "older version",
        )
    imports: dict[str, int] = {}
    for written, version in opsets:
        domain = "" if written == "ai.onnx" else written
        if imports.setdefault(domain, version) != version:
            raise ModelError(
                file,
                "",
                f"it imports the domain {domain or 'ai.onnx'!r} twice, as opset "
                f"{imports[domain]} and {version}",
            )
        _check_opset(file, domain, version)
    return imports


def _check_opset(file: str, domain: str, version: int) -> None:
    newest = _NEWEST.get(domain)
    name = domain or "ai.onnx"
    if newest is None:
        if version >= 1 << 31:  # onnx looks operators up by 32-bit versions
            raise ModelError(
                file, "", f"it imports opset {version} of {name}; there is none"
            )
        return
    if version > newest:
        raise ModelError(
            file,
            "",
            f"it needs opset {version} of {name}; the installed onnx "
            f"{onnx.__version__} knows up to {newest}. To fix: upgrade onnx, or export "
            "for an older opset",
        )
    if version < 1:
        raise ModelError(
            file, "", f"it imports opset {version} of {name}; there is none"
        )


def since_version(op_type: str, domain: str, opset: int) -> int:
    """Give the version that last changed an operator, or ``opset`` if it is not ONNX's."""
    try:
        return int(onnx.defs.get_schema(op_type, opset, domain).since_version)
    except onnx.defs.SchemaError:
        return opset
