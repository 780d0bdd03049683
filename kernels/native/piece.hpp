// What one piece of work of the forward pass holds: a tile of queries, what its rows know so far, and working memory.
#pragma once

#include "tile.hpp"

namespace attn::ISA {
namespace {

// What a row knows after some keys, each [L]. Weights so far are exp(score - top); sums are of those.
struct State {
    float *top, *sum, *heat, *distance, *best, *own, *previous, *first, *output;  // output [E, L]
};
constexpr int kRowsOfState = 8;

// Sums of weights over blocks of keys, [C, L], each relative to the `top` of when it was last touched, [C, L].
struct Blocks {
    float *sum, *top;
};

struct Piece {
    Queries queries;
    State state;
    Blocks blocks;
    Buffers buffers;
    float* scores;      // [T, L]; weights after softmax()
    float* keep;        // [L]: what an older sum is worth after the maximum rose
    float* log_sum;     // [L]
    float* peak;        // [L]: the largest score at the end, the sink left out
    float* share;       // [L]: 1 / sum at the end, 0 where a row saw nothing
};

int64_t state_floats(const Call& call) { return (kRowsOfState + call.E) * L; }

int64_t widest(const Call& call) {
    const int64_t head = call.D > call.E ? call.D : call.E;
    return head > T ? head : T;
}

int64_t scratch_floats(const Call& call, const Forward& out) {
    return state_floats(call) + call.D * L + T * L * 2 + T * (call.D + call.E) + widest(call) * L + 4 * L +
           (out.pooled ? 2 * out.C * L : 0) + 16;
}

float* take(float*& memory, int64_t floats) {
    float* taken = memory;
    memory += floats;
    return taken;
}

State state_at(float* memory) {
    State s;
    float** const rows[] = {&s.top, &s.sum, &s.heat, &s.distance, &s.best, &s.own, &s.previous, &s.first};
    for (float** row : rows) *row = take(memory, L);
    s.output = memory;
    return s;
}

void layout(const Call& call, const Forward& out, Piece& p, float* memory) {
    p.state = state_at(take(memory, state_floats(call)));
    p.queries.packed = take(memory, call.D * L);
    p.scores = take(memory, T * L);
    p.buffers.extra = take(memory, T * L);
    p.keep = take(memory, L);
    p.log_sum = take(memory, L);
    p.peak = take(memory, L);
    p.share = take(memory, L);
    p.buffers.rows = take(memory, widest(call) * L);
    p.blocks.sum = take(memory, out.pooled ? out.C * L : 0);
    p.blocks.top = take(memory, out.pooled ? out.C * L : 0);
    p.buffers.keys = take(memory, T * call.D);
    p.buffers.values = memory;
}

void fill(float* at, int64_t floats, float value) {
    for (int64_t i = 0; i < floats; ++i) at[i] = value;
}

void clear(const Call& call, State& s) {
    fill(s.top, L, -INFINITY);
    fill(s.sum, 4 * L, 0);        // sum, heat, distance, best
    fill(s.own, 3 * L, -INFINITY);  // own, previous, first
    fill(s.output, call.E * L, 0);
}

// An axis cut into blocks: block k begins at k * length / blocks, rounded down.
struct Edges {
    int64_t length, blocks;
};

int64_t begin_of(int64_t block, const Edges& e) { return block * e.length / e.blocks; }

int64_t block_of(int64_t position, const Edges& e) { return ((position + 1) * e.blocks - 1) / e.length; }

}  // namespace
}  // namespace attn::ISA
