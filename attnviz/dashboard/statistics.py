"""The numbers a grid of heads can be coloured by, in words."""

STATISTICS = {
    "entropy": ("Entropy", "How broadly the head looks, in nats: 0 is one token only."),
    "entropy_normalised": ("Normalised entropy", "Entropy divided by ln(visible keys): 1 is uniform attention."),
    "largest": ("Largest weight", "Mean weight of the token each query looks at most."),
    "distance": ("Distance", "Mean distance to what is looked at, in tokens."),
    "own": ("Own token", "Mean weight of each query on itself."),
    "previous": ("Previous token", "Mean weight on the token before."),
    "next": ("Next token", "Mean weight on the token after."),
    "first": ("First token", "Mean weight on the first token."),
    "special": ("Special tokens", "Mean weight on tokens such as [CLS] and [SEP]."),
    "punctuation": ("Punctuation", "Mean weight on punctuation marks."),
    "prefix_matching": (
        "Induction",
        "Weight on what followed earlier copies of a token, on random tokens that repeat.",
    ),
    "duplicate": ("Earlier copies", "Weight on earlier copies of a token, on random tokens that repeat."),
    "sink": ("Sink", "Mean weight on a learned sink, which is no token; most models have none."),
}
"""By the name of the column in `Trace.heads()` or `prefix_matching`: title, and one sentence."""

PROBED = ("prefix_matching", "duplicate")
"""Those that take running the model on other texts."""


def title(column: str) -> str:
    """What people read for a column."""
    return STATISTICS[column][0]
