"""Scenarios as text, whatever form they come in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _native
from ._errors import ScenarioError

#: A scenario: the path of a file, or its content as a dict.
Scenario = str | os.PathLike[str] | Mapping[str, Any]

#: A value of a key of a scenario.
Value = bool | int | float | str


def name_and_text(scenario: Scenario) -> tuple[str, str]:
    """What a scenario is called in errors, and the text of its file.

    :raises OSError: the file cannot be read.
    :raises TypeError: it is neither a path nor a dict.
    :raises ScenarioError: the dict holds what a scenario cannot hold.
    """
    if isinstance(scenario, Mapping):
        try:
            written = json.dumps(scenario, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ScenarioError(f"the scenario has a value that a scenario cannot have: {error}") from None
        return str(scenario.get("title", "the scenario")), _native.scenario_text(written)
    if isinstance(scenario, (str, os.PathLike)):
        return str(scenario), Path(scenario).read_text(encoding="utf-8")
    raise TypeError(f"a scenario is the path of a file or a dict, not a {type(scenario).__name__}")
