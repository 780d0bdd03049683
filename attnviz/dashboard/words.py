"""What the walkthrough says."""

SCALING = """
#### Why divide by √dₖ?

A head compares a query with every key by their product **q·k**. The sum of dₖ products grows with √dₖ, and softmax
of large numbers is all or nothing: one weight near 1, the rest near 0, and no gradient gets through.

Dividing by √dₖ keeps the scores in the range where softmax still weighs.

- **Move the divisor** to the left and watch the weights collapse onto one token; to the right they become equal.
- **Choose a query** by its number or by a click on the row of tokens; of long texts the largest weights are drawn.
- The orange marks show what the model itself does.
"""

GRADIENTS = """
#### Why large scores stop learning

Learning changes scores through the derivative of softmax, the matrix **diag(p) − ppᵀ**. Its size says how much of a
correction gets through: for a row that puts everything on one token it is 0.

Small divisors leave scores large, the row becomes one-hot, and the curve falls to nothing. Far to the right all weights
are equal: something gets through, but softmax no longer chooses.
"""

MASK = """
#### What a causal mask does

Hiding the keys after the query sets their weights to 0 and shares what they had among the others, in proportion: the
**ratio** of two weights that stay visible does not change. The same scores, without and with the mask:
"""

ORDER = """
#### Does attention know the order of words?

By itself it does not: shuffle the tokens, and the weight between the same two tokens stays what it was. Order comes in
through position information (added to words, or turning queries and keys), or through a causal mask, which lets a token
see other tokens than before. Below, the tokens are shuffled, and the map, put back into the old order, is compared
with the map before; in the real model, *without* tells every token the same position.
"""

HEADS = """
#### Why several heads?

A head makes one distribution over the tokens: to look at two places it must mix them. Several heads look at several
places at once. Here the queries and keys of all heads of the layer are read as **one** head as wide as all of them,
which is dominated by whichever parts are largest. A mask is left out on both sides.
"""

COST = """
#### What a map costs

A map has N × N weights for every head: twice the tokens, four times the memory. At 131,072 tokens one head's map takes
69 billion bytes in single precision.

Tiling never holds it. The rows' log-sum-exp is kept beside query and key, which grows with N, and any tile is computed
anew when somebody looks: **exp(q·k/√dₖ − logsumexp)**. The multiplications stay; what falls away is the memory, and
with it the traffic to and from it.
"""
