"""A sweep on a Dask cluster: how many vCPUs does a queue of jobs need, and does the policy change the answer?

    python cluster.py                               # two workers on this machine
    python cluster.py tcp://scheduler:8786          # any cluster whose workers have gleaner-sim installed

Run it again after an interruption: it goes on where it was.
"""

import argparse
from pathlib import Path

import distributed

import gleaner_sim

SCENARIO = Path(__file__).parents[2] / "sim" / "scenarios" / "job-queue.toml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scheduler", nargs="?", help="address of a Dask scheduler")
    parser.add_argument("--output", default="job-queue.parquet", help="directory of the results")
    parser.add_argument("--seeds", type=int, default=50, help="repetitions with other random numbers")
    args = parser.parse_args()
    grid = {
        "vm.a.policy": ["halt", "haltpoll:200us", "gleaner"],
        "vm.a.vcpus": [1, 2, 4],
        "time": ["100ms"],
        "seed": range(1, args.seeds + 1),
    }
    if args.scheduler:
        client = distributed.Client(args.scheduler)
    else:
        client = distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with client:
        result = gleaner_sim.sweep(SCENARIO, grid, client=client, output=args.output)
    frame = result.to_pandas()
    print(frame.groupby(["vm.a.vcpus", "vm.a.policy"])["operations_per_s"].describe()[["mean", "min", "max"]].round(0))


if __name__ == "__main__":
    main()
