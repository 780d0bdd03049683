// The gradients of query, key and value: weights are recomputed from logsumexp, tile by tile. Compiled once for each
// instruction set. Source: Dao, FlashAttention-2 (2023), arXiv 2307.08691, algorithm 2.
//
//     g = d output               delta = g . output      slope = derivative of the soft cap
//     d value = weights.T g      change = weights * (g value.T - delta) * slope
//     d query = scale * change key                       d key = scale * change.T query
#include "kernels.hpp"
#include "weights.hpp"

namespace attn::ISA {
namespace {


// A tile of queries as the products need it; rows lie in blocks of L columns, see add_product().
struct Side {
    Rows rows;
    float *query;                      // [L, D]
    float *gradient, *gradient_lanes;  // of the output: [L, E] and [E, L]
    float* delta;                      // [L]
};

struct Piece {
    Side side;
    Buffers buffers;
    float *weights, *change;  // [T, L]
    float* ones;              // [L]
    float *key, *value;       // gradients of out.near keys, in blocks of L columns
};

int64_t wide(int64_t width) { return pieces(width, L) * L; }

void fill(float* at, int64_t floats, float value) {
    for (int64_t i = 0; i < floats; ++i) at[i] = value;
}

int64_t row_tiles(const Call& call) { return pieces(call.M, L); }

int64_t split_floats(const Call& call, const Backward& out) {
    return rows_floats(call) + buffer_floats(call) + T * call.E + 3 * T * L + 2 * L + (out.near + L) * wide(call.D) +
           (out.near + 2 * L) * wide(call.E) + 16;
}

void layout(const Call& call, const Backward& out, Piece& p, float* memory) {
    take_rows(call, p.side.rows, memory);
    p.side.query = take(memory, wide(call.D) * L);
    p.side.gradient = take(memory, wide(call.E) * L);
    p.side.gradient_lanes = take(memory, wide(call.E) * L);
    p.side.delta = take(memory, L);
    p.buffers = take_buffers(call, memory);
    p.buffers.values = take(memory, T * call.E);
    float* capped = take(memory, T * L);
    p.buffers.capped = call.softcap > 0 ? capped : nullptr;
    p.weights = take(memory, T * L);
    p.change = take(memory, T * L);
    p.ones = take(memory, L);
    p.key = take(memory, wide(call.D) * out.near);
    p.value = take(memory, wide(call.E) * out.near);
    fill(p.ones, L, 1);
    fill(p.side.query, wide(call.D) * L, 0);  // what no column or lane fills must be no NaN
    fill(p.side.gradient, wide(call.E) * L, 0);
    fill(p.side.delta, L, 0);
}

int64_t row_index(const Call& call, const Queries& q, int64_t l) {
    return (q.batch * call.H + q.head[l]) * call.M + q.row[l];
}

// The rows of a tile of queries from a [B, H, M, width] tensor, in blocks of L columns.
void read_rows(const Tensor& t, const Queries& q, int64_t width, float* out) {
    for (int64_t e = 0; e < width; e += L)
        for (int64_t l = 0; l < q.count; ++l)
            read(at(t, q.batch, q.head[l], q.row[l], e), t.type, t.stride[3], lesser(L, width - e), out + (e + l) * L);
}

void pack_side(const Call& call, const Backward& out, Piece& p) {
    Side& side = p.side;
    const Queries& q = side.rows.queries;
    pack(call, out.logsumexp, p.buffers, side.rows);
    read_rows(call.query, q, call.D, side.query);
    read_rows(out.output_gradient, q, call.E, side.gradient);
    for (int64_t e = 0; e < call.E; e += L)
        transpose(side.gradient + e * L, L, q.vectors * W, lesser(L, call.E - e), side.gradient_lanes + e * L, L);
    memcpy(side.delta, out.delta + row_index(call, q, 0), static_cast<size_t>(q.count) * sizeof(float));
}

// change holds g value.T on entry.
void change_span(const Call& call, const Piece& p, int64_t from, const Span& s) {
    const V inverse = set(call.softcap > 0 ? 1 / call.softcap : 0);
    for (int64_t j = s.begin - from; j < s.end - from; ++j)
        for (int l = s.vector * W; l < (s.vector + s.vectors) * W; l += W) {
            float* change = p.change + j * L + l;
            V product = mul(load(p.weights + j * L + l), sub(load(change), load(p.side.delta + l)));
            if (call.softcap > 0) {
                const V tanh = mul(load(p.buffers.capped + j * L + l), inverse);
                product = mul(product, fnma(tanh, tanh, set(1)));
            }
            store(change, product);
        }
}

// Adds what keys [from, from + size) and the tile of queries give each other; `key`: their place in p.key and p.value.
void add_tile(const Call& call, const Backward& out, Piece& p, int64_t from, int64_t size, int64_t key, float* query) {
    Span spans[kSpans];
    Side& side = p.side;
    const Queries& q = side.rows.queries;
    const int count = score(call, q, from, size, p.buffers, p.weights, spans);
    if (count == 0) return;
    int64_t key_stride, value_stride;
    const float* keys = rows_of(call.key, q, from, size, call.D, p.buffers.keys, key_stride);
    const float* values = rows_of(call.value, q, from, size, call.E, p.buffers.values, value_stride);
    for (const Span* s = spans; s < spans + count; ++s) {
        const int64_t j = s->begin - from, seen = s->end - s->begin;
        const int lane = s->vector * W;
        const int64_t lanes = lesser(s->vectors * W, q.count - lane);
        weigh_span(side.rows, from, *s, p.weights);
        if (out.value.data)
            add_product(seen, p.weights + j * L + lane, lanes, side.gradient + lane * L, call.E,
                        p.value + (key + j) * L, out.near, p.ones);
        if (!out.query.data && !out.key.data) continue;
        float* change = p.change + j * L + lane;
        product<false>(s->vectors, seen, values + j * value_stride, value_stride, side.gradient_lanes + lane, call.E,
                       change, nullptr);
        change_span(call, p, from, *s);
        if (out.key.data)
            add_product(seen, change, lanes, side.query + lane * L, call.D, p.key + (key + j) * L, out.near, p.ones);
        if (out.query.data)
            product<true>(s->vectors, call.D, keys + j * key_stride, key_stride, change, seen, query + lane, p.ones);
    }
}

// Writes rows [from, from + size) of the gradient of key or value from their sums, in blocks [., keys, L].
void put_keys(const Tensor& t, int64_t batch, int64_t group, int64_t from, int64_t size, int64_t width, float scale,
              int64_t keys, float* sums) {
    if (!t.data) return;
    for (int64_t i = 0; i < keys * wide(width); ++i) sums[i] *= scale;
    for (int64_t e = 0; e < width; e += L)
        for (int64_t j = 0; j < size; ++j)
            write(const_cast<char*>(at(t, batch, group, from + j, e)), t.type, t.stride[3], lesser(L, width - e),
                  sums + (e / L * keys + j) * L);
}

float* part(const Call& call, const Backward& out, int64_t head, int64_t tile, int64_t split) {
    return out.parts + ((head * row_tiles(call) + tile) * out.splits + split) * call.D * L;
}

// All that keys [begin, end) of a group, at most out.near, and the queries of its heads give each other.
void add_keys(const Call& call, const Backward& out, Piece& p, int64_t batch, int64_t group, int64_t own, int64_t begin,
              int64_t end) {
    const int64_t per_group = call.H / call.G, head = group * per_group;
    fill(p.key, out.near * wide(call.D), 0);
    fill(p.value, out.near * wide(call.E), 0);
    for (int64_t h = head; h < head + per_group; ++h)
        for (int64_t t = 0; t < row_tiles(call); ++t) {
            if (!aim(call, batch, h, t * L, lesser(L, call.M - t * L), begin, end, p.side.rows)) continue;
            pack_side(call, out, p);
            float* query = out.query.data ? part(call, out, batch * call.H + h, t, own) : nullptr;
            for (int64_t from = begin; from < end; from += T)
                add_tile(call, out, p, from, lesser(T, end - from), from - begin, query);
        }
    put_keys(out.key, batch, group, begin, end - begin, call.D, call.scale, out.near, p.key);
    put_keys(out.value, batch, group, begin, end - begin, call.E, 1, out.near, p.value);
}

void clear_parts(const Call& call, const Backward& out, int64_t batch, int64_t group, int64_t own) {
    const int64_t per_group = call.H / call.G, head = batch * call.H + group * per_group;
    for (int64_t h = head; h < head + per_group; ++h)
        for (int64_t t = 0; t < row_tiles(call); ++t) fill(part(call, out, h, t, own), call.D * L, 0);
}

// Items of kSplit: parts of the keys of each group, the first parts first, for under causality they take longest. Each
// has the gradients of its keys to itself, and a part of its own for those of the queries.
int64_t split_items(const Call& call, const Backward& out) { return call.B * call.G * out.splits; }

void split(const Call& call, const Backward& out, int64_t item, float* memory) {
    Piece p;
    layout(call, out, p, memory);
    const int64_t own = item / (call.B * call.G), batch = item / call.G % call.B, group = item % call.G;
    const int64_t tiles = pieces(call.N, T), first = own * tiles / out.splits * T;
    const int64_t last = lesser(call.N, (own + 1) * tiles / out.splits * T);
    if (out.query.data && out.turn == 0) clear_parts(call, out, batch, group, own);
    const int64_t end = lesser(last, first + (out.turn + out.turns) * out.near);
    for (int64_t begin = first + out.turn * out.near; begin < end; begin += out.near)
        add_keys(call, out, p, batch, group, own, begin, lesser(end, begin + out.near));
}

// Items of kDelta and kGather: tiles of queries.
int64_t tile_items(const Call& call, const Backward&) { return call.B * call.H * row_tiles(call); }

int64_t delta_floats(const Call& call, const Backward&) { return 2 * call.E; }

void delta(const Call& call, const Backward& out, int64_t item, float* memory) {
    const int64_t index = item / row_tiles(call), begin = item % row_tiles(call) * L;
    const Tensor &o = out.output, &g = out.output_gradient;
    for (int64_t i = begin; i < lesser(call.M, begin + L); ++i) {
        read(at(o, index / call.H, index % call.H, i, 0), o.type, o.stride[3], call.E, memory);
        read(at(g, index / call.H, index % call.H, i, 0), g.type, g.stride[3], call.E, memory + call.E);
        float sum = 0;
        for (int64_t e = 0; e < call.E; ++e) sum += memory[e] * memory[call.E + e];
        out.delta[index * call.M + i] = sum;
    }
}

int64_t gather_floats(const Call& call, const Backward&) { return 2 * call.D * L; }

// Adds the parts of one tile of the gradient of query.
void gather(const Call& call, const Backward& out, int64_t item, float* memory) {
    const int64_t index = item / row_tiles(call), tile = item % row_tiles(call), begin = tile * L;
    float *sum = memory, *rows = memory + call.D * L;
    for (int64_t i = 0; i < call.D * L; i += W) {
        V total = set(0);
        for (int64_t s = 0; s < out.splits; ++s) total = add(total, load(part(call, out, index, tile, s) + i));
        store(sum + i, mul(total, set(call.scale)));
    }
    transpose(sum, L, call.D, L, rows, call.D);
    const Tensor& t = out.query;
    for (int64_t l = 0; l < lesser(L, call.M - begin); ++l)
        write(const_cast<char*>(at(t, index / call.H, index % call.H, begin + l, 0)), t.type, t.stride[3], call.D,
              rows + l * call.D);
}

}  // namespace

extern const Work<Backward> backward[];
const Work<Backward> backward[kSteps] = {
    {tile_items, delta_floats, delta}, {split_items, split_floats, split}, {tile_items, gather_floats, gather}};

}  // namespace attn::ISA
