"""Print each claim that stands alone: ``python -m scripts.documentation_claims [ROOT]``."""

from __future__ import annotations

import sys
from pathlib import Path

from .rule import problems


def main() -> int:
    """Print what is wrong; give 1 if anything is."""
    given = sys.argv[1:]
    root = Path(given[0]) if given else Path(__file__).parents[2]
    found = problems(root.resolve())
    print("\n".join(found) or "every claim cites its record")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
