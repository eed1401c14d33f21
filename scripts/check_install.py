"""Fails unless every package of this tree is imported from this tree, and is offered."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def problems(root: Path) -> list[str]:
    """Give what is wrong with the installation; nothing of the packages is imported."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    found = []
    for folder in settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        name = Path(folder).name
        spec = importlib.util.find_spec(name)
        want = root / folder / "__init__.py"
        if spec is None or spec.origin is None:
            if want.exists():
                found.append(f"{name} is not importable")
        elif Path(spec.origin).resolve() != want.resolve():
            found.append(f"{name} comes from {spec.origin}, not from {want}")
    try:
        offered = {
            e.name
            for e in distribution("seamline").entry_points
            if e.group == "seamline"
        }
    except PackageNotFoundError:
        return [*found, "the distribution seamline is not installed"]
    declared = settings["project"]["entry-points"]["seamline"]
    missing = sorted(set(declared) - offered)
    if missing:
        found.append(f"entry points not installed: {', '.join(missing)}")
    return found


if __name__ == "__main__":
    # This folder is first on the path of a script; packages are looked for without it.
    sys.path.pop(0)
    wrong = problems(ROOT)
    for line in wrong:
        print(f"check_install: {line}", file=sys.stderr)
    sys.exit(bool(wrong))
