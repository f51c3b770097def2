"""The examples run as they are."""

import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_cluster_example_runs_on_two_workers(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, EXAMPLES / "cluster.py", "--output", out, "--seeds", "2"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "haltpoll:200us" in printed
    assert len(list(out.glob("part-*.parquet"))) == 18


def test_the_notebook_runs_and_its_stored_numbers_are_those_of_this_simulator() -> None:
    stored = nbformat.read(EXAMPLES / "tour.ipynb", as_version=4)
    fresh = nbformat.read(EXAMPLES / "tour.ipynb", as_version=4)
    nbclient.NotebookClient(fresh, resources={"metadata": {"path": EXAMPLES}}).execute()
    for before, now in zip(stored.cells, fresh.cells):
        if before.cell_type == "code":
            assert texts(before) == texts(now), before.source


def texts(cell: nbformat.NotebookNode) -> str:
    """What a cell printed and returned, pictures aside. What is printed arrives in pieces, which differ."""
    found = ""
    for output in cell.outputs:
        data = output.get("data", {})
        if "image/png" not in data:
            found += output.get("text") or data.get("text/plain", "")
    return found
