// The arithmetic on tiles: small matrix products held in registers, exp and tanh, transposing.
// A tile keeps query rows in lanes: element (key j, query l) lies at tile[j * L + l], so that everything about a row of
// the map (its maximum, sum, entropy, ...) is arithmetic between whole vectors, and keys and values are read where they lie.
#pragma once

#include "simd.hpp"

namespace attn::ISA {

constexpr int L = 64;  // query rows of a tile
constexpr int T = 64;  // keys of a tile

#define UNROLL _Pragma("GCC unroll 16")

// Products added up in a register before they join a sum: 64 is 7 % faster and rounds 1.2 times more.
constexpr int64_t kChunk = W == 8 ? 64 : 32;

enum class Into { kNew, kSum, kKept };  // c = product, c += product, c = keep * c + product

// c[r, lane] = sum over k < size of a(r, k) * b[k, lane], for R rows and NV vectors of lanes.
// a(r, k) = a[r * a_stride + k], or a[k * a_stride + r] when Across.
template <int R, int NV, bool Across, Into into>
INLINE void product_chunk(const float* a, int64_t a_stride, const float* b, int64_t size, float* c, const float* keep) {
    V sum[R][NV];
    UNROLL for (int r = 0; r < R; ++r) UNROLL for (int v = 0; v < NV; ++v) sum[r][v] = set(0);
    for (int64_t k = 0; k < size; ++k) {
        V lanes[NV];
        UNROLL for (int v = 0; v < NV; ++v) lanes[v] = load(b + k * L + v * W);
        UNROLL for (int r = 0; r < R; ++r) {
            const V each = set(Across ? a[k * a_stride + r] : a[r * a_stride + k]);
            UNROLL for (int v = 0; v < NV; ++v) sum[r][v] = fma(each, lanes[v], sum[r][v]);
        }
    }
    UNROLL for (int r = 0; r < R; ++r) UNROLL for (int v = 0; v < NV; ++v) {
        float* at = c + r * L + v * W;
        if (into == Into::kSum) sum[r][v] = add(load(at), sum[r][v]);
        if (into == Into::kKept) sum[r][v] = fma(load(at), load(keep + v * W), sum[r][v]);
        store(at, sum[r][v]);
    }
}

// The same in chunks; keep is null where c is new.
template <int R, int NV, bool Across>
INLINE void product_block(const float* a, int64_t a_stride, const float* b, int64_t size, float* c, const float* keep) {
    const int64_t first = size < kChunk ? size : kChunk;
    if (keep)
        product_chunk<R, NV, Across, Into::kKept>(a, a_stride, b, first, c, keep);
    else
        product_chunk<R, NV, Across, Into::kNew>(a, a_stride, b, first, c, keep);
    for (int64_t k = kChunk; k < size; k += kChunk) {
        const int64_t part = size - k < kChunk ? size - k : kChunk;
        product_chunk<R, NV, Across, Into::kSum>(a + k * (Across ? a_stride : 1), a_stride, b + k * L, part, c, keep);
    }
}

// The rows that are left when no whole block of kRows[NV] fits.
template <int R, int NV, bool Across>
static void product_tail(int64_t rows, const float* a, int64_t a_stride, const float* b, int64_t size, float* c,
                         const float* keep) {
    if constexpr (R > 0) {
        if (rows == R) return product_block<R, NV, Across>(a, a_stride, b, size, c, keep);
        product_tail<R - 1, NV, Across>(rows, a, a_stride, b, size, c, keep);
    }
}

template <int NV, bool Across>
static void product_lanes(int64_t rows, const float* a, int64_t a_stride, const float* b, int64_t size, float* c,
                          const float* keep) {
    constexpr int R = kRows[NV];
    const int64_t step = Across ? 1 : a_stride;
    int64_t r = 0;
    for (; r + R <= rows; r += R) product_block<R, NV, Across>(a + r * step, a_stride, b, size, c + r * L, keep);
    product_tail<R - 1, NV, Across>(rows - r, a + r * step, a_stride, b, size, c + r * L, keep);
}

// The same for any number of rows and up to kVectors vectors of lanes.
template <bool Across, int NV = kVectors>
static void product(int vectors, int64_t rows, const float* a, int64_t a_stride, const float* b, int64_t size, float* c,
                    const float* keep) {
    if constexpr (NV > 0) {
        if (vectors == NV) return product_lanes<NV, Across>(rows, a, a_stride, b, size, c, keep);
        product<Across, NV - 1>(vectors, rows, a, a_stride, b, size, c, keep);
    }
}

// (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2, a minimax fit that makes exp(r) right to 3e-9.
INLINE V exp_tail(V r) {
    V q = set(0x1.6a23cep-10f);
    q = fma(q, r, set(0x1.123a20p-7f));
    q = fma(q, r, set(0x1.5558f2p-5f));
    q = fma(q, r, set(0x1.555492p-3f));
    return fma(q, r, set(0x1.fffffcp-2f));
}

// x - n ln 2; ln 2 in two parts, the first short enough that n times it is exact.
INLINE V rest_of(V x, V power) {
    const V n = whole(power);
    return fnma(n, set(-2.12194440e-4f), fnma(n, set(0.693359375f), x));
}

// exp(x) for x <= 88, exactly 0 below -87 (also for -inf), NaN for NaN; off by at most 1.3 units in the last place.
INLINE V exponential(V x) {
    const V power = power_of(x), r = rest_of(x, power);
    const V p = fma(fma(exp_tail(r), r, set(1)), r, set(1));
    return where(not_less(x, set(-87.0f)), times_power(p, power));
}

// tanh(x): near 0, where 1 - 2 / (exp(2x) + 1) would lose digits, by a minimax fit right to 7e-9.
INLINE V tanh_of(V x) {
    const V u = mul(x, x), size = magnitude(x);
    V q = set(-0x1.75623cp-8f);
    q = fma(q, u, set(0x1.520b2cp-6f));
    q = fma(q, u, set(-0x1.b83854p-5f));
    q = fma(q, u, set(0x1.11070ap-3f));
    q = fma(q, u, set(-0x1.555532p-2f));
    const V near = fma(mul(q, u), x, x);
    const V far = sub(set(1), divide(set(2), add(exponential(lesser_of(set(20), add(size, size))), set(1))));
    return select(less(size, set(0.625f)), near, select(less(x, set(0)), sub(set(0), far), far));
}

// out[j, i] = in[i, j] for i < rows, j < columns.
INLINE void transpose(const float* in, int64_t in_stride, int64_t rows, int64_t columns, float* out, int64_t out_stride) {
    for (int64_t i = 0; i < rows; i += W)
        for (int64_t j = 0; j < columns; j += W) {
            if (i + W <= rows && j + W <= columns) {
                transpose_block(in + i * in_stride + j, in_stride, out + j * out_stride + i, out_stride);
                continue;
            }
            for (int64_t a = i; a < rows && a < i + W; ++a)
                for (int64_t b = j; b < columns && b < j + W; ++b) out[b * out_stride + a] = in[a * in_stride + b];
        }
}

}  // namespace attn::ISA
