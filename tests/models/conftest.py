"""The fixture that finds real models, or skips with the reason that they are missing."""

from __future__ import annotations

import pytest
from tests.models.fetched import NotThereError


@pytest.fixture
def there():
    """Give the path of a real model; skip where it cannot be had, saying why."""

    def path_of(model):
        try:
            return model.path()
        except NotThereError as error:
            pytest.skip(f"{model.name}: {error}")

    return path_of
