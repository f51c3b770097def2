"""One simulation."""

from __future__ import annotations

import json
from collections.abc import Mapping

from . import _native
from ._result import Result
from ._scenario import Scenario, Value, name_and_text

#: Most spans that a timeline holds, about 80 MB.
_MAX_SPANS = 2_000_000


def simulate(
    scenario: Scenario,
    values: Mapping[str, Value] | None = None,
    /,
    *,
    timeline: bool = False,
    **overrides: Value,
) -> Result:
    """Runs a scenario: the path of a file, or a dict with the same keys.

    ``values`` and keywords replace values that the scenario has. A key is the way to the value, joined by dots, as in
    ``gleaner-sim sweep``: ``simulate("s.toml", {"vm.a.policy": "halt"}, seed=3)``.

    ``timeline=True`` records what every vCPU did when. Other threads of Python run meanwhile; Ctrl-C takes effect when
    the simulation has ended.

    :raises ScenarioError: the scenario is wrong; ``file`` and ``line`` say where.
    :raises SimulationError: it ends in a deadlock, makes no progress, or reaches its limit of events.
    :raises OSError: the file cannot be read.
    """
    name, text = name_and_text(scenario)
    changed = list({**(values or {}), **overrides}.items())
    report, recorded = _native.simulate(name, text, changed, _MAX_SPANS if timeline else 0)
    return Result(name, json.loads(report), recorded)
