"""What the page of causes can compute, each as work for a job, and what none of it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..analysis.ablation import Effect, ablate, ablate_each
from ..analysis.attribution import attribute_tokens
from ..analysis.cases import Case, alone
from ..analysis.gradients import gradients
from ..analysis.tables import by_size
from .jobs import Job, watched
from .runs import twin

if TYPE_CHECKING:
    import pandas as pd

    from ..head import Head
    from ..tokens import Token

ROLLOUT, RELEVANCE, INTEGRATED, TOKENS = "Rollout", "Relevance", "Integrated gradients", "Each token"
HEAD, HEADS = "This head", "Every head"
NAMES = {RELEVANCE: "relevance", INTEGRATED: "integrated gradients", TOKENS: "ablation"}
"""What `attnviz attribute --method` calls those that score tokens."""

LIMITS = {
    ROLLOUT: "Every path that attention leaves open through the layers, as if nothing else happened in them: it does"
    " not show which of them the model used, or for what.",
    RELEVANCE: "Gradient × attention through all layers, only where it adds: it holds for small changes, and does not"
    " show what removing a token would do.",
    INTEGRATED: "What each token adds on the way from a text of padding to this one: it does not show how tokens work"
    " together, and is worth nothing where it has not converged.",
    TOKENS: "The number with the token less the number with padding in its place: it does not show what two tokens"
    " do only together, or only in place of each other.",
    HEAD: "The number with this head writing nothing: no change does not show that the head is useless, others may do"
    " the same.",
    HEADS: "Each head silenced alone: a small change does not show that a head is useless, others may do the same.",
}
"""One sentence for each way to look."""

SLOW = (INTEGRATED, TOKENS, HEADS)
"""Those that run the model many times."""


@dataclass(frozen=True)
class Scores:
    """What each token counts for, in the order of the text, and a remark on how far to trust it."""

    tokens: tuple[Token, ...]
    scores: list[float]
    remark: str = ""
    converged: bool = True

    def table(self) -> pd.DataFrame:
        """One row a token, the largest effect first."""
        import pandas as pd

        rows = [(place, token.label, self.scores[place]) for place, token in enumerate(self.tokens)]
        return by_size(pd.DataFrame(rows, columns=["position", "token", "score"]), "score")


def relevance(case: Case, token: int, kind: str, job: Job) -> Scores:
    """What the top state at a token owes to each token of the text."""
    case = _own(case)
    with watched(case.model, job, "Forward and backward"):
        one = alone(case)
        passed = gradients(one.model, one.inputs, one.measure, tokenizer=one.tokenizer, text=one.text, kind=kind)
    job.step("Adding up the layers", 0.9)
    found = passed.relevance(token)
    return Scores(found.tokens, found.scores.tolist())


def attribution(case: Case, method: str, job: Job) -> Scores:
    """Integrated gradients or token ablation of the first text."""
    name = NAMES[method]
    progress = counted(job, f"Computing {name}")
    case = _own(case)
    given = (case.model, case.tokenizer, case.inputs, case.measure)
    found = attribute_tokens(*given, text=case.text, method=name, progress=progress)
    return Scores(found.tokens, found.scores.tolist(), found.remark, found.converged)


def one_head(case: Case, layer: int, head: int, how: str, kind: str, job: Job) -> Effect:
    """The number with and without one head."""
    case = _own(case)
    with watched(case.model, job, f"Silencing layer {layer}, head {head}"):
        return ablate(case.model, case.inputs, [(layer, head)], case.measure, how=how, kind=kind)


def each_head(case: Case, how: str, kind: str, job: Job) -> pd.DataFrame:
    """The change each head makes alone, the largest first."""
    progress = counted(job, "Silencing each head")
    case = _own(case)
    return ablate_each(case.model, case.inputs, case.measure, how=how, kind=kind, progress=progress)


def _own(case: Case) -> Case:
    """The case with a model that no other job meets."""
    return replace(case, model=twin(case.model))


def effect_table(head: Head, how: str, effect: Effect) -> pd.DataFrame:
    """One row: the head, and the number with and without it."""
    import pandas as pd

    numbers = {"before": effect.before, "after": effect.after, "change": effect.change}
    return pd.DataFrame([{"heads": f"{head.layer}.{head.head}", "how": how, **numbers}])


def counted(job: Job, stage: str) -> Callable[[int, int], None]:
    """A progress function that moves a job on, and ends it once it is cancelled."""

    def progress(done: int, total: int) -> None:
        job.step(f"{stage}: {done} of {total}", min(done / max(total, 1), 1.0))

    return progress
