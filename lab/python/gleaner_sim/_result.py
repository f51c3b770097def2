"""What a simulation has found."""

from __future__ import annotations

import html
from functools import cached_property
from typing import Any, Literal

from ._native import CATEGORIES
from ._table import Table

#: A thread that is none, in the native timeline.
_NO_THREAD = 2**32 - 1


class Result:
    """The result of one simulation.

    Times are in nanoseconds of simulated time.
    """

    def __init__(self, title: str, report: dict[str, Any], timeline: dict[str, Any] | None) -> None:
        #: The file, or the dict's title.
        self.title = title
        #: Everything that was counted, as ``gleaner-sim run --json`` prints it.
        self.report = report
        self._timeline = timeline

    @property
    def end(self) -> str:
        """How the simulation ended."""
        return str(self.report["end"])

    @property
    def elapsed_ns(self) -> int:
        """How long it was, in simulated time."""
        return int(self.report["elapsed"])

    @property
    def events(self) -> int:
        """Number of events."""
        return int(self.report["events"])

    @property
    def digest(self) -> str:
        """Hash of all events: equal for equal simulations."""
        return str(self.report["digest"])

    @cached_property
    def programs(self) -> Table:
        """A row for each program: operations, CPU time, wake-ups and what they take.

        ``operations_per_s`` counts until the program ended; ``wake_us`` is the mean from the waker's call until the
        woken thread runs; ``finished_ns`` is None for a program that did not end.
        """
        return Table.of_rows(
            [_program(self.elapsed_ns, vm["name"], task) for vm in self.report["vms"] for task in vm["tasks"]]
        )

    @cached_property
    def vcpus(self) -> Table:
        """A row for each vCPU: the time in each of :data:`gleaner_sim.CATEGORIES`, and event counts."""
        return Table.of_rows(
            [
                {"vm": vm["name"], "vcpu": number}
                | {f"{name}_ns": time for name, time in zip(CATEGORIES, vcpu["time"])}
                | {key: count for key, count in vcpu.items() if key != "time"}
                for vm in self.report["vms"]
                for number, vcpu in enumerate(vm["vcpus"])
            ]
        )

    @cached_property
    def pcpus(self) -> Table:
        """A row for each pCPU: time with guests, switching between them, polling for halted vCPUs, idle."""
        return Table.of_rows(
            [
                {"pcpu": number} | {f"{name}_ns": time for name, time in pcpu.items()}
                for number, pcpu in enumerate(self.report["pcpus"])
            ]
        )

    @cached_property
    def timeline(self) -> Table:
        """A row for each span of a vCPU's activity: which vCPU did what for which thread, from when to when.

        :raises ValueError: the simulation was run without ``timeline=True``.
        """
        native = self._timeline
        if native is None:
            raise ValueError("nothing was recorded: call simulate(…, timeline=True)")
        vms = [vm["name"] for vm in self.report["vms"]]
        threads = native["threads"]
        return Table(
            {
                "vm": [vms[number] for number in _numbers(native["vm"], "I")],
                "vcpu": _numbers(native["vcpu"], "I"),
                "category": [CATEGORIES[number] for number in _numbers(native["category"], "I")],
                "thread": [
                    None if number == _NO_THREAD else threads[number] for number in _numbers(native["thread"], "I")
                ],
                "start_ns": _numbers(native["start_ns"], "Q"),
                "end_ns": _numbers(native["end_ns"], "Q"),
            }
        )

    @property
    def timeline_is_cut(self) -> bool:
        """Whether the timeline ends early, because there were more spans than it may hold."""
        return bool(self._timeline and self._timeline["full"])

    def shares(self, vm: str | None = None) -> dict[str, float]:
        """The share of the vCPUs' time in each of :data:`gleaner_sim.CATEGORIES`: of one VM, or of all.

        :raises KeyError: there is no such VM.
        """
        vms = [one for one in self.report["vms"] if vm in (None, one["name"])]
        if not vms:
            raise KeyError(f"there is no VM {vm!r}; there are {', '.join(one['name'] for one in self.report['vms'])}")
        times = [sum(column) for column in zip(*(vcpu["time"] for one in vms for vcpu in one["vcpus"]))]
        whole = sum(times) or 1
        return {name: time / whole for name, time in zip(CATEGORIES, times)}

    def __repr__(self) -> str:
        return f"<Result of {self.title}: {self.elapsed_ns / 1e9:.3f} s simulated, {self.events} events, {self.end}>"

    def _repr_html_(self) -> str:
        head = f"{self.title}: {self.elapsed_ns / 1e9:.3f} s simulated, {self.events:,} events, {self.end}"
        return f"<p>{html.escape(head)}</p>{self.programs._repr_html_()}"


def _program(elapsed_ns: int, vm: str, task: dict[str, Any]) -> dict[str, Any]:
    until = task["finished"] if task["finished"] is not None else elapsed_ns
    return {
        "vm": vm,
        "program": task["name"],
        "operations": task["operations"],
        "operations_per_s": task["operations"] / max(until, 1) * 1e9,
        "finished_ns": task["finished"],
        "cpu_ns": task["cpu"],
        "run_delay_ns": task["run_delay"],
        "switches": task["switches"],
        "wakes": task["wakes"],
        "wake_us": task["wake_ns"] / 1e3 / max(task["wakes"], 1),
    }


def _numbers(column: bytes, kind: Literal["I", "Q"]) -> memoryview[int]:
    return memoryview(column).cast(kind)
