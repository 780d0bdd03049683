"""Gradient x attention of SmolLM2 at 512 tokens: attnviz against the model's own eager attention, time and memory.

Each side runs in a process of its own, alternating, after a few tokens that bring the model's weights into memory;
medians of the ratios, and peak resident memory above the model.

    python benchmarks/gradients.py [tokens] [repeats]
"""

import json
import resource
import statistics
import subprocess
import sys
import time

SIDES = ("attnviz", "eager")


def measure(side: str, count: int) -> dict[str, float]:
    """Seconds, processor seconds and peak MiB of one side, and a checksum of gradient x attention over all heads."""
    import torch

    import attnviz
    from attnviz.analysis.gradients import gradients
    from attnviz.analysis.measures import logit

    model, tokenizer = attnviz.load_model("smollm2")
    text = "The keeper wrote down the weather and the gulls. " * (count // 8)
    inputs = {"input_ids": tokenizer(text, return_tensors="pt")["input_ids"][:, :count]}
    with torch.no_grad():
        model(inputs["input_ids"][:, :8])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, busy = time.perf_counter(), time.process_time()
    if side == "attnviz":
        found = gradients(model, inputs, logit(1))
        total = sum(found.received(layer, head).sum().item() for layer in found.trace.layers for head in range(9))
    else:
        model.set_attn_implementation("eager")
        output = model(**inputs, output_attentions=True)
        given = torch.autograd.grad(logit(1)(output), output.attentions)
        total = sum((w * g).sum().item() for w, g in zip(output.attentions, given, strict=True))
    seconds, processor = time.perf_counter() - start, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "processor": processor, "MiB": (peak - before) / 1024, "sum": total}


def main(count: int = 512, repeats: int = 5) -> None:
    """Print medians of both sides, and of the ratios."""
    from rich.console import Console
    from rich.table import Table

    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(repeats):
        for side in SIDES:
            command = [sys.executable, __file__, side, str(count)]
            found[side].append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    table = Table("side", "seconds", "of a processor", "peak MiB above the model", "sum of gradient x attention")
    for side, runs in found.items():
        middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        table.add_row(
            side,
            *(f"{middle[name]:.2f}" for name in ("seconds", "processor")),
            f"{middle['MiB']:.0f}",
            f"{middle['sum']:.4f}",
        )
    console = Console()
    console.print(table)
    for name in ("seconds", "processor", "MiB"):
        ratios = [a[name] / b[name] for a, b in zip(found["attnviz"], found["eager"], strict=True)]
        console.print(f"{name}, attnviz / eager: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in SIDES:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main(*map(int, sys.argv[1:]))
