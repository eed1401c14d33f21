"""Distributions that look installed: a folder of metadata, and the modules they name."""

from __future__ import annotations

import textwrap
from pathlib import Path

#: Blocks what is really installed, so that a test sees its own plugins alone.
OURS = ("seamline",)

GOOD = """\
from seamline.hookspecs import hookimpl
from seamline.kernels import KernelTable, provider_spec

CONTRACT_VERSION = 1

@hookimpl
def seamline_providers():
    return [provider_spec(KernelTable({name!r}), summary="nothing, but well")]
"""


def acme(values):
    """Keep what comes from a distribution of the tests."""
    return [v for v in values if v.origin.distribution.startswith("acme-")]


def install(
    folder: Path,
    name: str,
    source: str | None = None,
    *,
    plugin: str = "",
    module: str = "",
    target: str = "",
    version: str = "1.0",
    entry_points: str | None = None,
) -> str:
    """
    Install a distribution with one plugin; give the plugin's module.

    The plugin is named as the distribution without ``acme-``; ``source`` is its module,
    none where the module is another distribution's; ``target`` is the object in it.
    """
    plugin = plugin or name.removeprefix("acme-")
    module = module or f"acme_{plugin.replace('-', '_')}"
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    said = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(said)
    if entry_points is None:
        entry_points = f"[seamline]\n{plugin} = {module}{target}\n"
    (info / "entry_points.txt").write_text(entry_points)
    if source is not None:
        text = textwrap.dedent(source).replace("{name!r}", repr(plugin))
        (folder / f"{module}.py").write_text(text)
    return module
