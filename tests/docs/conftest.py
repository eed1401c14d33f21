"""A small project to plant claims in: one record, and pages written by the tests."""

from __future__ import annotations

import pytest
from scripts.documentation_claims import problems

RECORD = """# Planning

| nodes | ms |
|---|---|
| 1,000 | 12.50 |

Ratio 3.2, share 40 %, change -7.5 %, rate 120 tokens/s, and 90 s in all.

Milliseconds for each stage.

| stage | of 2 | of 9 |
|---|---|---|
| 50 | 8 | 16 |
"""


@pytest.fixture
def project(tmp_path):
    """Write a page into the project; give what the rule says of all."""
    (tmp_path / "docs" / "performance").mkdir(parents=True)
    (tmp_path / "docs" / "performance" / "planning.md").write_text(RECORD, "utf-8")

    def write(text, page="docs/page.md"):
        path = tmp_path / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return problems(tmp_path)

    return write
