"""
Emulates in every process that imports it: the kit's workers, a script, a shell.

    pytest --pyargs seamline_testing --provider cuda \\
        --provider-plugin tests.cuda.emulation.everywhere
"""

from __future__ import annotations

from tests.cuda.emulation.installing import install

DRIVER = install()
