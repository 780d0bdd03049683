"""Look into a BERT: the table of heads, the strongest links of one, and its map between words instead of tokens.

python examples/inspect_bert.py ["a text of your own"]
"""

import sys

import attnviz

TEXT = "The doctor told her patient that she would call him when the results came back."


def main(text: str = TEXT) -> attnviz.Trace:
    trace = attnviz.inspect("minilm", text)
    heads = trace.heads()
    print("The heads that look most at the previous token:")
    print(heads.sort_values("previous", ascending=False).head(3)[["layer", "head", "previous", "entropy"]].to_string())

    head = trace[2, 4]
    print("\nThe strongest links of layer 2, head 4, [CLS] left out:")
    links = head.links(40)
    print(links[links["to"] != "[CLS]"].head(5).to_string())

    words = head.word_weights()
    print(f"\nBetween words: {words.shape[0]} x {words.shape[1]}; rows still sum to {words.sum(1).mean():.3f}")
    return trace


if __name__ == "__main__":
    main(*sys.argv[1:])
