"""What can go wrong."""

from __future__ import annotations


class ScenarioError(ValueError):
    """A scenario is wrong."""

    #: The file, or the title of a dict, as far as it is known.
    file: str | None = None
    #: The line in the file, from 1, as far as it is known.
    line: int | None = None


class SimulationError(RuntimeError):
    """A simulation did not get to its end: a deadlock, a loop that takes no time, the limit of events."""
