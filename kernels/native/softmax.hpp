// Online softmax over a tile of scores, with what the statistics and the blocks of the pooled map need.
#pragma once

#include "piece.hpp"

namespace attn::ISA {
namespace {

// -inf - -inf would be NaN; no finite score is lower.
V difference(V a, V b) { return greater_of(set(-1e30f), sub(a, b)); }

// A row that has seen nothing has top -inf; exponents are then taken relative to 0.
V finite(V top) { return select(equal(top, set(-INFINITY)), set(0), top); }

// Keeps the scores of each row's own, previous and first key that are among the span's.
void note_places(const Call& call, const Queries& q, const Span& s, int64_t from, int64_t first, const float* scores,
                 State& state) {
    const bool near = s.begin <= q.row[q.count - 1] + call.offset && s.end > q.row[0] + call.offset - 1;
    if (!near && (first < s.begin || first >= s.end)) return;
    for (int64_t l = s.vector * W; l < (s.vector + s.vectors) * W; ++l) {
        const int64_t p = q.row[l] + call.offset;
        if (s.begin <= p && p < s.end) state.own[l] = scores[(p - from) * L + l];
        if (s.begin <= p - 1 && p - 1 < s.end) state.previous[l] = scores[(p - 1 - from) * L + l];
        if (s.begin <= first && first < s.end) state.first[l] = scores[(first - from) * L + l];
    }
}

// The first key of each row's maximum, and the maximum.
template <int NV, bool Statistics>
INLINE void raise_top(const float* scores, int64_t from, int64_t begin, int64_t end, V* top, float* best) {
    V key[NV];
    if (Statistics) UNROLL for (int v = 0; v < NV; ++v) key[v] = load(best + v * W);
    for (int64_t j = begin; j < end; ++j) {
        const V index = set(static_cast<float>(j));
        UNROLL for (int v = 0; v < NV; ++v) {
            const V score = load(scores + (j - from) * L + v * W);
            if (Statistics) key[v] = select(less(top[v], score), index, key[v]);
            top[v] = greater_of(top[v], score);
        }
    }
    if (Statistics) UNROLL for (int v = 0; v < NV; ++v) store(best + v * W, key[v]);
}

// Of some keys: their weights, weight * (score - top) and weight * distance, added up.
template <int NV>
struct Sums {
    V weight[NV], heat[NV], distance[NV];
    Sums() {
        UNROLL for (int v = 0; v < NV; ++v) weight[v] = heat[v] = distance[v] = set(0);
    }
    void add_all(const Sums& more) {
        UNROLL for (int v = 0; v < NV; ++v) {
            weight[v] = add(weight[v], more.weight[v]);
            heat[v] = add(heat[v], more.heat[v]);
            distance[v] = add(distance[v], more.distance[v]);
        }
    }
};

// Scores of keys [begin, end) become exp(score - top); adds up them and what the statistics need.
template <int NV, bool Statistics>
INLINE Sums<NV> weigh(float* scores, int64_t from, int64_t begin, int64_t end, const V* top, const float* position) {
    Sums<NV> sums;
    for (int64_t j = begin; j < end; ++j) {
        const V key = set(static_cast<float>(j));
        UNROLL for (int v = 0; v < NV; ++v) {
            float* at = scores + (j - from) * L + v * W;
            V below = sub(load(at), top[v]);
            if (Statistics) below = greater_of(set(-100.0f), below);  // so that 0 * -inf does not arise
            const V weight = exponential(below);
            store(at, weight);
            sums.weight[v] = add(sums.weight[v], weight);
            if (Statistics) {
                sums.heat[v] = fma(weight, below, sums.heat[v]);
                sums.distance[v] = fma(weight, magnitude(sub(load(position + v * W), key)), sums.distance[v]);
            }
        }
    }
    return sums;
}

// Adds the sum over the part of one block of keys that was just seen; `fresh` if no part of it was seen before.
template <int NV>
INLINE void add_block(const Blocks& blocks, int64_t block, bool fresh, int lane, const V* top, const V* sum) {
    UNROLL for (int v = 0; v < NV; ++v) {
        float* total = blocks.sum + block * L + lane + v * W;
        float* then = blocks.top + block * L + lane + v * W;
        const V kept = fresh ? set(0) : mul(load(total), exponential(sub(load(then), top[v])));
        store(total, add(kept, sum[v]));
        store(then, top[v]);
    }
}

constexpr int64_t kRun = 16;  // keys whose weights are added up before they join a sum: shorter sums round less

template <int NV, bool Statistics>
void softmax_lanes(const Call& call, const Forward& out, Piece& p, int64_t from, int64_t begin, int64_t end, int lane) {
    State& s = p.state;
    float* scores = p.scores + lane;
    const float* position = p.queries.position + lane;
    V top[NV], base[NV];
    UNROLL for (int v = 0; v < NV; ++v) top[v] = load(s.top + lane + v * W);
    raise_top<NV, Statistics>(scores, from, begin, end, top, s.best + lane);
    UNROLL for (int v = 0; v < NV; ++v) base[v] = finite(top[v]);
    Sums<NV> sums;
    const Edges edges{call.N, out.pooled ? out.C : 1};
    int64_t block = block_of(begin, edges), start = begin_of(block, edges);
    for (int64_t j = begin; j < end; ++block) {
        const int64_t edge = begin_of(block + 1, edges), last = edge < end ? edge : end;
        Sums<NV> part;
        for (; j < last; j += kRun)
            part.add_all(weigh<NV, Statistics>(scores, from, j, last - j < kRun ? last : j + kRun, base, position));
        if (out.pooled) add_block<NV>(p.blocks, block, start >= begin, lane, base, part.weight);
        sums.add_all(part);
        j = start = last;
    }
    UNROLL for (int v = 0; v < NV; ++v) {
        const int at = lane + v * W;
        const V rise = difference(load(s.top + at), base[v]), keep = exponential(rise), old = load(s.sum + at);
        store(p.keep + at, keep);
        store(s.top + at, top[v]);
        store(s.heat + at, fma(keep, fma(rise, old, load(s.heat + at)), sums.heat[v]));
        store(s.distance + at, fma(keep, load(s.distance + at), sums.distance[v]));
        store(s.sum + at, fma(keep, old, sums.weight[v]));
    }
}

template <bool Statistics>
void softmax(const Call& call, const Forward& out, Piece& p, int64_t from, const Span& s) {
    int v = s.vector;
    for (; v + 2 <= s.vector + s.vectors; v += 2)
        softmax_lanes<2, Statistics>(call, out, p, from, s.begin, s.end, v * W);
    if (v < s.vector + s.vectors) softmax_lanes<1, Statistics>(call, out, p, from, s.begin, s.end, v * W);
}

}  // namespace
}  // namespace attn::ISA
