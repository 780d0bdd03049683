"""The axis letters of every docstring, error and variable.

    B  batch (sequences)        M  query positions, rows        D  head size of query and key
    L  layers                   N  key positions, columns       E  head size of value
    H  query heads              G  key/value heads (H is a multiple of G)

Order is always [B, H, M, N] for maps and [B, H, M, D] for vectors. Layers, heads and positions count from zero.
"""

ORDER = ("batch", "head", "query", "key")
"""The names of a map's axes, in their order."""
