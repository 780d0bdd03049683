// The forward pass over one tile of queries: online softmax, with the statistics and block sums of the map in the same
// pass. Compiled once for each instruction set.
#include "kernels.hpp"
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

// -inf - -inf would be NaN; no finite score is lower.
V difference(V a, V b) { return greater_of(set(-1e30f), sub(a, b)); }

// A row that has seen nothing has top -inf; exponents are then taken relative to 0.
V finite(V top) { return select(equal(top, set(-INFINITY)), set(0), top); }

// The key and position of the lanes' own, previous and first key, if among [from, end).
void note_places(const Call& call, const Queries& q, const Span& s, int64_t from, int64_t first, const float* scores,
                 State& state) {
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

// An axis cut into blocks: block k begins at k * length / blocks, rounded down.
struct Edges {
    int64_t length, blocks;
};

int64_t begin_of(int64_t block, const Edges& e) { return block * e.length / e.blocks; }

int64_t block_of(int64_t position, const Edges& e) { return ((position + 1) * e.blocks - 1) / e.length; }

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

int64_t first_key(const Call& call, int64_t batch) {
    if (!call.padding.data) return 0;
    for (int64_t j = 0; j < call.N; ++j)
        if (!is_padding(call, batch, j)) return j;
    return 0;
}

// Keys and values that only one tile of queries reads come from far memory: ask for the next ones while these are worked on.
void prefetch_next(const Call& call, const Queries& q, int64_t from) {
    const int64_t size = call.N - from < T ? call.N - from : T;
    prefetch_rows(call.key, q, from, size, call.D);
    prefetch_rows(call.value, q, from, size, call.E);
}

void attend_tile(const Call& call, const Forward& out, Piece& p, int64_t from, int64_t size, int64_t first) {
    Span spans[kSpans];
    const int count = score(call, p.queries, from, size, p.buffers, p.scores, spans);
    if (count == 0) return;
    if (call.M <= L) prefetch_next(call, p.queries, from + size);
    int64_t stride;
    const float* values = rows_of(call.value, p.queries, from, size, call.E, p.buffers.values, stride);
    for (const Span* s = spans; s < spans + count; ++s) {
        if (out.statistics) {
            note_places(call, p.queries, *s, from, first, p.scores, p.state);
            softmax<true>(call, out, p, from, *s);
        } else {
            softmax<false>(call, out, p, from, *s);
        }
        const int64_t j = s->begin - from;
        const int lane = s->vector * W;
        product<true>(s->vectors, call.E, values + j * stride, stride, p.scores + j * L + lane, s->end - s->begin,
                      p.state.output + lane, p.keep + lane);
    }
}

// The sink is one more outcome: it joins the sums but adds nothing to output or distance.
void add_sink(const Call& call, Piece& p) {
    if (!call.sinks) return;
    State& s = p.state;
    alignas(64) float sinks[L];
    for (int l = 0; l < L; ++l) sinks[l] = call.sinks[p.queries.head[l]];
    for (int l = 0; l < p.queries.vectors * W; l += W) {
        const V old = load(s.top + l), sink = load(sinks + l);
        const Flag blind = equal(old, set(-INFINITY));
        const V top = select(blind, old, greater_of(old, sink)), base = finite(top);
        const V rise = difference(old, base), keep = exponential(rise);
        const V gap = difference(sink, base), extra = select(blind, set(0), exponential(gap));
        const V sum = load(s.sum + l);
        store(s.heat + l, fma(keep, fma(rise, sum, load(s.heat + l)), mul(extra, gap)));
        store(s.sum + l, fma(keep, sum, extra));
        store(s.distance + l, mul(keep, load(s.distance + l)));
        store(s.top + l, top);
        for (int64_t e = 0; e < call.E; ++e) store(s.output + e * L + l, mul(keep, load(s.output + e * L + l)));
    }
}

// Adds what another part of the keys, later ones, has found.
void join(const Call& call, Piece& p, const State& more) {
    State& s = p.state;
    for (int l = 0; l < p.queries.vectors * W; l += W) {
        const V mine = load(s.top + l), theirs = load(more.top + l), top = greater_of(mine, theirs), base = finite(top);
        const V my_rise = difference(mine, base), their_rise = difference(theirs, base);
        const V keep = exponential(my_rise), take = exponential(their_rise);
        const V my_heat = fma(my_rise, load(s.sum + l), load(s.heat + l));
        const V their_heat = fma(their_rise, load(more.sum + l), load(more.heat + l));
        store(s.heat + l, fma(keep, my_heat, mul(take, their_heat)));
        store(s.sum + l, fma(keep, load(s.sum + l), mul(take, load(more.sum + l))));
        store(s.distance + l, fma(keep, load(s.distance + l), mul(take, load(more.distance + l))));
        store(s.best + l, select(less(mine, theirs), load(more.best + l), load(s.best + l)));
        store(s.own + l, greater_of(load(s.own + l), load(more.own + l)));
        store(s.previous + l, greater_of(load(s.previous + l), load(more.previous + l)));
        store(s.first + l, greater_of(load(s.first + l), load(more.first + l)));
        store(s.top + l, top);
        for (int64_t e = 0; e < call.E; ++e)
            store(s.output + e * L + l, fma(keep, load(s.output + e * L + l), mul(take, load(more.output + e * L + l))));
    }
}

int64_t row_index(const Call& call, const Queries& q, int64_t l) {
    return (q.batch * call.H + q.head[l]) * call.M + q.row[l];
}

// Puts one value for each lane where the lanes' rows lie in a [B, H, M] array.
void put(const Call& call, const Queries& q, const float* lanes, float* rows) {
    for (int64_t l = 0; l < q.count; ++l) rows[row_index(call, q, l)] = lanes[l];
}

void put_logsumexp(const Call& call, const Forward& out, Piece& p) {
    alignas(64) float total[L];
    for (int l = 0; l < p.queries.vectors * W; ++l) {
        p.log_sum[l] = logf(p.state.sum[l]);
        total[l] = p.state.top[l] + p.log_sum[l];
        p.share[l] = p.state.top[l] == -INFINITY ? 0 : 1 / p.state.sum[l];
    }
    put(call, p.queries, total, out.logsumexp);
}

// The weight of a score: more exact than exp(score - logsumexp) when scores are large.
V weight_of(const Piece& p, int lane, V score) {
    return mul(exponential(sub(score, finite(load(p.state.top + lane)))), load(p.share + lane));
}

void put_output(const Call& call, const Forward& out, Piece& p) {
    const Queries& q = p.queries;
    for (int l = 0; l < q.vectors * W; l += W) {
        const V share = load(p.share + l);
        for (int64_t e = 0; e < call.E; ++e) {
            float* at = p.state.output + e * L + l;
            store(at, mul(load(at), share));
        }
    }
    transpose(p.state.output, L, call.E, q.vectors * W, p.buffers.rows, call.E);
    const Tensor& t = out.output;
    for (int64_t l = 0; l < q.count; ++l)
        write(const_cast<char*>(at(t, q.batch, q.head[l], q.row[l], 0)), t.type, t.stride[3], call.E,
              p.buffers.rows + l * call.E);
}

void put_statistics(const Call& call, const Forward& out, Piece& p) {
    State& s = p.state;
    const int64_t rows = call.B * call.H * call.M;
    const V nan = set(NAN), none = set(-INFINITY);
    alignas(64) float values[6][L];
    for (int l = 0; l < p.queries.vectors * W; l += W) {
        const V share = load(p.share + l);
        const Flag blind = equal(load(s.top + l), none);
        const V entropy = greater_of(set(0), fnma(load(s.heat + l), share, load(p.log_sum + l)));
        store(values[0] + l, select(blind, nan, entropy));
        store(values[1] + l, select(blind, nan, weight_of(p, l, load(p.peak + l))));
        store(values[2] + l, select(blind, nan, mul(load(s.distance + l), share)));
        store(values[3] + l, select(blind, nan, weight_of(p, l, load(s.own + l))));
        store(values[4] + l, select(blind, nan, weight_of(p, l, load(s.previous + l))));
        store(values[5] + l, select(blind, nan, weight_of(p, l, load(s.first + l))));
    }
    for (int i = 0; i < 6; ++i) put(call, p.queries, values[i], out.statistics + i * rows);
    for (int64_t l = 0; l < p.queries.count; ++l)
        out.largest_key[row_index(call, p.queries, l)] = s.top[l] == -INFINITY ? -1 : static_cast<int64_t>(s.best[l]);
}

// Sums of each block of the map over the rows of this tile, into the tile's own rows of plan.bands.
void put_blocks(const Call& call, const Forward& out, const Plan& plan, Piece& p, int64_t row_tile) {
    const Queries& q = p.queries;
    const Edges rows{call.M, out.R}, columns{call.N, out.C};
    const int64_t begin = block_of(q.key_begin, columns), end = block_of(q.key_end - 1, columns) + 1;
    for (int64_t c = begin; c < end; ++c)
        for (int l = 0; l < q.vectors * W; l += W) {
            float* sum = p.blocks.sum + c * L + l;
            store(sum, mul(load(sum), weight_of(p, l, load(p.blocks.top + c * L + l))));
        }
    for (int64_t l = 0, last; l < q.count; l = last) {
        const int64_t block = block_of(q.row[l], rows), row_end = begin_of(block + 1, rows);
        for (last = l; last < q.count && q.head[last] == q.head[l] && q.row[last] < row_end; ++last) {
        }
        float* band = plan.bands + ((q.batch * call.H + q.head[l]) * (plan.row_tiles + out.R) + row_tile + block) * out.C;
        fill(band, out.C, 0);
        for (int64_t c = begin; c < end; ++c)
            for (int64_t i = l; i < last; ++i) band[c] += p.blocks.sum[c * L + i];
    }
}

// The weights of the keys [from, from + size), 0 where hidden, into p.scores.
void weigh_again(const Call& call, Piece& p, int64_t from, int64_t size) {
    Span spans[kSpans];
    float* extra = p.buffers.extra;
    const int count = score(call, p.queries, from, size, p.buffers, p.scores, spans);
    fill(extra, T * L, 0);
    for (const Span* s = spans; s < spans + count; ++s)
        for (int64_t j = s->begin - from; j < s->end - from; ++j)
            for (int l = s->vector * W; l < (s->vector + s->vectors) * W; l += W)
                store(extra + j * L + l, weight_of(p, l, load(p.scores + j * L + l)));
}

// Whether lane l is among the rows and heads whose weights are wanted, and where its row of them lies.
float* weights_row(const Call& call, const Forward& out, const Queries& q, int64_t l) {
    const int64_t head = out.slot ? out.slot[q.head[l]] : q.head[l];
    if (head < 0 || q.row[l] < out.row_begin || q.row[l] >= out.row_end) return nullptr;
    const int64_t rows = out.row_end - out.row_begin;
    return out.weights + ((q.batch * out.chosen + head) * rows + q.row[l] - out.row_begin) * call.N;
}

// A second sweep, over chosen rows only: weights are known once their sum is.
void put_weights(const Call& call, const Forward& out, Piece& p) {
    float* rows[L];
    bool wanted = false;
    for (int64_t l = 0; l < p.queries.count; ++l) {
        rows[l] = weights_row(call, out, p.queries, l);
        wanted = wanted || rows[l];
    }
    for (int64_t from = 0; wanted && from < call.N; from += T) {
        const int64_t size = call.N - from < T ? call.N - from : T;
        weigh_again(call, p, from, size);
        transpose(p.buffers.extra, L, size, p.queries.vectors * W, p.buffers.rows, T);
        for (int64_t l = 0; l < p.queries.count; ++l)
            if (rows[l]) memcpy(rows[l] + from, p.buffers.rows + l * T, static_cast<size_t>(size) * sizeof(float));
    }
}

void finish(const Call& call, const Forward& out, const Plan& plan, Piece& p, int64_t row_tile) {
    memcpy(p.peak, p.state.top, L * sizeof(float));
    add_sink(call, p);
    put_logsumexp(call, out, p);
    put_output(call, out, p);
    if (out.statistics) put_statistics(call, out, p);
    if (out.pooled) put_blocks(call, out, plan, p, row_tile);
    if (out.weights) put_weights(call, out, p);
}

// Finds the queries of an item; the last row tiles come first, for under causality they take longest.
int64_t locate(const Call& call, const Plan& plan, int64_t item, Piece& p) {
    const int64_t per_group = call.H / call.G;
    const int64_t row_tile = plan.row_tiles - 1 - item % plan.row_tiles;
    const int64_t pack = item / plan.row_tiles % plan.packs;
    const int64_t group = item / (plan.row_tiles * plan.packs) % call.G;
    const int64_t batch = item / (plan.row_tiles * plan.packs * call.G);
    const int64_t head = pack * plan.heads, row = row_tile * (plan.lanes / plan.heads);
    const int64_t heads = per_group - head < plan.heads ? per_group - head : plan.heads;
    const int64_t most = plan.heads > 1 ? call.M : plan.lanes, rows = call.M - row < most ? call.M - row : most;
    describe_queries(call, batch, group * per_group + head, heads, row, rows, p.queries);
    return row_tile;
}

void attend(const Call& call, const Forward& out, const Plan& plan, int64_t item, int64_t split, float* memory) {
    Piece p;
    layout(call, out, p, memory);
    if (plan.splits > 1) p.state = state_at(plan.parts + (item * plan.splits + split) * plan.state);
    const int64_t row_tile = locate(call, plan, item, p);
    pack_queries(call, p.queries, p.buffers.rows);
    clear(call, p.state);
    if (out.pooled) {
        fill(p.blocks.sum, out.C * L, 0);
        fill(p.blocks.top, out.C * L, -INFINITY);
    }
    const int64_t first = out.statistics ? first_key(call, p.queries.batch) : 0;
    const int64_t begin = p.queries.key_begin / T, tiles = (p.queries.key_end + T - 1) / T - begin;
    const int64_t from = begin + split * tiles / plan.splits, to = begin + (split + 1) * tiles / plan.splits;
    for (int64_t t = from; t < to; ++t)
        attend_tile(call, out, p, t * T, call.N - t * T < T ? call.N - t * T : T, first);
    if (plan.splits == 1) finish(call, out, plan, p, row_tile);
}

void merge(const Call& call, const Forward& out, const Plan& plan, int64_t item, float* memory) {
    Piece p;
    layout(call, out, p, memory);
    const int64_t row_tile = locate(call, plan, item, p);
    if (out.weights) pack_queries(call, p.queries, p.buffers.rows);
    clear(call, p.state);
    for (int64_t split = 0; split < plan.splits; ++split)
        join(call, p, state_at(plan.parts + (item * plan.splits + split) * plan.state));
    finish(call, out, plan, p, row_tile);
}

}  // namespace

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
extern const Work<View> views[];
extern const Work<Backward> backward[];
extern const Kernels kernels;
const Kernels kernels = {TEXT(ISA), L, state_floats, scratch_floats, attend, merge, views, backward};

}  // namespace attn::ISA
