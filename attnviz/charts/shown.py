"""Charts that show themselves in a notebook without a network: altair's default loads its libraries from a server."""

from __future__ import annotations

from typing import Any

import altair as alt


class Still:
    """Shows the chart as a picture, unless another renderer than altair's default was chosen (`alt.renderers`)."""

    def _repr_mimebundle_(self, *args: Any, **options: Any) -> Any:
        if alt.renderers.active != "default":
            return super()._repr_mimebundle_(*args, **options)  # type: ignore[misc]
        from ..export.notebook import picture

        return {"text/html": picture(self), "text/plain": f"<{type(self).__name__}>"}


class Chart(Still, alt.Chart):
    """One view."""


class LayerChart(Still, alt.LayerChart):
    """Views on top of each other."""


class VConcatChart(Still, alt.VConcatChart):
    """Views below each other."""


_KINDS = {alt.Chart: Chart, alt.LayerChart: LayerChart, alt.VConcatChart: VConcatChart}


def shown(chart: Any) -> Any:
    """The same chart, changed in place so that it shows itself."""
    # altair takes a plain assignment for a property of the chart
    object.__setattr__(chart, "__class__", _KINDS[type(chart)])
    return chart
