"""Does the model need this head? Silence heads and see what happens to its prediction.

python examples/ablate_head.py ["The capital of France is" " Paris"]
"""

import sys

import pandas as pd

import attnviz
from attnviz.analysis.ablation import ablate_each, knock_out
from attnviz.analysis.gradients import gradients
from attnviz.analysis.measures import logit


def main(text: str = "The capital of France is", answer: str = " Paris") -> pd.DataFrame:
    model, tokenizer = attnviz.load_model("smollm2")
    inputs = tokenizer(text, return_tensors="pt")
    measure = logit(tokenizer(answer, add_special_tokens=False)["input_ids"][0])

    # gradients point at candidates in one pass; ablation asks the model about each of them
    likely = gradients(model, inputs, measure).importance().head(8)
    table = ablate_each(model, inputs, measure, heads=zip(likely["layer"], likely["head"], strict=True))
    print(f"Change of the logit of {answer!r} when a head is silenced:")
    print(table.to_string(index=False, float_format="%.3f"))

    count = inputs["input_ids"].shape[1]
    for place in range(1, count - 1):
        cut = knock_out(model, inputs, [count - 1], [place], measure)
        word = tokenizer.decode(inputs["input_ids"][0, place])
        print(f"the last token may not see {word!r}: {cut.change:+.2f}")
    return table


if __name__ == "__main__":
    main(*sys.argv[1:])
