// The scores that a tile of queries has with a tile of keys: product, soft cap, bias, mask.
#pragma once

#include "queries.hpp"

namespace attn::ISA {

// Working memory of score(): one set for each thread.
struct Buffers {
    float *keys, *values;       // [T, D], [T, E]: converted, where they cannot be read in place
    float *rows, *extra;        // [L, max(T, D, E)] and [T, L]
    float* capped = nullptr;    // [T, L]: scores after the soft cap and before everything else, where they are wanted
};

INLINE bool is_padding(const Call& call, int64_t batch, int64_t key) { return !*at(call.padding, batch, key, 0, 0); }

INLINE float segment_of_key(const Call& call, int64_t batch, int64_t key) {
    return *reinterpret_cast<const float*>(at(call.key_segment, batch, key, 0, 0));
}

// Whether padding or segments hide the whole tile.
static bool hidden(const Call& call, const Queries& q, int64_t from, int64_t size) {
    bool padded = call.padding.data != nullptr;
    for (int64_t j = from; padded && j < from + size; ++j) padded = is_padding(call, q.batch, j);
    if (padded || !call.key_segment.data) return padded;
    float least = INFINITY, most = -INFINITY;
    for (int64_t j = from; j < from + size; ++j) {
        least = lower(least, segment_of_key(call, q.batch, j));
        most = higher(most, segment_of_key(call, q.batch, j));
    }
    return least > q.segment_max || most < q.segment_min;
}

// From here down a float mask hides: half of its type's lowest number (for float64 that is -inf as float32).
INLINE float hiding(int type) {
    if (type == kFloat16) return -32752.0f;
    if (type == kBfloat16) return from_bits(0xfeff0000u);
    return type == kFloat32 ? -0x1.fffffep126f : -INFINITY;
}

// The smallest and largest number of a tile of a bias or dense mask.
struct Extent {
    V least = set(INFINITY), most = set(-INFINITY);
};

// Makes numbers below `limit` -inf in a row [T] of which `size` are used.
INLINE void tidy(float* row, int64_t size, V limit, Extent& extent) {
    for (int64_t j = size; j % W; ++j) row[j] = row[size - 1];
    for (int64_t j = 0; j < size; j += W) {
        const V raw = load(row + j), tidied = select(less(raw, limit), set(-INFINITY), raw);
        store(row + j, tidied);
        extent.least = lesser_of(extent.least, tidied);
        extent.most = greater_of(extent.most, tidied);
    }
}

INLINE bool all(V values, float one) {
    float each[W];
    store(each, values);
    for (float value : each)
        if (value != one) return false;
    return true;
}

enum Extra { kNothing, kEverything, kSome };

// Reads a tile of a bias or dense mask into buffers.extra, [T, L]; says whether it adds nothing or hides everything.
static Extra read_extra(const Tensor& t, bool mask, const Queries& q, int64_t from, int64_t size, Buffers& buffers) {
    Extent extent;
    const V limit = set(mask ? nextafterf(hiding(t.type), 0) : -INFINITY);
    const int64_t lanes = q.vectors * W;
    const bool same = t.stride[2] == 0 && (t.stride[1] == 0 || q.head[0] == q.head[q.count - 1]);
    for (int64_t l = 0; l < (same ? 1 : lanes); ++l) {
        float* row = buffers.rows + l * T;
        read(at(t, q.batch, q.head[l], q.row[l], from), t.type, t.stride[3], size, row);
        tidy(row, size, limit, extent);
    }
    if (all(extent.least, 0) && all(extent.most, 0)) return kNothing;
    if (all(extent.most, -INFINITY)) return kEverything;
    if (!same) transpose(buffers.rows, T, lanes, size, buffers.extra, L);
    for (int64_t j = 0; same && j < size; ++j)
        for (int v = 0; v < q.vectors; ++v) store(buffers.extra + j * L + v * W, set(buffers.rows[j]));
    return kSome;
}

// -inf hides whatever the score is, NaN included.
static void add_extra(const float* extra, int64_t from, const Span* spans, int count, float* scores) {
    for (const Span* s = spans; s < spans + count; ++s)
        for (int64_t j = s->begin - from; j < s->end - from; ++j)
            for (int v = s->vector; v < s->vector + s->vectors; ++v) {
                float* score = scores + j * L + v * W;
                const V more = load(extra + j * L + v * W);
                store(score, select(equal(more, set(-INFINITY)), more, add(load(score), more)));
            }
}

static void soften(float cap, int64_t from, const Span& s, float* scores) {
    const V limit = set(cap);
    for (int64_t j = s.begin - from; j < s.end - from; ++j)
        for (int v = s.vector; v < s.vector + s.vectors; ++v) {
            float* score = scores + j * L + v * W;
            store(score, mul(limit, tanh_of(divide(load(score), limit))));
        }
}

// Hides what causality, window, chunk and segments hide inside a span, and padded keys.
static void hide(const Call& call, const Queries& q, int64_t from, const Span& s, float* scores) {
    bool cut = false;
    for (int v = s.vector; v < s.vector + s.vectors; v += kSpan)
        cut = cut || q.low_all[v / kSpan] > static_cast<float>(s.begin) || q.high_all[v / kSpan] < static_cast<float>(s.end);
    if (!cut && !call.padding.data && !call.key_segment.data) return;
    const V none = set(-INFINITY);
    for (int64_t j = s.begin; j < s.end; ++j) {
        const bool padded = call.padding.data && is_padding(call, q.batch, j);
        const V key = set(static_cast<float>(j)), past = set(static_cast<float>(j + 1));
        const V segment = set(call.key_segment.data ? segment_of_key(call, q.batch, j) : 0);
        for (int v = s.vector; v < s.vector + s.vectors; ++v) {
            float* score = scores + (j - from) * L + v * W;
            V seen = padded ? none : load(score);
            seen = select(less(key, load(q.low + v * W)), none, seen);
            seen = select(less(load(q.high + v * W), past), none, seen);
            store(score, select(equal(segment, load(q.segment + v * W)), seen, none));
        }
    }
}

// Scores of the tile's queries with keys [from, from + size), masked, into scores [T, L]; only the spans returned are
// written. 0 spans: no query of the tile sees any of these keys.
static int score(const Call& call, const Queries& q, int64_t from, int64_t size, Buffers& buffers, float* scores,
                 Span* spans) {
    const int count = spans_of(q, from, size, spans);
    if (count == 0 || hidden(call, q, from, size)) return 0;
    // before the product, because a dense mask often hides whole tiles
    const Extra dense = call.dense.data ? read_extra(call.dense, true, q, from, size, buffers) : kNothing;
    if (dense == kEverything) return 0;
    int64_t stride;
    const float* keys = rows_of(call.key, q, from, size, call.D, buffers.keys, stride);
    for (const Span* s = spans; s < spans + count; ++s) {
        const int64_t j = s->begin - from;
        const int lane = s->vector * W;
        product<false>(s->vectors, s->end - s->begin, keys + j * stride, stride, q.packed + lane, call.D,
                       scores + j * L + lane, nullptr);
        if (call.softcap > 0) soften(call.softcap, from, *s, scores);
        if (buffers.capped) memcpy(buffers.capped + j * L, scores + j * L, static_cast<size_t>((s->end - s->begin) * L) * 4);
    }
    if (dense == kSome) add_extra(buffers.extra, from, spans, count, scores);
    if (call.bias.data && read_extra(call.bias, false, q, from, size, buffers) != kNothing)
        add_extra(buffers.extra, from, spans, count, scores);
    for (const Span* s = spans; s < spans + count; ++s) hide(call, q, from, *s, scores);
    return count;
}

}  // namespace attn::ISA
