"""What must not change a score: the order of tokens where nothing knows it, padding, other sequences beside, the dtype.

Every trace comes from random queries and keys; what is compared is computed twice from the same numbers.
"""

import pytest
import torch
from analysis.random_traces import HEADS, SIZE, WORDS, numbers, tokens_of, trace_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from attnviz.analysis.alignment import Gold, alignment, word_map, words_of
from attnviz.analysis.answers import asked, pointing
from attnviz.analysis.compare import compare_heads, compare_traces, head_distances
from attnviz.analysis.coreference import CANDIDATES, score_window
from attnviz.analysis.dependencies import DIRECTIONS, score_sentence
from attnviz.analysis.documents import Document, document
from attnviz.analysis.flow import flow, reach, received, rollout
from attnviz.analysis.heads import head_rows, heads_table
from attnviz.analysis.norms import norms_table, value_norms
from attnviz.analysis.roles import positional, roles
from attnviz.analysis.sparsity import local, sparsity, top
from attnviz.analysis.windows import Window, owners
from attnviz.tokens import Word, to_words

ORDERLESS = ["entropy", "entropy_normalised", "largest", "special", "punctuation", "sink"]
"""Columns of the heads in which no position occurs."""

seeds = st.integers(0, 10**6)
lengths = st.integers(3, len(WORDS))
examples = settings(max_examples=12, deadline=None)


