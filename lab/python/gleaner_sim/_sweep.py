"""Sweeps: a scenario with every combination of some values, on this machine or on a Dask cluster."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import sys
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._native import Grid
from ._scenario import Scenario, Value, name_and_text
from ._table import Table

if TYPE_CHECKING:
    import distributed

#: What `Grid` is made of, pickled: name, text and axes. A worker gets it with each piece of work, and parses it once.
#: Bytes, since Dask looks into every element of anything else.
_Spec = bytes
_Columns = dict[str, list[Any]]

#: In how many pieces the combinations are divided: more than workers, so that all are busy until the end. Each costs
#: the client and Dask's scheduler 5 ms, which on a small machine the workers lack.
_PIECES = 64
#: What a directory of results was computed from.
_MANIFEST = "sweep.json"


class SweepResult(Table):
    """A row for each program of each VM of each combination, in the order of the combinations.

    The columns are those of ``gleaner-sim sweep``.
    """

    def early(self) -> list[int]:
        """The combinations that ended early: in a deadlock, without progress, or at the limit of events."""
        ends = zip(self["point"], self["end"])
        return sorted({point for point, end in ends if end not in ("finished", "the time limit was reached")})


def sweep(
    scenario: Scenario,
    grid: Mapping[str, Iterable[Value]] | None = None,
    *,
    client: distributed.Client | None = None,
    output: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    retries: int = 3,
    progress: bool | None = None,
) -> SweepResult:
    """Runs a scenario with every combination of the values in ``grid`` and in its ``[sweep]``.

    :param grid: values by key, as ``{"vm.a.vcpus": [2, 4], "seed": range(5)}``; they replace those of the same key
        in the scenario's ``[sweep]``.
    :param client: a Dask client: the combinations run on its cluster. Scenarios that replay a trace need it at the same
        path on every worker. Without a client, they run on this machine.
    :param output: a directory for the results, as Parquet files. What is computed is kept there at once: the same call
        after an interruption computes only what is missing.
    :param workers: threads on this machine; by default one per CPU.
    :param retries: how often Dask tries again what failed with a lost worker.
    :param progress: whether to show progress; by default on a terminal.
    :raises ScenarioError: a combination is wrong; nothing was run.
    :raises FileExistsError: ``output`` holds the results of another sweep.
    """
    name, text = name_and_text(scenario)
    spec = pickle.dumps((name, text, [(key, list(values)) for key, values in (grid or {}).items()]))
    whole = _grid(spec)
    whole.check()
    pieces = _pieces(whole.points)
    kept = _Kept(Path(output), name, text, whole) if output is not None else None
    done: dict[int, _Columns] = kept.read(pieces) if kept else {}
    todo = {number: points for number, points in enumerate(pieces) if number not in done}
    runs = _on_cluster(client, spec, todo, retries) if client else _here(spec, todo, workers or os.cpu_count() or 1)
    with contextlib.closing(runs), _Progress(whole.points, progress) as shown:
        shown.add(sum(len(pieces[number]) for number in done))
        for number, columns in runs:
            if kept:
                kept.write(number, columns)
            done[number] = columns
            shown.add(len(pieces[number]))
    result = SweepResult(_joined([done[number] for number in range(len(pieces))]))
    if early := result.early():
        some = ", ".join(map(str, early[:10]))
        warnings.warn(
            f"{len(early)} of {whole.points} combinations ended early: {some}; column `end` says why", stacklevel=2
        )
    return result


@lru_cache(maxsize=8)
def _grid(spec: _Spec) -> Grid:
    name, text, axes = pickle.loads(spec)
    return Grid(name, text, axes)


def _run(spec: _Spec, points: Sequence[int]) -> _Columns:
    return _grid(spec).run(points)


def _pieces(points: int) -> list[range]:
    size = -(-points // _PIECES)
    return [range(first, min(first + size, points)) for first in range(0, points, size)]


def _joined(pieces: Sequence[_Columns]) -> _Columns:
    return {name: [cell for piece in pieces for cell in piece[name]] for name in pieces[0]}


def _here(spec: _Spec, todo: Mapping[int, range], workers: int) -> Generator[tuple[int, _Columns]]:
    with ThreadPoolExecutor(workers) as pool:
        numbers = {pool.submit(_run, spec, points): number for number, points in todo.items()}
        try:
            for future in as_completed(numbers):
                yield numbers[future], future.result()
        finally:
            # After an error or Ctrl-C, what has not begun does not begin.
            pool.shutdown(wait=True, cancel_futures=True)


def _on_cluster(
    client: distributed.Client, spec: _Spec, todo: Mapping[int, range], retries: int
) -> Generator[tuple[int, _Columns]]:
    import distributed

    # Not pure: the scenario may replay a trace, and a trace can change.
    numbers = {
        client.submit(_run, spec, points, pure=False, retries=retries): number for number, points in todo.items()
    }
    try:
        for future, columns in distributed.as_completed(list(numbers), with_results=True):
            yield numbers[future], columns
            # The cluster need not keep what has arrived.
            future.release()
    finally:
        client.cancel(list(numbers))


class _Kept:
    """Results in a directory: a Parquet file for each piece of work."""

    def __init__(self, directory: Path, name: str, text: str, grid: Grid) -> None:
        self._directory = directory
        self._grid = grid
        identity = {
            "scenario": name,
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "axes": [[key, values] for key, values in grid.axes],
            "points": grid.points,
        }
        directory.mkdir(parents=True, exist_ok=True)
        manifest = directory / _MANIFEST
        if manifest.exists():
            if json.loads(manifest.read_text(encoding="utf-8")) != identity:
                raise FileExistsError(f"{directory} holds the results of another sweep: name another directory")
        elif any(directory.iterdir()):
            raise FileExistsError(f"{directory} is not empty, and holds no sweep: name another directory")
        else:
            _write(manifest, json.dumps(identity, indent=1).encode())

    def _path(self, number: int) -> Path:
        return self._directory / f"part-{number:05}.parquet"

    def read(self, pieces: Sequence[range]) -> dict[int, _Columns]:
        there = [number for number in range(len(pieces)) if self._path(number).exists()]
        if not there:
            return {}
        import pyarrow.parquet

        return {number: pyarrow.parquet.read_table(self._path(number)).to_pydict() for number in there}

    def write(self, number: int, columns: _Columns) -> None:
        _write(self._path(number), self._grid.parquet(columns))


def _write(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


class _Progress:
    """How many combinations are done, in one line of a terminal."""

    def __init__(self, total: int, wanted: bool | None) -> None:
        self._total, self._done = total, 0
        self._shown = sys.stderr.isatty() if wanted is None else wanted

    def __enter__(self) -> _Progress:
        return self

    def add(self, count: int) -> None:
        self._done += count
        if self._shown:
            print(f"\r{self._done}/{self._total} combinations", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._shown:
            print(file=sys.stderr)
