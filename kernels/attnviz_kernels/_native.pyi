from typing import Any

Described = tuple[int, int, int, int, int, int]

class Call:
    B: int
    H: int
    G: int
    M: int
    N: int
    D: int
    E: int
    scale: float
    softcap: float
    causal: bool
    offset: int
    left: int
    right: int
    chunk: int
    query: Any
    key: Any
    value: Any
    bias: Any
    dense: Any
    padding: Any
    query_segment: Any
    key_segment: Any
    sinks: int

class Forward:
    R: int
    C: int
    chosen: int
    row_begin: int
    row_end: int
    output: Any
    logsumexp: int
    statistics: int
    largest_key: int
    pooled: int
    weights: int
    slot: int

class Backward:
    output: Any
    output_gradient: Any
    logsumexp: Any
    query: Any
    key: Any
    value: Any
    delta: int

class View:
    row_begin: int
    row_end: int
    col_begin: int
    col_end: int
    width: int
    R: int
    C: int
    largest: bool
    logsumexp: Any
    vector: Any
    out: int

TILE: int
POOL: int
PUSH: int
PULL: int
RECEIVED: int

def isas() -> list[str]: ...
def forward(isa: str, threads: int, call: Call, out: Forward) -> None: ...
def backward(isa: str, threads: int, call: Call, out: Backward) -> None: ...
def view(isa: str, threads: int, kind: int, call: Call, view: View) -> None: ...
