// The weights of a finished call, tile by tile: exp(score - logsumexp); and products with rows of queries.
#pragma once

#include "tile.hpp"

namespace attn::ISA {

// Rows of one head and what is needed to weigh their keys.
struct Rows {
    Queries queries;
    float* logsumexp;  // [L]; +inf where a row sees nothing or a lane is not in use, so that weights are 0
};

INLINE int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

INLINE int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

// Number of pieces of `size` that cover `length`.
INLINE int64_t pieces(int64_t length, int64_t size) { return (length + size - 1) / size; }

INLINE float* take(float*& memory, int64_t floats) {
    float* taken = memory;
    memory += (floats + 15) / 16 * 16;
    return taken;
}

INLINE int64_t buffer_floats(const Call& call) {
    return T * L + greater(T, call.D) * L + T * call.D + 32;
}

INLINE Buffers take_buffers(const Call& call, float*& memory) {
    Buffers buffers;
    buffers.extra = take(memory, T * L);
    buffers.rows = take(memory, greater(T, call.D) * L);
    buffers.keys = take(memory, T * call.D);
    buffers.values = nullptr;
    return buffers;
}

INLINE int64_t rows_floats(const Call& call) { return call.D * L + L + 16; }

INLINE void take_rows(const Call& call, Rows& rows, float*& memory) {
    rows.queries.packed = take(memory, call.D * L);
    rows.logsumexp = take(memory, L);
}

// Rows [begin, begin + size) of a head. Says whether any of them may see a key of [from, to).
static bool aim(const Call& call, int64_t batch, int64_t head, int64_t begin, int64_t size, int64_t from, int64_t to,
                Rows& rows) {
    describe_queries(call, batch, head, 1, begin, size, rows.queries);
    return greater(rows.queries.key_begin, from) < lesser(rows.queries.key_end, to);
}

static void pack(const Call& call, const Tensor& logsumexp, Buffers& buffers, Rows& rows) {
    Queries& q = rows.queries;
    pack_queries(call, q, buffers.rows);
    for (int64_t l = 0; l < L; ++l) rows.logsumexp[l] = INFINITY;
    read(at(logsumexp, q.batch, q.head[0], q.row[0], 0), kFloat32, logsumexp.stride[2], q.count, rows.logsumexp);
    for (int64_t l = 0; l < q.count; ++l)
        if (rows.logsumexp[l] == -INFINITY) rows.logsumexp[l] = INFINITY;
}

// Scores of a span become weights.
static void weigh_span(const Rows& rows, int64_t from, const Span& s, float* scores) {
    for (int64_t j = s.begin - from; j < s.end - from; ++j)
        for (int l = s.vector * W; l < (s.vector + s.vectors) * W; l += W)
            store(scores + j * L + l, exponential(sub(load(scores + j * L + l), load(rows.logsumexp + l))));
}

// c[r, e] += sum over lanes l < size of a[r, l] * b[l, e] for `rows` rows of a [., L] and `width` columns, which b and
// c hold in blocks of L columns: b [blocks, L, L] and c [blocks, c_rows, L]. ones [L].
static void add_product(int64_t rows, const float* a, int64_t size, const float* b, int64_t width, float* c,
                        int64_t c_rows, const float* ones) {
    for (int64_t e = 0; e < width; e += kVectors * W) {
        const int64_t block = e / L, column = e % L;
        const int vectors = static_cast<int>(pieces(lesser(width - e, kVectors * W), W));
        product<false>(vectors, rows, a, L, b + block * L * L + column, size, c + block * c_rows * L + column, ones);
    }
}

}  // namespace attn::ISA
