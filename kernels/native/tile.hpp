// A tile of queries, and the scores it has with a tile of keys. See micro.hpp for the layout.
#pragma once

#include "micro.hpp"

namespace attn::ISA {

constexpr int kSpan = 2;  // vectors of lanes that share one range of keys where the mask cuts through a tile
constexpr int kSpans = L / W / kSpan;

// Vectors [vector, vector + vectors) of a tile may see keys [begin, end) of it, and none beside.
struct Span {
    int vector, vectors;
    int64_t begin, end;
};

struct Queries {
    int64_t batch, group;
    int64_t count;                 // lanes in use; the others repeat lane 0
    int vectors;                   // vectors in use
    int64_t head[L], row[L];
    alignas(64) float position[L];
    alignas(64) float low[L], high[L];  // keys that causal, window and chunk leave visible: low <= j < high
    alignas(64) float segment[L];
    float lowest[kSpans], low_all[kSpans], high_all[kSpans], highest[kSpans];  // over the lanes of a span
    float segment_min, segment_max;
    int64_t key_begin, key_end;    // keys that any lane sees
    float* packed;                 // [D, L]: scale * query
};

// Working memory of score(): one set for each thread.
struct Buffers {
    float *keys, *values;       // [T, D], [T, E]: converted, where they cannot be read in place
    float *rows, *extra;        // [L, max(T, D, E)] and [T, L]
    float* capped = nullptr;    // [T, L]: scores after the soft cap and before everything else, where they are wanted
};

INLINE float lower(float a, float b) { return a < b ? a : b; }
INLINE float higher(float a, float b) { return a > b ? a : b; }

// Keys that query position p may see by causality, window and chunk.
INLINE void key_range(const Call& call, int64_t p, float& low, float& high) {
    int64_t begin = 0, end = call.N;
    if (call.causal && p + 1 < end) end = p + 1;
    if (call.left >= 0 && p - call.left > begin) begin = p - call.left;
    if (call.right >= 0 && p + call.right + 1 < end) end = p + call.right + 1;
    if (call.chunk > 0) {
        const int64_t from = p / call.chunk * call.chunk;
        if (from > begin) begin = from;
        if (from + call.chunk < end) end = from + call.chunk;
    }
    if (begin > end) begin = end;
    low = static_cast<float>(begin);
    high = static_cast<float>(end);
}

static void describe_ranges(Queries& q) {
    float begin = INFINITY, end = 0;
    for (int s = 0; s < kSpans; ++s) {
        q.lowest[s] = q.high_all[s] = INFINITY;
        q.low_all[s] = q.highest[s] = -INFINITY;
        for (int l = s * kSpan * W; l < (s + 1) * kSpan * W; ++l) {
            q.lowest[s] = lower(q.lowest[s], q.low[l]);
            q.low_all[s] = higher(q.low_all[s], q.low[l]);
            q.high_all[s] = lower(q.high_all[s], q.high[l]);
            q.highest[s] = higher(q.highest[s], q.high[l]);
        }
        begin = lower(begin, q.lowest[s]);
        end = higher(end, q.highest[s]);
    }
    q.key_begin = static_cast<int64_t>(begin);
    q.key_end = static_cast<int64_t>(end);
}

static void pack_queries(const Call& call, Queries& q, float* rows) {
    for (int64_t l = 0; l < q.vectors * W; ++l) {
        const Tensor& t = call.query;
        float* row = rows + l * call.D;
        read(at(t, q.batch, q.head[l], q.row[l], 0), t.type, t.stride[3], call.D, row);
        for (int64_t d = 0; d < call.D; ++d) row[d] *= call.scale;
    }
    transpose(rows, call.D, q.vectors * W, call.D, q.packed, L);
}

// Lane l holds row row_begin + l % rows of head head_begin + l / rows.
static void describe_queries(const Call& call, int64_t batch, int64_t head_begin, int64_t heads, int64_t row_begin,
                             int64_t rows, Queries& q) {
    q.batch = batch;
    q.group = head_begin / (call.H / call.G);
    q.count = heads * rows;
    q.vectors = static_cast<int>((q.count + W - 1) / W);
    q.segment_min = INFINITY;
    q.segment_max = -INFINITY;
    for (int64_t l = 0; l < L; ++l) {
        const int64_t used = l < q.count ? l : 0;
        q.head[l] = head_begin + used / rows;
        q.row[l] = row_begin + used % rows;
        const int64_t p = q.row[l] + call.offset;
        q.position[l] = static_cast<float>(p);
        key_range(call, p, q.low[l], q.high[l]);
        q.segment[l] = 0;
        if (call.query_segment.data)
            q.segment[l] = *reinterpret_cast<const float*>(at(call.query_segment, batch, q.row[l], 0, 0));
        q.segment_min = lower(q.segment_min, q.segment[l]);
        q.segment_max = higher(q.segment_max, q.segment[l]);
    }
    describe_ranges(q);
}

// Which lanes need which keys of the tile [from, from + size), after the mask's structure alone.
static int spans_of(const Queries& q, int64_t from, int64_t size, Span* spans) {
    const float begin = static_cast<float>(from), end = static_cast<float>(from + size);
    bool whole = true;
    int count = 0;
    for (int s = 0; s * kSpan < q.vectors; ++s) whole = whole && q.low_all[s] <= begin && q.high_all[s] >= end;
    const int width = whole ? kVectors : kSpan;
    for (int v = 0; v < q.vectors; v += width) {
        Span span{v, q.vectors - v < width ? q.vectors - v : width, from, from + size};
        if (!whole) {
            span.begin = static_cast<int64_t>(higher(begin, q.lowest[v / kSpan]));
            span.end = static_cast<int64_t>(lower(end, q.highest[v / kSpan]));
        }
        if (span.begin < span.end) spans[count++] = span;
    }
    return count;
}

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

// Rows [from, from + size) of key or value as float32: in place where they lie so, else converted into `buffer`.
INLINE const float* rows_of(const Tensor& t, const Queries& q, int64_t from, int64_t size, int64_t width, float* buffer,
                            int64_t& stride) {
    stride = t.stride[2];
    // rows that far apart share a few cache sets and push each other out before the next pass over them
    const bool crowded = q.vectors > kVectors && stride % 512 == 0;
    if (t.type == kFloat32 && t.stride[3] == 1 && !crowded) return reinterpret_cast<const float*>(at(t, q.batch, q.group, from, 0));
    stride = width;
    for (int64_t j = 0; j < size; ++j)
        read(at(t, q.batch, q.group, from + j, 0), t.type, t.stride[3], width, buffer + j * width);
    return buffer;
}

// Asks for rows [from, from + size) ahead of their use.
INLINE void prefetch_rows(const Tensor& t, const Queries& q, int64_t from, int64_t size, int64_t width) {
    const int64_t bytes = width * bytes_of(t.type);
    for (int64_t j = from; j < from + size; ++j) {
        const char* row = at(t, q.batch, q.group, j, 0);
        for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b);
    }
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
