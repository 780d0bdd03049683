"""Rollout of SmolLM2 to one token: peak memory above the model's plain pass, and the dense product at 256 tokens.

Each side runs in a process of its own; peak resident memory is above the loaded model. The bound is 1,024 MiB more than
the plain pass. The dense product multiplies the model's own eager weights in float64.

    python benchmarks/rollout.py [tokens]
"""

import json
import resource
import subprocess
import sys
import time
from typing import Any

SIDES = ("plain", "rollout", "dense")
SENTENCE = "The keeper wrote down the weather, the ships and the gulls, and he read it to her at night. "
BOUND = 1024


def peak() -> float:
    """Peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def dense(model: Any, inputs: Any) -> Any:
    """[N]: the last row of the product of all layers, mean over heads mixed half and half with the identity."""
    import torch

    model.set_attn_implementation("eager")
    layers = model(**inputs, output_attentions=True).attentions
    one = torch.eye(layers[0].shape[-1], dtype=torch.float64)
    total = one
    for weights in layers:
        total = (0.5 * one + 0.5 * weights[0].double().mean(0)) @ total
    return total[-1]


def measure(side: str, count: int) -> dict[str, float]:
    """Seconds and peak MiB above the loaded model; for "dense" the largest difference from the rollout."""
    import torch

    import attnviz
    from attnviz.analysis.flow import rollout

    model, tokenizer = attnviz.load_model("smollm2")
    text = SENTENCE * (count // 10)
    inputs = {"input_ids": tokenizer(text, return_tensors="pt")["input_ids"][:, :count]}
    before, start, difference = peak(), time.perf_counter(), float("nan")
    with torch.inference_mode():
        if side == "plain":
            model(**inputs)
        else:
            with attnviz.record(model, tokenizer=tokenizer) as trace:
                model(**inputs)
            scores = rollout(trace, -1).scores
    found = {"seconds": time.perf_counter() - start, "MiB": peak() - before}
    if side == "dense":
        with torch.inference_mode():
            difference = (dense(model, inputs) - scores).abs().max().item()
    return {**found, "difference": difference}


def run(side: str, count: int) -> dict[str, float]:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, side, str(count)]
    found: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def main(count: int = 4096) -> None:
    """Print both sides, the memory between them, and the difference from the dense product."""
    from rich.console import Console
    from rich.table import Table

    plain, ours, checked = run("plain", count), run("rollout", count), run("dense", 256)
    table = Table("side", "seconds", "peak MiB above the model", title=f"SmolLM2, {count:,} tokens")
    table.add_row("plain pass", f"{plain['seconds']:.1f}", f"{plain['MiB']:.0f}")
    table.add_row("recorded, rollout to the last token", f"{ours['seconds']:.1f}", f"{ours['MiB']:.0f}")
    console = Console()
    console.print(table)
    console.print(f"above the plain pass: {ours['MiB'] - plain['MiB']:.0f} MiB (bound {BOUND})")
    console.print(f"largest difference from the dense product at 256 tokens: {checked['difference']:.1e} (bound 1e-5)")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in SIDES:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main(*map(int, sys.argv[1:]))
