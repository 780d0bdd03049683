"""A decoder on thousands of tokens: every head's statistics, one head's map in blocks, and a corner of it exactly.

No N x N matrix is made: at 4,096 tokens the 270 maps would take 18 GB. About half a minute on two cores.

    python examples/long_text.py [tokens]
"""

import sys

import torch

import attnviz

SENTENCE = "The lighthouse keeper wrote down the weather, and on evening {} he saw {} gulls on the wall. "


def text_of(tokenizer, count: int) -> torch.Tensor:
    """[1, count]: ids of a text that long."""
    text = "".join(SENTENCE.format(day, day * 7 % 23) for day in range(count // 10))
    return tokenizer(text, return_tensors="pt")["input_ids"][:, :count]


def main(count: int = 4096) -> attnviz.Trace:
    model, tokenizer = attnviz.load_model("smollm2")
    with torch.inference_mode(), attnviz.record(model, tokenizer=tokenizer) as trace:
        model(text_of(tokenizer, count), logits_to_keep=1)
    heads = trace.heads()
    print(f"{len(trace.tokens):,} tokens; mean weight on the first token, over all heads: {heads['first'].mean():.2f}")

    broadest = heads.sort_values("entropy", ascending=False).iloc[0]
    head = trace[int(broadest["layer"]), int(broadest["head"])]
    print(f"the broadest head is layer {head.layer} head {head.head}, entropy {broadest['entropy']:.2f} nats")
    print("its map in 4 x 4 blocks of mean weight times the keys of a block:")
    print(head.pooled((4, 4)) * count / 4)
    corner = head.weights(rows=slice(count - 2, count), cols=slice(count - 6, count))
    print("the last two queries on the last six keys, exactly:")
    print(corner)
    return trace


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
