"""What the tests share: scenarios that take milliseconds, and a cluster of two workers."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import pytest

SCENARIOS = Path(__file__).parents[2] / "sim" / "scenarios"


@pytest.fixture
def ping_pong() -> dict[str, Any]:
    """Two vCPUs that pass a turn back and forth for 20 ms."""
    return {
        "title": "ping-pong",
        "seed": 1,
        "time": "20ms",
        "host": {"cores": 2},
        "vm": [
            {
                "name": "a",
                "vcpus": 2,
                "costs": "this-vm",
                "policy": "halt",
                "program": [{"name": "ping-pong"}],
            }
        ],
    }


@pytest.fixture(scope="session")
def client() -> Iterator[distributed.Client]:
    """A cluster of two processes on this machine."""
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as connected,
    ):
        yield connected


@pytest.fixture(scope="session")
def sim() -> str:
    """The program gleaner-sim of the same checkout."""
    return os.environ["GLEANER_SIM"]
