"""How attention mixes tokens over layers: rollout and flow, and what each token receives.

Abnar and Zuidema 2020 (arXiv 2005.00928): a layer's attention, averaged over heads, is mixed with the identity for the
residual stream, and layers are multiplied (rollout) or seen as a network of pipes (flow). Both treat values and
feed-forward layers as if they passed everything on unchanged: they show possible paths, not what was used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import BudgetError, UsageError
from ..numbers import many
from ..statespace import StateSpace
from ..tokens import Token
from ..trace import Trace
from ..views import WeightView
from .tables import Tabular

if TYPE_CHECKING:
    import pandas as pd

FLOW_LIMIT = 128
"""Tokens up to which `flow` builds its network, which has an edge for every pair in every layer."""


@dataclass(frozen=True)
class Flow(Tabular):
    """What each token contributes to (or takes from) one token: scores [N], and the tokens they belong to.

    token is None for the mean of all tokens that are asked about.
    """

    scores: Tensor
    tokens: tuple[Token, ...]
    method: str
    token: int | None

    def table(self) -> pd.DataFrame:
        """One row per token, strongest first."""
        import pandas as pd

        rows = [
            {"position": index, "token": token.label, "score": score}
            for index, (token, score) in enumerate(zip(self.tokens, self.scores.tolist(), strict=True))
        ]
        return pd.DataFrame(rows).sort_values("score", ascending=False, kind="stable", ignore_index=True)


def rollout(trace: Trace, token: int = -1, *, residual: float = 0.5, layers: Sequence[int] | None = None) -> Flow:
    """What the top layer's state at `token` is made of: one row of the rollout matrix, sums to 1.

    One vector is pulled down through the layers, so memory is O(N) per layer and no N x N matrix is made. residual is
    the share of the identity in each layer; layers defaults to all.
    """
    views = _views(trace, layers)
    place = place_of(trace, token)
    vector = torch.zeros(1, 1, len(trace.tokens), 1)
    vector[0, 0, place] = 1.0
    for view in reversed(views):
        attended = view.pull(vector / _row_sums(view)).mean(1, keepdim=True).to(vector.dtype)
        vector = residual * vector + (1 - residual) * attended
    return Flow(vector[0, 0, :, 0], trace.tokens, "rollout", place)


def reach(trace: Trace, token: int, *, residual: float = 0.5, layers: Sequence[int] | None = None) -> Flow:
    """Where the input at `token` ends up: one column of the rollout matrix, what it adds to every top state."""
    views = _views(trace, layers)
    place = place_of(trace, token)
    vector = torch.zeros(1, 1, len(trace.tokens), 1)
    vector[0, 0, place] = 1.0
    for view in views:
        attended = (view.push(vector) / _row_sums(view)).mean(1, keepdim=True).to(vector.dtype)
        vector = residual * vector + (1 - residual) * attended
    return Flow(vector[0, 0, :, 0], trace.tokens, "reach", place)


def flow(trace: Trace, token: int = -1, *, residual: float = 0.5) -> Flow:
    """Attention flow: the maximum flow from each input token to the top layer's state at `token`.

    Needs every weight at once, O(L N^2); raises BudgetError above `FLOW_LIMIT` tokens.
    """
    import networkx as nx

    count, place = len(trace.tokens), place_of(trace, token)
    if count > FLOW_LIMIT:
        raise BudgetError(
            f"flow takes up to {FLOW_LIMIT} tokens, this trace has {count}: use rollout, or a shorter text"
        )
    graph = nx.DiGraph()
    views = _views(trace, None)
    for layer, view in enumerate(views):
        weights = (view.tile(slice(None), slice(None)) / _row_sums(view)).mean(1)[0]
        mixed = residual * torch.eye(count) + (1 - residual) * weights
        for i, j in mixed.nonzero().tolist():
            graph.add_edge((layer, j), (layer + 1, i), capacity=mixed[i, j].item())
    top = (len(views), place)
    scores = [nx.maximum_flow_value(graph, (0, j), top) for j in range(count)]
    return Flow(torch.tensor(scores), trace.tokens, "flow", place)


def received(trace: Trace) -> pd.DataFrame:
    """What every token receives in each layer: the mean over heads of the column sums, divided by the queries that see
    it on average (1 would be an even share). One row per layer and token.
    """
    import pandas as pd

    rows = []
    for layer in trace.layers:
        heads = [trace[layer, head] for head in trace.record(layer).head_numbers]
        total = torch.stack([head.received for head in heads]).mean(0)
        even = total.sum() / len(total)
        rows += [
            {"layer": layer, "position": index, "token": token.label, "received": value}
            for index, (token, value) in enumerate(zip(heads[0].cols, (total / even).tolist(), strict=True))
        ]
    return pd.DataFrame(rows)


def _views(trace: Trace, layers: Sequence[int] | None) -> list[WeightView]:
    """One cropped view per layer, all heads, of the sequence looked at."""
    found = []
    for layer in trace.layers if layers is None else layers:
        view = trace.view(layer)
        queries, keys = view.shape[2:]
        if queries != keys:
            raise UsageError(f"rollout needs as many queries as keys, layer {layer} has {queries} and {keys}")
        if isinstance(view, StateSpace):
            raise UsageError(f"layer {layer} is a state-space layer, whose weights are no shares to be followed")
        found.append(view)
    return found


def place_of(trace: Trace, token: int) -> int:
    """The position of a token, which may be counted from the end; UsageError where there is none."""
    count = len(trace.tokens)
    if not -count <= token < count:
        raise UsageError(f"token {token} does not exist: this text has {many(count, 'token')} (0 to {count - 1})")
    return token % count


def _row_sums(view: WeightView) -> Tensor:
    """[1, H, M, 1]: what the keys share of each row; below 1 where a sink takes the rest. Rows that see nothing: 1."""
    ones = torch.ones(1, 1, view.shape[3], 1)
    sums = view.push(ones)
    return torch.where(sums > 0, sums, 1.0)
