// A tile of queries: which rows it holds, which keys they may see by their position, and their packed numbers.
#pragma once

#include "micro.hpp"
#include "numbers.hpp"

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

}  // namespace attn::ISA