class Model(nn.Module):
    """Output projections for the norms."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(9)
        self.layers = nn.ModuleList(nn.ModuleDict({"attention": nn.ModuleDict()}) for _ in range(2))
        for layer in self.layers:
            out = nn.Linear(HEADS * SIZE, 5, bias=False)
            out.weight = nn.Parameter(torch.randn(5, HEADS * SIZE, generator=generator))
            layer["attention"]["dense"] = out


def everything(trace):
    """Every score of a trace, as tensors by name."""
    table, places = heads_table(trace), positional(trace)
    found = {f"heads {name}": torch.tensor(table[name].tolist()) for name in table}
    found |= {f"positional {name}": torch.tensor(places[name].tolist()) for name in places}
    found |= {
        f"rows {name}": torch.tensor(head_rows(trace, 1, 0)[name].tolist()) for name in ("entropy", "next", "special")
    }
    found |= {"rollout": rollout(trace, 2).scores, "reach": reach(trace, 1).scores, "flow": flow(trace).scores}
    found["received"] = torch.tensor(received(trace)["received"].tolist())
    found["distances"] = head_distances(trace)[1]
    found["words"] = trace[0, 1].word_weights("whitespace")
    found["norms"] = value_norms(trace, Model(), 1)
    norms = norms_table(trace, Model())
    found |= {f"norms {name}": torch.tensor(norms[name].tolist()) for name in norms}
    sparse = sparsity(trace[1, 1], [local(2), top(2)])
    found |= {f"sparsity {name}": torch.tensor(sparse[name].tolist()) for name in ("mass", "keys", "error")}
    return found


def same(one, other, tolerance=1e-9):
    assert one.keys() == other.keys()
    for name, value in one.items():
        loose = max(tolerance, 1e-5) if value.dtype == torch.float32 else tolerance
        assert_close(value.double(), other[name].double(), atol=loose, rtol=loose, equal_nan=True, msg=name)


@given(seeds, lengths, st.booleans(), st.integers(0, 3), st.integers(0, 3))
@examples
def test_padding_changes_nothing(seed, count, causal, left, right):
    text = numbers(seed, count), tokens_of(count)
    plain, padded = trace_of([text], causal), trace_of([text], causal, left=left, right=right)
    same(everything(plain), everything(padded))
    assert roles(heads_table(plain))["role"].tolist() == roles(heads_table(padded))["role"].tolist()
    assert compare_traces(plain, padded)["distance"].max() < 1e-6


@given(seeds, st.lists(lengths, min_size=2, max_size=3), st.booleans())
@examples
def test_sequences_beside_change_nothing(seed, counts, causal):
    texts = [(numbers(seed + index, count), tokens_of(count)) for index, count in enumerate(counts)]
    batch = trace_of(texts, causal)
    for index, text in enumerate(texts):
        same(everything(batch.sequence(index)), everything(trace_of([text], causal)))


@given(seeds, lengths, st.booleans())
@examples
def test_single_precision_gives_the_same_scores(seed, count, causal):
    text = numbers(seed, count), tokens_of(count)
    single = everything(trace_of([text], causal, torch.float32))
    double = everything(trace_of([text], causal))
    # which offset is best may hang on the last digit
    kept = [name for name in double if not name.startswith("positional")]
    same({name: double[name] for name in kept}, {name: single[name] for name in kept}, tolerance=2e-5)


def shuffled(text, order):
    layers, tokens = text
    moved = [tuple(part[:, order] for part in parts) for parts in layers]
    return moved, tuple(tokens[place] for place in order)


@given(seeds, st.permutations(range(6)))
@examples
def test_order_does_not_matter_where_nothing_knows_it(seed, order):
    text = numbers(seed, 6), tokens_of(6)
    one, other = trace_of([text]), trace_of([shuffled(text, order)])
    table, moved = heads_table(one), heads_table(other)
    for name in ORDERLESS:
        assert moved[name].tolist() == pytest.approx(table[name].tolist(), abs=1e-9), name
    for layer, head in ((0, 1), (1, 0)):
        assert_close(other[layer, head].weights(), one[layer, head].weights()[order][:, order])
        assert_close(other[layer, head].entropy, one[layer, head].entropy[order])
    place = order.index(2)
    assert_close(rollout(other, place).scores, rollout(one, 2).scores[order])
    assert_close(reach(other, place).scores, reach(one, 2).scores[order])
    assert_close(flow(other, place).scores, flow(one, 2).scores[order])
    taken = [torch.tensor(received(trace)["received"].tolist()).reshape(2, 6) for trace in (one, other)]
    assert_close(taken[1], taken[0][:, order])
    assert_close(value_norms(other, Model(), 0), value_norms(one, Model(), 0)[:, order])
    distances = [compare_heads(trace[0, 0], trace[1, 1]).distance for trace in (one, other)]
    assert_close(distances[1], distances[0][order])
    assert_close(head_distances(other)[1], head_distances(one)[1])
    sparse = [sparsity(trace[0, 0], [top(2)]) for trace in (one, other)]
    assert sparse[1]["error"].tolist() == pytest.approx(sparse[0]["error"].tolist(), abs=1e-6)


@given(seeds, st.permutations(range(2, 5)))
@examples
def test_the_order_of_tokens_inside_a_word_does_not_change_the_word(seed, inside):
    weights = torch.rand(6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    order = [0, 1, *inside, 5]
    words = [Word(str(start), start, stop) for start, stop in ((0, 1), (1, 2), (2, 5), (5, 6))]
    whole, moved = to_words(weights, words, words), to_words(weights[order][:, order], words, words)
    assert_close(moved, whole)
    assert_close(whole[:, 2], torch.stack([weights[w.start : w.stop, 2:5].sum(1).mean() for w in words]))


def answers(layers, text, causal, dtype=torch.float64, **padding):
    """Which heads are right for every query of a text between special tokens, by candidate set."""
    tokens = tokens_of(len(text.words) + 2)
    trace = trace_of([(layers, tokens)], causal, dtype, **padding)
    return list(score_window(Window(text, trace, owners(trace.tokens, text))))


CLUSTERS = {"ann": [(0, 1), (4, 5)], "bo": [(2, 3), (7, 8)], "both": [(0, 3, 0), (7, 9, 7)]}


@given(seeds, st.booleans(), st.integers(0, 3), st.integers(0, 2), st.permutations(list(CLUSTERS)))
@examples
def test_antecedents_do_not_depend_on_padding_dtype_or_the_order_of_clusters(seed, causal, left, right, names):
    layers = numbers(seed, len(WORDS) + 2)
    text = document(WORDS, CLUSTERS)
    plain = answers(layers, text, causal)
    assert len(plain) == 3
    others = (
        answers(layers, text, causal, left=left, right=right),
        answers(layers, text, causal, torch.float32),
        answers(layers, document(WORDS, {name: CLUSTERS[name] for name in names}), causal),
    )
    for other in others:
        for one, two in zip(plain, other, strict=True):
            assert one.query == two.query
            assert all((one.hits[kind] == two.hits[kind]).all() for kind in CANDIDATES)
            assert str(one.rules) == str(two.rules)


@given(seeds, st.permutations(range(HEADS)))
@examples
def test_heads_are_scored_one_by_one(seed, order):
    layers = numbers(seed, len(WORDS) + 2)
    text = document(WORDS, CLUSTERS)
    plain = answers(layers, text, False)
    moved = answers([tuple(part[order] for part in parts) for parts in layers], text, False)
    for one, two in zip(plain, moved, strict=True):
        for kind in CANDIDATES:
            assert two.hits[kind].tolist() == one.hits[kind].reshape(2, HEADS)[:, order].flatten().tolist()


SENTENCE = Document(
    "s",
    WORDS,
    ((0, len(WORDS)),),
    heads=(1, 1, 1, 1, 5, 1, 7, 5, 5),
    relations=("nsubj", "root", "obj", "punct", "nsubj", "conj", "punct", "nsubj", "advmod"),
)


def arcs(layers, causal=False, dtype=torch.float64, **padding):
    """Which heads are right for every arc, by direction."""
    trace = trace_of([(layers, tokens_of(len(WORDS) + 2))], causal, dtype, **padding)
    scored = score_sentence(Window(SENTENCE, trace, owners(trace.tokens, SENTENCE)))
    return [(arc, *(right[way].tolist() for way in DIRECTIONS)) for arc, right in scored]


@given(seeds, st.booleans(), st.integers(0, 3), st.integers(0, 2), st.permutations(range(HEADS)))
@examples
def test_dependencies_do_not_depend_on_padding_dtype_or_the_order_of_heads(seed, causal, left, right, order):
    layers = numbers(seed, len(WORDS) + 2)
    plain = arcs(layers, causal)
    assert len(plain) == 6
    assert arcs(layers, causal, left=left, right=right) == plain
    assert arcs(layers, causal, torch.float32) == plain
    moved = arcs([tuple(part[order] for part in parts) for parts in layers], causal)
    for (arc, *one), (other, *two) in zip(plain, moved, strict=True):
        assert other == arc
        for before, after in zip(one, two, strict=True):
            assert after == [before[layer * HEADS + head] for layer in range(2) for head in order]


@given(seeds, st.integers(0, 3), st.integers(0, 2))
@examples
def test_what_heads_answer_does_not_depend_on_padding_or_dtype(seed, left, right):
    text, layers = document(WORDS, CLUSTERS), numbers(seed, len(WORDS) + 2)
    tables = []
    for options in ({}, {"left": left, "right": right}, {"dtype": torch.float32}):
        trace = trace_of([(layers, tokens_of(len(WORDS) + 2))], **options)
        window = Window(text, trace, owners(trace.tokens, text))
        found = [pointing(window, query, "other mention").sort_values(["layer", "head"]) for query in asked(window)]
        tables.append([(one["word"].tolist(), one["on antecedents"].tolist()) for one in found])
    for other in tables[1:]:
        for (words, weights), (again, moved) in zip(tables[0], other, strict=True):
            assert again == words
            assert moved == pytest.approx(weights, abs=1e-5)


@given(seeds, st.integers(0, 3), st.integers(0, 2), st.permutations(range(len(WORDS))))
@examples
def test_alignment_does_not_depend_on_padding_dtype_or_the_order_of_words(seed, left, right, order):
    layers = numbers(seed, len(WORDS) + 2)
    gold = Gold(frozenset({(0, 1), (2, 2), (4, 0)}), frozenset({(3, 5)}))

    def rates(words, gold, **options):
        trace = trace_of([(layers, tokens_of(len(WORDS) + 2))], **options)
        targets, sources = words_of(trace)
        order_of = words or range(len(targets))
        table = alignment(trace, gold, [targets[place] for place in order_of], sources, moment="produced")
        return table.set_index(["layer", "head"]).sort_index()

    plain = rates(None, gold)
    for other in (rates(None, gold, left=left, right=right), rates(None, gold, dtype=torch.float32)):
        assert (other == plain).all().all()
    place = {word: index for index, word in enumerate(order)}
    moved = Gold(
        *(frozenset((place[target], source) for target, source in part) for part in (gold.sure, gold.possible))
    )
    assert (rates(order, moved) == plain).all().all()


@given(seeds)
@examples
def test_word_level_cross_attention_is_the_sum_and_mean_over_tokens(seed):
    trace = trace_of([(numbers(seed, 6), tokens_of(6))])
    words = [Word("one", 1, 3), Word("two", 3, 6)]
    weights = torch.stack([trace[1, head].weights() for head in range(HEADS)])
    found = word_map(trace, 1, words, words, "produced").double()
    wanted = torch.stack(
        [torch.stack([weights[:, r.start : r.stop, c.start : c.stop].sum(2).mean(1) for c in words], 1) for r in words],
        1,
    )
    assert_close(found, wanted, atol=1e-6, rtol=0)
