// The forward pass over one tile of queries: online softmax, with the statistics and block sums of the map in the same
// pass. Compiled once for each instruction set.
#include "kernels.hpp"
#include "results.hpp"

namespace attn::ISA {
namespace {

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
