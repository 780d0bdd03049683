"""Per-row statistics of all heads as one table, and results that show themselves as their table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from attnviz_kernels import Statistics

from ..head import Head
from ..trace import Trace

if TYPE_CHECKING:
    import pandas as pd


class Tabular(ABC):
    """A result whose table is what a notebook shows of it."""

    @abstractmethod
    def table(self) -> pd.DataFrame:
        """The result as a table."""

    def _repr_html_(self) -> str:
        return self.table().to_html(max_rows=20)


def by_size(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """The rows by the size of a column, whatever its sign, the largest first."""
    return table.sort_values(column, key=lambda values: -values.abs(), kind="stable", ignore_index=True)


def statistics_table(trace: Trace) -> pd.DataFrame:
    """One row per layer, head and query: layer, head, row, token, visible_keys and the fields of `Statistics`.

    Entropy in nats, distance in positions; NaN (and largest_key -1) where a query sees no key. The table holds
    L x H x M rows: of long texts it is smaller to ask heads one by one.
    """
    import pandas as pd

    return pd.concat([_rows(head) for head in trace.every_head()], ignore_index=True)


def _rows(head: Head) -> pd.DataFrame:
    import pandas as pd

    found = {name: getattr(head.statistics, name).cpu().numpy() for name in Statistics.__dataclass_fields__}
    place = {"layer": head.layer, "head": head.head, "row": range(head.shape[0])}
    return pd.DataFrame(
        {
            **place,
            "token": [token.label for token in head.rows],
            "visible_keys": head.visible.cpu().numpy(),
            **found,
        }
    )
