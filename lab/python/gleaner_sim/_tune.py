"""The search for better parameters of the policy: Optuna over simulations, judged on scenarios that it has not seen."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from . import _native
from ._errors import ScenarioError
from ._native import CATEGORIES
from ._scenario import Scenario, name_and_text
from ._simulate import simulate
from ._table import Table

if TYPE_CHECKING:
    import distributed
    import optuna

#: Programs with different kinds of synchronisation, and two with hardly any.
_PROGRAMS = (
    "ping-pong",
    "request-response",
    "pipeline",
    "barrier",
    "convoy",
    "matmul",
    "freqsleep",
    "dedup",
    "streamcluster",
    "facesim",
    "cholesky",
    "volrend",
)
#: Number of vCPUs, and the program of a second VM of that size on the same pCPUs.
_MACHINES = ((2, None), (4, None), (8, None), (4, "matmul"))

_Dict = dict[str, Any]


@dataclass(frozen=True)
class Gain:
    """What other parameters change in a scenario, as factors. More than 1 is better, except for the CPU time."""

    #: Operations per second of the VMs under the policy.
    speed: float
    #: The host's CPU time for them per operation.
    cpu: float
    #: Operations per second of the other VMs.
    others: float

    def score(self, cpu_price: float) -> float:
        """The logarithm of all of it; more than 0 is better."""
        return math.log(self.speed) + math.log(self.others) - cpu_price * math.log(self.cpu)


@dataclass(frozen=True)
class Verdict:
    """What the parameters found change in a scenario that the search has not seen."""

    scenario: str
    #: With each seed.
    gains: tuple[Gain, ...]


@dataclass(frozen=True)
class Tuned:
    """The result of a search. Nothing was changed by it."""

    #: The parameters found, by key; the defaults where nothing better was found.
    parameters: dict[str, float]
    defaults: dict[str, float]
    #: The mean of the searched scenarios' scores against the defaults.
    score: float
    verdicts: tuple[Verdict, ...]
    study: optuna.Study

    @property
    def held_out(self) -> Table:
        """A row for each held-out scenario: medians over the seeds, and the least and the most speed."""
        return Table.of_rows(
            [
                {
                    "scenario": verdict.scenario,
                    "speed": median(gain.speed for gain in verdict.gains),
                    "least": min(gain.speed for gain in verdict.gains),
                    "most": max(gain.speed for gain in verdict.gains),
                    "cpu": median(gain.cpu for gain in verdict.gains),
                    "others": median(gain.others for gain in verdict.gains),
                }
                for verdict in self.verdicts
            ]
        )

    def toml(self) -> str:
        """The parameters found, for a scenario file."""
        return "".join(["[policy]\n", *(f"{key} = {value!r}\n" for key, value in self.parameters.items())])

    def __repr__(self) -> str:
        speeds = [gain.speed for verdict in self.verdicts for gain in verdict.gains]
        held = math.exp(sum(map(math.log, speeds)) / len(speeds))
        return f"<Tuned: score {self.score:+.4f} where it was searched; held out, {held:.3f} times the speed>"


def field(seconds: float = 2) -> tuple[list[_Dict], list[_Dict]]:
    """Twelve programs on four machines, each simulated for so long: scenarios to search on, and scenarios to hold out.

    Every other one is held out, so that each program and each machine is on both sides.
    """
    sides: tuple[list[_Dict], list[_Dict]] = ([], [])
    for m, (vcpus, beside) in enumerate(_MACHINES):
        for p, program in enumerate(_PROGRAMS):
            sides[(m + p) % 2].append(_scenario(program, vcpus, beside, seconds))
    return sides


def _scenario(program: str, vcpus: int, beside: str | None, seconds: float) -> _Dict:
    def vm(name: str, policy: str, runs: _Dict) -> _Dict:
        return {
            "name": name,
            "vcpus": vcpus,
            "costs": "this-vm",
            "scheduler": "eevdf",
            "policy": policy,
            "program": [runs],
        }

    vms = [vm("governed", "gleaner", {"name": program})]
    if beside:
        vms.append(vm("beside", "halt", {"name": beside, "repeat": True}))
    return {
        "title": f"{program} on {vcpus} vCPUs" + (f" beside {beside}" if beside else ""),
        "time": f"{round(seconds * 1e6)}us",
        "host": {"cores": vcpus, "scheduler": "eevdf"},
        "vm": vms,
    }


def tune(
    search: Sequence[Scenario] | None = None,
    hold_out: Sequence[Scenario] | None = None,
    *,
    trials: int = 40,
    seed: int = 1,
    seeds: int = 5,
    cpu_price: float = 0.125,
    only: Sequence[str] | None = None,
    client: distributed.Client | None = None,
    workers: int | None = None,
) -> Tuned:
    """Searches the policy's parameters with Optuna, and judges what it has found on scenarios that it has not used.

    A scenario's score is its speed against the defaults, times the speed of the VMs beside it, divided by the CPU time
    per operation to the power of ``cpu_price``; a trial's is the geometric mean over all scenarios. The first trial are
    the defaults. The same ``seed`` gives the same result, wherever and on however many workers the simulations run.

    :param search: scenarios to search on, each with a VM whose policy is ``"gleaner"``; by default those of
        :func:`field`.
    :param hold_out: scenarios to judge on; needed with ``search``.
    :param trials: how many sets of parameters are tried.
    :param seeds: with how many other seeds the held-out scenarios are judged.
    :param only: keys of the parameters to search; by default all.
    :param client: a Dask client, on whose cluster the simulations run; by default they run on this machine.
    :param workers: threads on this machine; by default one per CPU.
    :raises ScenarioError: a scenario is wrong, or the policy governs no VM of it.
    :raises ValueError: an argument is wrong.
    """
    if (search is None) != (hold_out is None):
        raise ValueError("search and hold_out go together: what is judged must not be what was searched")
    if trials < 2 or seeds < 1:
        raise ValueError("at least 2 trials (the first are the defaults) and 1 seed are needed")
    searched, held = field() if search is None or hold_out is None else (_dicts(search), _dicts(hold_out))
    if not searched or not held:
        raise ValueError("at least one scenario to search on and one to hold out are needed")
    ranges = _ranges(only)
    defaults = {key: one.default for key, one in ranges.items()}
    with _Runner(client, workers) as runner:
        study = _search(runner, searched, ranges, trials, seed, cpu_price)
        best = study.best_trial
        found: dict[str, float] = best.user_attrs["parameters"]
        others = range(seed + 1, seed + 1 + seeds)
        jobs = [(scenario, chosen, other) for scenario in held for chosen in ({}, found) for other in others]
        measures = iter(runner.measures(jobs))
    verdicts = tuple(_verdict(scenario, measures, seeds) for scenario in held)
    return Tuned(found, defaults, float(best.value or 0.0), verdicts, study)


@dataclass(frozen=True)
class _Range:
    """Where a parameter is searched."""

    low: float
    high: float
    default: float
    log: bool

    def rounded(self, value: float) -> float:
        """Three digits: more would suggest more precision than there is."""
        return min(max(float(f"{value:.2e}"), self.low), self.high)


def _ranges(only: Sequence[str] | None) -> dict[str, _Range]:
    known = {key: _Range(low, high, default, log) for key, low, high, default, log in _native.policy_parameters()}
    if unknown := set(only or ()) - known.keys():
        raise ValueError(f"the policy has no {', '.join(sorted(unknown))}; it has {', '.join(known)}")
    return {key: one for key, one in known.items() if only is None or key in only}


def _search(
    runner: _Runner,
    scenarios: Sequence[_Dict],
    ranges: Mapping[str, _Range],
    trials: int,
    seed: int,
    cpu_price: float,
) -> optuna.Study:
    """Tries the defaults and what Optuna proposes."""
    import optuna

    defaults = {key: one.default for key, one in ranges.items()}
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.enqueue_trial(defaults)
    before = runner.measures([(scenario, {}, seed) for scenario in scenarios])
    for _ in range(trials):
        trial = study.ask()
        proposed = {key: trial.suggest_float(key, one.low, one.high, log=one.log) for key, one in ranges.items()}
        # The defaults themselves are not rounded.
        parameters = proposed if trial.number == 0 else {key: ranges[key].rounded(x) for key, x in proposed.items()}
        trial.set_user_attr("parameters", parameters)
        after = runner.measures([(scenario, parameters, seed) for scenario in scenarios])
        gains = [_gain(*pair) for pair in zip(before, after)]
        study.tell(trial, sum(gain.score(cpu_price) for gain in gains) / len(gains))
    return study


def _dicts(scenarios: Sequence[Scenario]) -> list[_Dict]:
    return [dict(one) if isinstance(one, Mapping) else tomllib.loads(name_and_text(one)[1]) for one in scenarios]


@dataclass(frozen=True)
class _Measure:
    """How a scenario went: sums of logarithms over the programs."""

    speed: float
    cpu: float
    others: float
    #: Programs in the sums of the VMs under the policy, and of the others.
    programs: tuple[int, int]


_Job = tuple[_Dict, dict[str, float], int]


def _measure(job: _Job) -> _Measure:
    scenario, parameters, seed = job
    chosen = {**scenario, "seed": seed, "policy": {**scenario.get("policy", {}), **parameters}}
    report = simulate(chosen).report
    governed = [
        str(vm.get("policy", "")).startswith("gleaner") for vm in scenario["vm"] for _ in range(vm.get("count", 1))
    ]
    if not any(governed):
        raise ScenarioError(f'{scenario["title"]}: the policy governs no VM: give one policy = "gleaner"')
    speed = cpu = others = 0.0
    programs = [0, 0]
    for vm, ours in zip(report["vms"], governed):
        idle = {"halted", "waking", "steal"}
        host_cpu = sum(time for vcpu in vm["vcpus"] for name, time in zip(CATEGORIES, vcpu["time"]) if name not in idle)
        # No operation counts as half of one, since the logarithm needs a positive number.
        operations = [max(float(task["operations"]), 0.5) for task in vm["tasks"]]
        for task, count in zip(vm["tasks"], operations):
            until = task["finished"] if task["finished"] is not None else report["elapsed"]
            rate = math.log(count / max(until, 1))
            if ours:
                speed += rate
                cpu += math.log(max(host_cpu, 1) / sum(operations))
            else:
                others += rate
            programs[not ours] += 1
    return _Measure(speed, cpu, others, (programs[0], programs[1]))


def _gain(before: _Measure, after: _Measure) -> Gain:
    ours, others = (max(count, 1) for count in before.programs)
    return Gain(
        speed=math.exp((after.speed - before.speed) / ours),
        cpu=math.exp((after.cpu - before.cpu) / ours),
        others=math.exp((after.others - before.others) / others),
    )


def _verdict(scenario: _Dict, measures: Iterator[_Measure], seeds: int) -> Verdict:
    before = [next(measures) for _ in range(seeds)]
    after = [next(measures) for _ in range(seeds)]
    return Verdict(str(scenario["title"]), tuple(_gain(*pair) for pair in zip(before, after)))


class _Runner:
    """Runs simulations on a cluster or in threads, and keeps their order."""

    def __init__(self, client: distributed.Client | None, workers: int | None) -> None:
        self._client = client
        self._pool = None if client else ThreadPoolExecutor(workers)

    def __enter__(self) -> _Runner:
        return self

    def measures(self, jobs: Sequence[_Job]) -> list[_Measure]:
        if self._client:
            return list(self._client.gather(self._client.map(_measure, list(jobs))))
        return list(self._pool.map(_measure, jobs)) if self._pool else []

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
