"""One simulation: scenarios as files and dicts, results as frames, errors with their place."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import SCENARIOS

import gleaner_sim
from gleaner_sim import ScenarioError, SimulationError, simulate


def test_a_dict_and_a_file_give_the_same_events(ping_pong: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        "title = 'ping-pong'\nseed = 1\ntime = '20ms'\n[host]\ncores = 2\n[[vm]]\nname = 'a'\nvcpus = 2\n"
        "costs = 'this-vm'\npolicy = 'halt'\n[[vm.program]]\nname = 'ping-pong'\n"
    )
    of_file, of_dict = simulate(file), simulate(ping_pong)
    assert of_file.digest == of_dict.digest
    assert of_file.report == of_dict.report


def test_the_result_is_that_of_the_command_line(ping_pong: dict[str, Any], sim: str) -> None:
    file = SCENARIOS / "quick.toml"
    printed = json.loads(subprocess.run([sim, "run", file, "--json"], capture_output=True, check=True).stdout)
    assert simulate(file).report == printed


def test_retention_makes_a_ping_pong_faster(ping_pong: dict[str, Any]) -> None:
    halting, polling = (simulate(ping_pong, {"vm.a.policy": policy}) for policy in ("halt", "haltpoll:200us"))
    assert polling.programs["operations"][0] > 2 * halting.programs["operations"][0]
    assert polling.shares("a")["halted"] < halting.shares("a")["halted"]


def test_values_and_keywords_replace_what_the_scenario_has(ping_pong: dict[str, Any]) -> None:
    assert simulate(ping_pong, time="10ms").elapsed_ns == 10_000_000
    assert simulate(ping_pong, {"vm.a.vcpus": 1}).vcpus["vcpu"] == [0]
    # The scenario's own values hold where its [sweep] would vary them.
    own = simulate(SCENARIOS / "job-queue.toml", time="20ms")
    assert len(own.vcpus) == 4


def test_time_adds_up_on_vcpus_and_pcpus(ping_pong: dict[str, Any]) -> None:
    result = simulate(ping_pong)
    for vcpu in result.vcpus:
        assert sum(vcpu[f"{name}_ns"] for name in gleaner_sim.CATEGORIES) == result.elapsed_ns
    for pcpu in result.pcpus:
        assert sum(pcpu[f"{name}_ns"] for name in ("guest", "overhead", "polling", "idle")) == result.elapsed_ns
    assert sum(result.shares().values()) == pytest.approx(1)


def test_a_timeline_covers_each_vcpu_without_gaps(ping_pong: dict[str, Any]) -> None:
    result = simulate(ping_pong, timeline=True)
    assert not result.timeline_is_cut
    ends = {0: 0, 1: 0}
    for span in result.timeline:
        assert span["vm"] == "a"
        assert span["start_ns"] == ends[span["vcpu"]]
        ends[span["vcpu"]] = span["end_ns"]
    assert set(ends.values()) == {result.elapsed_ns}
    users = {span["thread"] for span in result.timeline if span["category"] == "user"}
    assert len(users) == 2
    assert all(name.startswith("ping-pong/") for name in users)
    with pytest.raises(ValueError, match="timeline=True"):
        _ = simulate(ping_pong).timeline


def test_tables_become_frames(ping_pong: dict[str, Any]) -> None:
    result = simulate(ping_pong, timeline=True)
    for table in (result.programs, result.vcpus, result.pcpus, result.timeline):
        pandas, polars = table.to_pandas(), table.to_polars()
        assert list(pandas.columns) == polars.columns == list(table.columns)
        assert len(pandas) == len(polars) == len(table) > 0
    assert result.timeline.to_pandas()["end_ns"].dtype == "uint64"
    assert result.programs.to_polars()["operations"][0] == result.programs["operations"][0]


def test_a_notebook_shows_a_result_as_a_table_with_escaped_names(ping_pong: dict[str, Any]) -> None:
    result = simulate({**ping_pong, "title": "a <b>"})
    shown = result._repr_html_()
    assert "<p>a &lt;b&gt;: 0.020 s simulated" in shown
    assert "<th>operations_per_s</th>" in shown
    assert repr(result).startswith("<Result of a <b>: 0.020 s simulated")


def test_what_is_wrong_in_a_file_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("title = 't'\ntime = '1ms'\n[host]\ncores = 2\n[[vm]]\nname = 'a'\nvcpus = 2\ncosts = 'this-wm'\n")
    with pytest.raises(ScenarioError, match="this-vm") as caught:
        simulate(file)
    assert (caught.value.file, caught.value.line) == (str(file), 8)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vm.b.vcpus": 4}, "no value at `vm.b.vcpus`"),
        ({"hosts.cores": 4}, "did you mean `host`"),
        ({"vm.a.policy": "warp"}, 'with vm.a.policy = "warp"'),
    ],
)
def test_what_is_wrong_in_a_value_is_named(ping_pong: dict[str, Any], change: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        simulate(ping_pong, change)
    assert message in str(caught.value)
    assert caught.value.file == "ping-pong"


def test_values_of_other_types_are_refused(ping_pong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="not a list"):
        simulate(ping_pong, {"seed": [1]})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="path of a file or a dict, not a int"):
        simulate(7)  # type: ignore[arg-type]
    with pytest.raises(ScenarioError, match="cannot have"):
        simulate({**ping_pong, "seed": {1}})
    with pytest.raises(ScenarioError, match="cannot have"):
        simulate({**ping_pong, "seed": None})
    with pytest.raises(FileNotFoundError):
        simulate("/no/such.toml")


def test_a_deadlock_is_an_exception_that_names_the_threads() -> None:
    objects = {"one": {"kind": "mutex"}, "two": {"kind": "mutex"}}

    def thread(first: str, second: str) -> dict[str, Any]:
        pause = {"compute": "10us"}
        return {
            "name": first,
            "code": [{"lock": first}, pause, {"lock": second}, {"unlock": second}, {"unlock": first}],
        }

    program = {"name": "p", "objects": objects, "thread": [thread("one", "two"), thread("two", "one")]}
    vm = {"name": "a", "vcpus": 2, "costs": "this-vm", "program": [program]}
    with pytest.raises(SimulationError, match=r"(?s)deadlock.*p/one.*p/two"):
        simulate({"title": "t", "time": "1s", "host": {"cores": 2}, "vm": [vm]})
