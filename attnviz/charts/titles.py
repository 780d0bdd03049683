"""What figures of analyses are called, on pages and in files alike, and of which model and text they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from ..tokens import printable
from .labels import short

if TYPE_CHECKING:
    from ..head import Head

Title: TypeAlias = str | dict[str, str]
"""Text, or text and subtitle."""
TEXT = 60
"""Characters of a text that a subtitle shows."""


def source(model: str, *texts: str | None) -> str:
    """A model and the texts it read, shortened; texts that are not known are left out.

    >>> source("minilm", "The bank.", None)
    'minilm · “The bank.”'
    """
    known = [text for text in texts if text]
    shown = [quoted(text, TEXT // len(known)) for text in known]
    return " · ".join([_line(model), *([" and ".join(shown)] if shown else [])])


def quoted(text: str, limit: int = TEXT) -> str:
    """The beginning of a text in quotation marks."""
    return f"“{short(_line(text), limit)}”"


def both(one: Head, other: Head) -> str:
    """The models and texts of two heads, each once."""
    models, texts = _once(one.model, other.model), _once(one.row_axis.text, other.row_axis.text)
    return source(" and ".join(models), *texts)


def distances(place: tuple[int, int] | None, pairs: Sequence[tuple[Head, Head]]) -> dict[str, str]:
    """Of the distances of every head: from one head (layer, head), or from the same head of another run."""
    end = "the same head of the other run" if place is None else f"layer {place[0]}, head {place[1]}"
    return {"text": f"Distance of every head from {end}", **({"subtitle": both(*pairs[0])} if pairs else {})}


def difference(one: Head, other: Head) -> dict[str, str]:
    """Of one map less another: by what differs, the text, the model or the head."""
    places = [f"layer {found.layer}, head {found.head}" for found in (one, other)]
    subtitle = " · ".join(dict.fromkeys([both(one, other), *filter(None, (other.altered, one.altered))]))
    if places[0] != places[1]:
        return {"text": f"{places[1].capitalize()} less {places[0]}", "subtitle": subtitle}
    models, texts = _once(one.model, other.model), _once(one.row_axis.text, other.row_axis.text)
    names = [_line(model) for model in models] if len(models) == 2 else [quoted(text, TEXT // 2) for text in texts]
    told = len(set(names)) == 2
    less = f"{names[1]} less {names[0]}" if told else "the second less the first"
    return {"text": f"{places[0].capitalize()}: {less}", "subtitle": subtitle}


def flow(method: str, token: int, of: str) -> dict[str, str]:
    """Of what one token's last state is made of, or of where its input ends up."""
    return {
        "text": f"{method.capitalize()} {'from' if method == 'reach' else 'to'} token {token}",
        "subtitle": of,
    }


def explained(method: str, about: str, of: str) -> dict[str, str]:
    """Of what a number of the output rests on."""
    return {"text": f"{method.capitalize()}: {about}", "subtitle": of}


def silenced(how: str, about: str, of: str) -> dict[str, str]:
    """Of what silencing each head alone changes."""
    done = {"zero": "it writes nothing", "mean": "it writes its mean", "keep": "only it writes"}[how]
    return {"text": f"Change by head, where {done}: {about}", "subtitle": of}


def antecedents(kind: str, model: str) -> dict[str, str]:
    """Of how many antecedents every head finds among candidates."""
    return {"text": f"Antecedents that a head finds among any {kind}", "subtitle": source(model)}


def answers(layer: int, head: int, model: str, direction: str = "") -> dict[str, str]:
    """Of a text with arcs above for the annotation and below for what a head answers."""
    said = f"Above: the annotation. Below: what layer {layer}, head {head} answers"
    return {"text": f"{said}, {direction}" if direction else said, "subtitle": source(model)}


def arcs(relation: str, direction: str | None, model: str) -> dict[str, str]:
    """Of how many arcs every head finds."""
    text = f"Share of {relation} arcs a head finds, {direction or 'in its better direction'}"
    return {"text": text, "subtitle": source(model)}


def alignment(moment: str, of: str) -> dict[str, str]:
    """Of the alignment error rate of every head."""
    return {"text": f"Alignment error rate of every head, {moment}", "subtitle": of}


def head(layer: int, head: int, of: str) -> dict[str, str]:
    """Of a figure of one head."""
    return {"text": f"Layer {layer}, head {head}", "subtitle": of}


def _line(text: str) -> str:
    """The text in one line, its spaces left as they are."""
    return " ".join(map(printable, text.split()))


def _once(*names: str | None) -> list[str]:
    """The names that there are, each once."""
    return [name for name in dict.fromkeys(names) if name]
