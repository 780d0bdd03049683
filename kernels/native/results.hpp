// From what the rows of a finished piece know to the arrays that the caller gets.
#pragma once

#include "softmax.hpp"

namespace attn::ISA {
namespace {

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

// The row of plan.bands, 0 at first, for the blocks that lane l falls into: no other tile writes it.
float* band_of(const Call& call, const Forward& out, const Plan& plan, const Queries& q, int64_t l, int64_t row_tile) {
    const int64_t block = block_of(q.row[l], Edges{call.M, out.R}), all = plan.row_tiles + out.R;
    return plan.bands + ((q.batch * call.H + q.head[l]) * all + row_tile + block) * out.C;
}

// Sums of each block of the map over the rows of this tile, into the tile's own rows of plan.bands.
void put_blocks(const Call& call, const Forward& out, const Plan& plan, Piece& p, int64_t row_tile) {
    const Queries& q = p.queries;
    const Edges columns{call.N, out.C};
    const int64_t begin = block_of(q.key_begin, columns), end = block_of(q.key_end - 1, columns) + 1;
    for (int64_t c = begin; c < end; ++c)
        for (int l = 0; l < q.vectors * W; l += W) {
            float* sum = p.blocks.sum + c * L + l;
            store(sum, mul(load(sum), weight_of(p, l, load(p.blocks.top + c * L + l))));
        }
    // blocks of a row side by side, so that rows are added up as vectors
    float* turned = p.buffers.extra;
    for (int64_t c = begin; c < end; c += T) {
        const int64_t size = end - c < T ? end - c : T;
        transpose(p.blocks.sum + c * L, L, size, q.vectors * W, turned, T);
        for (int64_t l = 0; l < q.count; ++l) {
            float* band = band_of(call, out, plan, q, l, row_tile) + c;
            for (int64_t i = 0; i < size; ++i) band[i] += turned[l * T + i];
        }
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

}  // namespace
}  // namespace attn::ISA
