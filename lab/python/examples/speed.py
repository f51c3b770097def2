"""What a call costs, and how much faster two Dask workers are than one. Run by `make bench-python`."""

import time
from statistics import median
from typing import Any

import distributed

import gleaner_sim

CALLS = 2_000
RUNS = 10_000
ROUNDS = 3


def scenario(duration: str) -> dict[str, Any]:
    """A queue of jobs on two vCPUs."""
    feeder = [{"repeat": {"code": [{"compute": "20us"}, {"put": "jobs"}]}}]
    worker = [{"repeat": {"code": [{"take": "jobs"}, {"compute": "exponential(30us)"}, {"done": 1}]}}]
    program = {
        "name": "queue",
        "objects": {"jobs": {"kind": "queue", "capacity": 4}},
        "thread": [{"name": "feeder", "code": feeder}, {"name": "worker", "count": 2, "code": worker}],
    }
    vm = {"name": "vm", "vcpus": 2, "costs": "this-vm", "policy": "halt", "program": [program]}
    return {"title": "queue", "seed": 1, "time": duration, "host": {"cores": 2}, "vm": [vm]}


def call_ms() -> float:
    """Milliseconds of a call that simulates next to nothing, result included: the median."""
    nothing, times = scenario("1us"), []
    for _ in range(CALLS):
        start = time.perf_counter()
        len(gleaner_sim.simulate(nothing).programs)
        times.append(time.perf_counter() - start)
    return median(times) * 1e3


def sweep_s(workers: int) -> float:
    """Seconds for all runs on so many workers, each a process with one thread."""
    with (
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        start = time.perf_counter()
        result = gleaner_sim.sweep(scenario("100ms"), {"seed": range(1, RUNS + 1)}, client=client)
        assert len(result) == RUNS
        return time.perf_counter() - start


def main() -> None:
    print(f"a call of gleaner_sim.simulate: {call_ms():.3f} ms")
    ratios = []
    for _ in range(ROUNDS):
        one, two = sweep_s(1), sweep_s(2)
        ratios.append(one / two)
    print(
        f"a sweep of {RUNS} runs: two Dask workers are {median(ratios):.2f} times as fast as one "
        f"({min(ratios):.2f} to {max(ratios):.2f}, {ROUNDS} rounds in turns; the last took {one:.1f} s and {two:.1f} s)"
    )


if __name__ == "__main__":
    main()
