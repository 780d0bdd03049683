// The functions of a finished call: tiles of its map, blocks of it, its products with vectors, its column sums.
// Compiled once for each instruction set.
#include "kernels.hpp"
#include "weights.hpp"

namespace attn::ISA {
namespace {

constexpr int64_t kColumns = 1024;   // of a tile of the map, made by one item
constexpr int64_t kKeys = 512;       // whose sums one item holds while it goes through all queries
constexpr int64_t kTogether = 4;     // tiles of queries that share a tile of keys while it is at hand

void fill(float* at, int64_t floats, float value) {
    for (int64_t i = 0; i < floats; ++i) at[i] = value;
}

int64_t row_tiles(const View& view) { return pieces(view.row_end - view.row_begin, L); }

void blank(float* tile, int64_t begin, int64_t end, int vector, int vectors) {
    for (int64_t j = begin; j < end; ++j)
        for (int l = vector * W; l < (vector + vectors) * W; l += W) store(tile + j * L + l, set(0));
}

// Weights of keys [from, from + size), 0 where hidden, into weights [T, L]. False, and no change, if all are hidden.
bool weigh(const Call& call, const Rows& rows, int64_t from, int64_t size, Buffers& buffers, float* weights) {
    Span spans[kSpans];
    const int count = score(call, rows.queries, from, size, buffers, weights, spans);
    int next = 0;
    for (const Span* s = spans; s < spans + count; ++s) {
        weigh_span(rows, from, *s, weights);
        blank(weights, 0, size, next, s->vector - next);
        blank(weights, 0, s->begin - from, s->vector, s->vectors);
        blank(weights, s->end - from, size, s->vector, s->vectors);
        next = s->vector + s->vectors;
    }
    if (count > 0) blank(weights, 0, size, next, rows.queries.vectors - next);
    return count > 0;
}

// A tensor of which only one head is left.
Tensor head_of(Tensor t, int64_t head) {
    t.data += bytes_of(t.type) * head * t.stride[1];
    t.stride[1] = 0;
    return t;
}

// tile: items are tiles of rows times ranges of columns.

int64_t tile_items(const Call& call, const View& view) {
    return call.B * call.H * row_tiles(view) * pieces(view.col_end - view.col_begin, kColumns);
}

int64_t tile_floats(const Call& call, const View&) { return rows_floats(call) + buffer_floats(call) + T * L; }

void tile(const Call& call, const View& view, int64_t item, float* memory) {
    Rows rows;
    take_rows(call, rows, memory);
    Buffers buffers = take_buffers(call, memory);
    float* weights = take(memory, T * L);
    const int64_t width = view.col_end - view.col_begin, ranges = pieces(width, kColumns);
    const int64_t index = item / ranges / row_tiles(view);  // of the head
    const int64_t row = view.row_begin + item / ranges % row_tiles(view) * L, count = lesser(L, view.row_end - row);
    const int64_t from = view.col_begin + item % ranges * kColumns, to = lesser(from + kColumns, view.col_end);
    const bool seen = aim(call, index / call.H, index % call.H, row, count, from, to, rows);
    if (seen) pack(call, view.logsumexp, buffers, rows);
    float* out = view.out + (index * (view.row_end - view.row_begin) + row - view.row_begin) * width - view.col_begin;
    for (int64_t j = from; j < to; j += T) {
        const int64_t size = lesser(T, to - j);
        if (seen && weigh(call, rows, j, size, buffers, weights))
            transpose(weights, L, size, count, out + j, width);
        else
            for (int64_t l = 0; l < count; ++l) fill(out + l * width + j, size, 0);
    }
}

// pool: items are some tiles of rows over all columns. Each tile leaves a row of blocks in view.bands for each block of
// rows it meets; join makes means or maxima of the bands.

// A tile of rows and its sums (or maxima) over one block of columns.
struct Pooled {
    Rows rows;
    float* lanes;        // [L]
    int64_t tile, block; // block: -1 while nothing is in `lanes`
};

int64_t pool_items(const Call& call, const View& view) { return call.B * call.H * pieces(row_tiles(view), kTogether); }

int64_t pool_floats(const Call& call, const View&) {
    return kTogether * (rows_floats(call) + L) + buffer_floats(call) + T * L;
}

int64_t edge(int64_t block, int64_t length, int64_t blocks) { return block * length / blocks; }

int64_t block_of(int64_t position, int64_t length, int64_t blocks) { return ((position + 1) * blocks - 1) / length; }

float* band(const View& view, int64_t index, int64_t tile, int64_t row_block) {
    return view.bands + (index * (row_tiles(view) + view.R) + tile + row_block) * view.C;
}

// Hands the lanes' sums over the open block of columns to the bands, one number for each block of rows.
void close_block(const Call& call, const View& view, Pooled& p) {
    if (p.block < 0) return;
    const Queries& q = p.rows.queries;
    const int64_t height = view.row_end - view.row_begin, first = q.row[0] - view.row_begin;
    for (int64_t l = 0; l < q.count;) {
        const int64_t row_block = block_of(first + l, height, view.R);
        const int64_t end = lesser(q.count, edge(row_block + 1, height, view.R) - first);
        float total = 0;
        for (; l < end; ++l) total = view.largest ? higher(total, p.lanes[l]) : total + p.lanes[l];
        band(view, q.batch * call.H + q.head[0], p.tile, row_block)[p.block] = total;
    }
    p.block = -1;
}

template <int NV, bool Largest>
void reduce_keys(const float* weights, int64_t keys, float* lanes) {
    V total[NV];
    UNROLL for (int v = 0; v < NV; ++v) total[v] = set(0);
    for (int64_t j = 0; j < keys; ++j)
        UNROLL for (int v = 0; v < NV; ++v) {
            const V weight = load(weights + j * L + v * W);
            total[v] = Largest ? greater_of(total[v], weight) : add(total[v], weight);
        }
    UNROLL for (int v = 0; v < NV; ++v) {
        const V before = load(lanes + v * W);
        store(lanes + v * W, Largest ? greater_of(before, total[v]) : add(before, total[v]));
    }
}

template <bool Largest>
void reduce(const Queries& q, const float* weights, int64_t keys, float* lanes) {
    int v = 0;
    for (; v + kVectors <= q.vectors; v += kVectors)
        reduce_keys<kVectors, Largest>(weights + v * W, keys, lanes + v * W);
    for (; v < q.vectors; ++v) reduce_keys<1, Largest>(weights + v * W, keys, lanes + v * W);
}

// Adds a tile of weights of keys [from, from + size) to the sums of its blocks.
void pool_tile(const Call& call, const View& view, Pooled& p, const float* weights, int64_t from, int64_t size) {
    const int64_t width = view.col_end - view.col_begin, end = from + size - view.col_begin;
    for (int64_t j = from - view.col_begin; j < end;) {
        const int64_t block = block_of(j, width, view.C), stop = lesser(end, edge(block + 1, width, view.C));
        if (block != p.block) {
            close_block(call, view, p);
            fill(p.lanes, L, 0);
            p.block = block;
        }
        const float* part = weights + (j - from + view.col_begin) * L;
        view.largest ? reduce<true>(p.rows.queries, part, stop - j, p.lanes)
                     : reduce<false>(p.rows.queries, part, stop - j, p.lanes);
        j = stop;
    }
}

void pool(const Call& call, const View& view, int64_t item, float* memory) {
    Pooled pooled[kTogether];
    Buffers buffers = take_buffers(call, memory);
    float* weights = take(memory, T * L);
    const int64_t bands = pieces(row_tiles(view), kTogether), index = item / bands;
    const int64_t first = (bands - 1 - item % bands) * kTogether;  // the longest first, as causality has it
    const int64_t tiles = lesser(kTogether, row_tiles(view) - first);
    int64_t begin = view.col_end, end = view.col_begin;
    for (int64_t t = 0; t < tiles; ++t) {
        Pooled& p = pooled[t];
        take_rows(call, p.rows, memory);
        p.lanes = take(memory, L);
        p.tile = first + t;
        p.block = -1;
        const int64_t row = view.row_begin + p.tile * L;
        aim(call, index / call.H, index % call.H, row, lesser(L, view.row_end - row), 0, 0, p.rows);
        pack(call, view.logsumexp, buffers, p.rows);
        begin = lesser(begin, greater(p.rows.queries.key_begin, view.col_begin));
        end = greater(end, lesser(p.rows.queries.key_end, view.col_end));
    }
    for (int64_t from = begin; from < end; from += T)
        for (Pooled* p = pooled; p < pooled + tiles; ++p) {
            const int64_t size = lesser(T, end - from);
            if (weigh(call, p->rows, from, size, buffers, weights)) pool_tile(call, view, *p, weights, from, size);
        }
    for (Pooled* p = pooled; p < pooled + tiles; ++p) close_block(call, view, *p);
}

int64_t join_items(const Call& call, const View& view) { return call.B * call.H * view.R; }

int64_t no_floats(const Call&, const View&) { return 0; }

void join(const Call& call, const View& view, int64_t item, float*) {
    const int64_t index = item / view.R, r = item % view.R, height = view.row_end - view.row_begin;
    const int64_t begin = edge(r, height, view.R), end = edge(r + 1, height, view.R);
    int64_t seeing = 0;
    for (int64_t i = begin; i < end; ++i) {
        const char* row = at(view.logsumexp, index / call.H, index % call.H, view.row_begin + i, 0);
        seeing += *reinterpret_cast<const float*>(row) != -INFINITY;
    }
    const int64_t width = view.col_end - view.col_begin;
    for (int64_t c = 0; c < view.C; ++c) {
        const int64_t columns = edge(c + 1, width, view.C) - edge(c, width, view.C);
        float total = 0;
        for (int64_t t = begin / L; t <= (end - 1) / L; ++t) {
            const float part = band(view, index, t, r)[c];
            total = view.largest ? higher(total, part) : total + part;
        }
        const float mean = view.largest ? total : total / static_cast<float>(seeing * columns);
        view.out[item * view.C + c] = seeing == 0 ? NAN : mean;
    }
}

// push: items are tiles of rows.

int64_t push_items(const Call& call, const View& view) { return call.B * call.H * row_tiles(view); }

int64_t push_floats(const Call& call, const View& view) {
    return rows_floats(call) + buffer_floats(call) + T * L + L + view.width * (L + T) + 32;
}

void push(const Call& call, const View& view, int64_t item, float* memory) {
    Rows rows;
    take_rows(call, rows, memory);
    Buffers buffers = take_buffers(call, memory);
    float* weights = take(memory, T * L);
    float* ones = take(memory, L);
    float* sum = take(memory, view.width * L);
    float* values = take(memory, view.width * T);
    fill(ones, L, 1);
    fill(sum, view.width * L, 0);
    const int64_t tiles = row_tiles(view), index = item / tiles, row = (tiles - 1 - item % tiles) * L;
    const Queries& q = rows.queries;
    aim(call, index / call.H, index % call.H, row, lesser(L, view.row_end - row), 0, 0, rows);
    pack(call, view.logsumexp, buffers, rows);
    const Tensor vector = head_of(view.vector, index % call.H);
    for (int64_t from = q.key_begin; from < q.key_end; from += T) {
        const int64_t size = lesser(T, q.key_end - from);
        if (!weigh(call, rows, from, size, buffers, weights)) continue;
        int64_t stride;
        const float* some = rows_of(vector, q, from, size, view.width, values, stride);
        for (int v = 0; v < q.vectors; v += kVectors)
            product<true>(static_cast<int>(lesser(kVectors, q.vectors - v)), view.width, some, stride, weights + v * W,
                          size, sum + v * W, ones);
    }
    transpose(sum, L, view.width, q.count, view.out + (index * call.M + row) * view.width, view.width);
}

// pull and received: items are ranges of keys, so that each sum belongs to one item.

int64_t pull_items(const Call& call, const View&) { return call.B * call.H * pieces(call.N, kKeys); }

int64_t wide(const View& view) { return pieces(view.width, L) * L; }

int64_t pull_floats(const Call& call, const View& view) {
    return rows_floats(call) + buffer_floats(call) + T * L + L + wide(view) * (L + kKeys);
}

int64_t received_floats(const Call& call, const View&) {
    return rows_floats(call) + buffer_floats(call) + T * L + kKeys * W + 16;
}

// Calls each(rows, weights, key, size) for every tile of weights that has keys among those of the item.
template <class Prepare, class Each>
INLINE void each_tile(const Call& call, const View& view, int64_t index, int64_t begin, float*& memory, Prepare prepare,
                      Each each) {
    Rows rows;
    take_rows(call, rows, memory);
    Buffers buffers = take_buffers(call, memory);
    float* weights = take(memory, T * L);
    const int64_t end = lesser(call.N, begin + kKeys);
    for (int64_t row = 0; row < call.M; row += L) {
        if (!aim(call, index / call.H, index % call.H, row, lesser(L, call.M - row), begin, end, rows)) continue;
        pack(call, view.logsumexp, buffers, rows);
        prepare(rows.queries);
        const int64_t to = lesser(end, rows.queries.key_end);
        for (int64_t from = greater(begin, rows.queries.key_begin); from < to; from += T)
            if (weigh(call, rows, from, lesser(T, to - from), buffers, weights))
                each(rows.queries, weights, from - begin, lesser(T, to - from));
    }
}

void pull(const Call& call, const View& view, int64_t item, float* memory) {
    const int64_t ranges = pieces(call.N, kKeys), index = item / ranges, begin = item % ranges * kKeys;
    float* ones = take(memory, L);
    float* vectors = take(memory, wide(view) * L);
    float* sum = take(memory, wide(view) * kKeys);
    fill(ones, L, 1);
    fill(vectors, wide(view) * L, 0);
    fill(sum, wide(view) * kKeys, 0);
    const auto prepare = [&](const Queries& q) {
        for (int64_t l = 0; l < q.count; ++l)
            for (int64_t e = 0; e < view.width; e += L)
                read(at(view.vector, q.batch, q.head[l], q.row[l], e), kFloat32, view.vector.stride[3],
                     lesser(L, view.width - e), vectors + (e + l) * L);
    };
    const auto each = [&](const Queries& q, const float* weights, int64_t key, int64_t size) {
        add_product(size, weights, q.count, vectors, view.width, sum + key * L, kKeys, ones);
    };
    each_tile(call, view, index, begin, memory, prepare, each);
    for (int64_t j = 0; j < lesser(kKeys, call.N - begin); ++j)
        for (int64_t e = 0; e < view.width; ++e)
            view.out[(index * call.N + begin + j) * view.width + e] = sum[(e / L * kKeys + j) * L + e % L];
}

void received(const Call& call, const View& view, int64_t item, float* memory) {
    const int64_t ranges = pieces(call.N, kKeys), index = item / ranges, begin = item % ranges * kKeys;
    float* sum = take(memory, kKeys * W);  // [kKeys, W]
    fill(sum, kKeys * W, 0);
    const auto prepare = [](const Queries&) {};
    const auto each = [&](const Queries& q, const float* weights, int64_t key, int64_t size) {
        for (int64_t j = 0; j < size; ++j) {
            V total = load(weights + j * L);
            for (int v = 1; v < q.vectors; ++v) total = add(total, load(weights + j * L + v * W));
            store(sum + (key + j) * W, add(load(sum + (key + j) * W), total));
        }
    };
    each_tile(call, view, index, begin, memory, prepare, each);
    for (int64_t j = 0; j < lesser(kKeys, call.N - begin); ++j) {
        float total = 0;
        for (int w = 0; w < W; ++w) total += sum[j * W + w];
        view.out[index * call.N + begin + j] = total;
    }
}

}  // namespace

extern const Work<View> views[];
const Work<View> views[kKinds] = {
    {tile_items, tile_floats, tile},         {pool_items, pool_floats, pool}, {join_items, no_floats, join},
    {push_items, push_floats, push},         {pull_items, pull_floats, pull}, {pull_items, received_floats, received},
};

}  // namespace attn::ISA
