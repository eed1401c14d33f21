"""
The twin: a simulated device on which every device feature is tested first, anywhere.

It has what a real device has and the host does not forgive: memory that the host cannot
touch, copies that take time, streams that run by themselves, recordings over fixed
addresses, pages that come and go under them. It is offered to a session by its plugin::

    Pipeline.open(model, providers=["twin", "cpu"], plugins=[seamline_testing.twin.plugin])
"""

from __future__ import annotations

from seamline_testing.twin.faults import Fault, Faults, How, InjectedError, Step

__all__ = ["Fault", "Faults", "How", "InjectedError", "Step"]
