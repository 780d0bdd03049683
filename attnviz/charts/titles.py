"""What figures of analyses are called, on pages and in files alike."""

from __future__ import annotations


def distances(place: tuple[int, int] | None) -> str:
    """Of the distances of every head: from one head (layer, head), or from the same head of another run."""
    start = "Distance of every head from "
    return start + ("the same head of the other run" if place is None else f"layer {place[0]}, head {place[1]}")


def flow(method: str, token: int) -> str:
    """Of what one token's last state is made of, or of where its input ends up."""
    return f"{method.capitalize()} {'from' if method == 'reach' else 'to'} token {token}"


def explained(method: str, about: str) -> str:
    """Of what a number of the output rests on."""
    return f"{method.capitalize()}: {about}"


def silenced(how: str, about: str) -> str:
    """Of what silencing each head alone changes."""
    done = {"zero": "it writes nothing", "mean": "it writes its mean", "keep": "only it writes"}[how]
    return f"Change by head, where {done}: {about}"


def antecedents(kind: str) -> str:
    """Of how many antecedents every head finds among candidates."""
    return f"Antecedents that a head finds among any {kind}"


def answers(layer: int, head: int, direction: str = "") -> str:
    """Of a text with arcs above for the annotation and below for what a head answers."""
    said = f"Above: the annotation. Below: what layer {layer}, head {head} answers"
    return f"{said}, {direction}" if direction else said


def arcs(relation: str, direction: str | None) -> str:
    """Of how many arcs every head finds."""
    return f"Share of {relation} arcs a head finds, {direction or 'in its better direction'}"


def alignment(moment: str) -> str:
    """Of the alignment error rate of every head."""
    return f"Alignment error rate of every head, {moment}"


def head(layer: int, head: int) -> str:
    """Of a figure of one head."""
    return f"Layer {layer}, head {head}"
