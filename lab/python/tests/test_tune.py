"""The search: the same everywhere, never worse than the defaults where it searched, judged on unseen scenarios."""

from typing import Any

import distributed
import pytest

import gleaner_sim
from gleaner_sim import ScenarioError, tune


def few() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    search, held = gleaner_sim.field(0.2)

    def named(side: list[dict[str, Any]], *titles: str) -> list[dict[str, Any]]:
        return [scenario for scenario in side if scenario["title"] in titles]

    return named(search, "ping-pong on 2 vCPUs", "matmul on 4 vCPUs"), named(held, "ping-pong on 4 vCPUs")


def test_the_field_has_every_program_on_both_sides() -> None:
    search, held = gleaner_sim.field()
    assert (len(search), len(held)) == (24, 24)
    programs = [{scenario["vm"][0]["program"][0]["name"] for scenario in side} for side in (search, held)]
    assert programs[0] == programs[1]
    assert len(programs[0]) == 12
    assert not {scenario["title"] for scenario in search} & {scenario["title"] for scenario in held}


def test_a_search_does_not_depend_on_the_workers(client: distributed.Client) -> None:
    search, held = few()
    assert (len(search), len(held)) == (2, 1)
    one = tune(search, held, trials=4, seeds=2, workers=1)
    for other in (
        tune(search, held, trials=4, seeds=2, workers=3),
        tune(search, held, trials=4, seeds=2, client=client),
    ):
        assert (other.parameters, other.score, other.verdicts) == (one.parameters, one.score, one.verdicts)
    # The first trial are the defaults, which are worth nothing against themselves.
    assert one.study.trials[0].value == 0
    assert one.score >= 0
    assert len(one.verdicts[0].gains) == 2
    assert len(one.held_out) == 1
    assert one.toml().startswith("[policy]\n")


def test_bad_defaults_are_improved() -> None:
    # With this price, a vCPU is hardly ever kept ready.
    search, held = few()
    dear = [{**scenario, "policy": {"poll_price": 2.0}} for scenario in search]
    found = tune(dear, held, trials=6, seeds=1, only=["poll_price"], cpu_price=0.0)
    assert found.score > 0
    assert found.parameters["poll_price"] < 2.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"search": []}, "go together"),
        ({"trials": 1}, "at least 2 trials"),
        ({"only": ["warp"]}, "the policy has no warp; it has poll_price"),
        ({"search": [], "hold_out": []}, "at least one scenario"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tune(**arguments)


def test_a_scenario_without_the_policy_is_refused(ping_pong: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match="the policy governs no VM"):
        tune([ping_pong], [ping_pong], trials=2)
