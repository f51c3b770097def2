"""Sweeps: the command line's table on threads and a cluster, kept while it grows, whole after a worker was killed."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import distributed
import pandas
import pytest
from conftest import SCENARIOS

import gleaner_sim
from gleaner_sim import ScenarioError, sweep

GRID = {"vm.a.policy": ["halt", "haltpoll:200us"], "vm.a.vcpus": [1, 2], "seed": range(1, 6)}


def test_the_table_is_that_of_the_command_line(sim: str, tmp_path: Path) -> None:
    file, out = SCENARIOS / "job-queue.toml", tmp_path / "out.parquet"
    subprocess.run([sim, "sweep", file, "--set", "time=10ms", "-o", out], check=True, capture_output=True)
    there = pandas.read_parquet(out)
    here = sweep(file, {"time": ["10ms"]}).to_pandas()
    assert len(here) == 18
    pandas.testing.assert_frame_equal(here, there, check_dtype=False)


def test_threads_and_a_cluster_give_the_same_rows(ping_pong: dict[str, Any], client: distributed.Client) -> None:
    one = sweep(ping_pong, GRID, workers=1)
    assert len(one) == 20
    assert list(one["point"]) == list(range(20))
    assert sweep(ping_pong, GRID, workers=3) == one
    assert sweep(ping_pong, GRID, client=client) == one


def test_nothing_runs_when_a_combination_is_wrong(ping_pong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"vm\.a\.vcpus = 0") as caught:
        sweep(ping_pong, {"vm.a.vcpus": [1, 0]}, output=tmp_path / "out")
    assert caught.value.file == "ping-pong"
    assert not (tmp_path / "out").exists()
    with pytest.raises(ScenarioError, match="nothing to vary"):
        sweep(ping_pong)


def test_an_interrupted_sweep_goes_on_where_it_was(ping_pong: dict[str, Any], tmp_path: Path) -> None:
    whole = sweep(ping_pong, GRID, output=tmp_path)
    parts = sorted(tmp_path.glob("part-*.parquet"))
    assert len(parts) == 20
    frame = pandas.read_parquet(parts)
    assert len(frame) == len(whole)
    assert list(frame["operations"]) == whole["operations"]
    # Those that are missing are computed, the others are not touched.
    times = {part: part.stat().st_mtime_ns for part in parts}
    for part in parts[3:5]:
        part.unlink()
    assert sweep(ping_pong, GRID, output=tmp_path) == whole
    changed = [part for part in parts if part.stat().st_mtime_ns != times[part]]
    assert changed == parts[3:5]
    with pytest.raises(FileExistsError, match="another sweep"):
        sweep(ping_pong, {"seed": [1]}, output=tmp_path)


def test_a_directory_of_something_else_is_left_alone(ping_pong: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(FileExistsError, match="is not empty"):
        sweep(ping_pong, {"seed": [1]}, output=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_worker_killed_in_the_middle_loses_nothing(ping_pong: dict[str, Any], tmp_path: Path) -> None:
    grid = {"seed": range(1, 257)}
    expected = sweep(ping_pong, grid)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        victim = next(iter(cluster.workers.values())).pid
        killed = []

        class Killing(gleaner_sim._sweep._Kept):
            """Kills one of the two workers when a tenth of the results is there."""

            def write(self, number: int, columns: dict[str, list[Any]]) -> None:
                super().write(number, columns)
                if not killed and len(list(tmp_path.glob("part-*"))) >= 25:
                    os.kill(victim, signal.SIGKILL)
                    killed.append(victim)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gleaner_sim._sweep, "_Kept", Killing)
            result = sweep(ping_pong, grid, client=client, output=tmp_path)
        # The nanny has noticed that its worker was killed.
        assert victim not in {worker.pid for worker in cluster.workers.values()}
    assert killed == [victim]
    assert result == expected
    assert list(pandas.read_parquet(sorted(tmp_path.glob("part-*")))["operations"]) == expected["operations"]


def test_combinations_that_end_early_are_named(ping_pong: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="1 of 2 combinations ended early: 1"):
        result = sweep({**ping_pong, "events": 1_000_000}, {"events": [1_000_000, 10]})
    assert result.early() == [1]


def test_progress_goes_to_stderr(ping_pong: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    sweep(ping_pong, {"seed": [1, 2]}, progress=True)
    captured = capsys.readouterr()
    assert captured.err.endswith("2/2 combinations\n")
    assert captured.out == ""
