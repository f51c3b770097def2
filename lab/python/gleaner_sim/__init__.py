"""Simulated KVM hosts, guests and programs.

>>> import gleaner_sim
>>> result = gleaner_sim.simulate("dedup-16.toml", seed=2)
>>> result.programs.to_pandas()

A scenario is a file as docs/sim.md describes it, or the same as a dict. The simulator is deterministic: the same
scenario and seed give the same numbers everywhere.
"""

from ._errors import ScenarioError, SimulationError
from ._native import CATEGORIES, cost_tables, programs
from ._result import Result
from ._scenario import Scenario
from ._simulate import simulate
from ._sweep import SweepResult, sweep
from ._table import Table
from ._tune import Gain, Tuned, Verdict, field, tune

__all__ = [
    "CATEGORIES",
    "Gain",
    "Result",
    "Scenario",
    "ScenarioError",
    "SimulationError",
    "SweepResult",
    "Table",
    "Tuned",
    "Verdict",
    "cost_tables",
    "field",
    "programs",
    "simulate",
    "sweep",
    "tune",
]
