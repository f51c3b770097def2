"""Tables: columns of equal length, which become frames of pandas or polars where these are installed."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    import polars

#: Rows that a notebook shows of a long table.
_SHOWN = 20


class Table:
    """Columns of equal length, by name.

    ``table["column"]`` is a column, ``len(table)`` the number of rows; iteration yields the rows as dicts.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self.columns = dict(columns)

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]]) -> Table:
        """The table of these rows, which all have the same keys."""
        return cls({key: [row[key] for row in rows] for key in (rows[0] if rows else ())})

    def __getitem__(self, column: str) -> Sequence[Any]:
        return self.columns[column]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for cells in zip(*self.columns.values()):
            yield dict(zip(self.columns, cells))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and list(self) == list(other) and list(self.columns) == list(other.columns)

    def __repr__(self) -> str:
        return f"<Table: {len(self)} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        def row(tag: str, cells: Sequence[Any]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(_shown(cell))}</{tag}>" for cell in cells) + "</tr>"

        rows = [tuple(cells.values()) for _, cells in zip(range(_SHOWN), self)]
        more = f"<p>{len(self) - _SHOWN} more rows</p>" if len(self) > _SHOWN else ""
        body = "".join(row("td", cells) for cells in rows)
        return f"<table>{row('th', tuple(self.columns))}{body}</table>{more}"

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a frame of pandas (``pip install 'gleaner-sim[pandas]'``)."""
        import pandas

        return pandas.DataFrame({name: _for_pandas(column) for name, column in self.columns.items()})

    def to_polars(self) -> polars.DataFrame:
        """The table as a frame of polars (``pip install 'gleaner-sim[polars]'``)."""
        import polars

        return polars.DataFrame({name: list(column) for name, column in self.columns.items()})


def _for_pandas(column: Sequence[Any]) -> object:
    if isinstance(column, memoryview):
        import numpy

        return numpy.asarray(column)
    if any(isinstance(cell, str) for cell in column):
        return column
    # A number that is missing, as pandas writes it.
    return [math.nan if cell is None else cell for cell in column]


def _shown(cell: object) -> str:
    if cell is None:
        return ""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
