// One vector of floats and what the kernels do with it, for the instruction set that this file is compiled for.
// Everything lives in a namespace named after it and is static: see call.hpp for why.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

// power_of(x) stands for the whole number n nearest to x / ln 2; whole() gives n, times_power(a, .) a * 2^n. Without an
// instruction for it, n is added to a number whose last binary place is 1: its low bits are then n, to go into an exponent.
constexpr float kLog2e = 1.44269504f, kWhole = 12582912.0f;

#if defined(ATTN_AVX512)
#include <immintrin.h>
#define ISA avx512
namespace attn::ISA {
using V = __m512;
using Flag = __mmask16;
constexpr int W = 16;
// Registers of one micro-kernel: rows for 1, 2, 3, 4 vectors of lanes. 6 x 4 sums + 4 + 1 fit 32 registers.
constexpr int kVectors = 4;
constexpr int kRows[] = {0, 12, 12, 8, 6};
INLINE V load(const float* p) { return _mm512_loadu_ps(p); }
INLINE void store(float* p, V a) { _mm512_storeu_ps(p, a); }
INLINE V set(float a) { return _mm512_set1_ps(a); }
INLINE V add(V a, V b) { return _mm512_add_ps(a, b); }
INLINE V sub(V a, V b) { return _mm512_sub_ps(a, b); }
INLINE V mul(V a, V b) { return _mm512_mul_ps(a, b); }
INLINE V divide(V a, V b) { return _mm512_div_ps(a, b); }
INLINE V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
INLINE V fnma(V a, V b, V c) { return _mm512_fnmadd_ps(a, b, c); }
INLINE V greater_of(V a, V b) { return _mm512_max_ps(a, b); }
INLINE V lesser_of(V a, V b) { return _mm512_min_ps(a, b); }
INLINE V magnitude(V a) { return _mm512_abs_ps(a); }
INLINE V power_of(V a) { return _mm512_roundscale_ps(mul(a, set(kLog2e)), 8); }
INLINE V whole(V power) { return power; }
INLINE V times_power(V a, V power) { return _mm512_scalef_ps(a, power); }
INLINE Flag less(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
INLINE Flag not_less(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
INLINE Flag equal(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
INLINE V select(Flag f, V yes, V no) { return _mm512_mask_blend_ps(f, no, yes); }
INLINE V where(Flag f, V a) { return _mm512_maskz_mov_ps(f, a); }
INLINE void transpose_block(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
    V r[16], t[16];
    for (int i = 0; i < 16; ++i) r[i] = load(in + i * in_stride);
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; ++i) {
        store(out + i * out_stride, _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88));
        store(out + (i + 4) * out_stride, _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88));
        store(out + (i + 8) * out_stride, _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd));
        store(out + (i + 12) * out_stride, _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd));
    }
}
}  // namespace attn::ISA

#elif defined(ATTN_AVX2)
#include <immintrin.h>
#define ISA avx2
namespace attn::ISA {
using V = __m256;
using Flag = __m256;
constexpr int W = 8;
// 6 x 2 sums + 2 + 1 fit 16 registers.
constexpr int kVectors = 2;
constexpr int kRows[] = {0, 12, 6};
INLINE V load(const float* p) { return _mm256_loadu_ps(p); }
INLINE void store(float* p, V a) { _mm256_storeu_ps(p, a); }
INLINE V set(float a) { return _mm256_set1_ps(a); }
INLINE V add(V a, V b) { return _mm256_add_ps(a, b); }
INLINE V sub(V a, V b) { return _mm256_sub_ps(a, b); }
INLINE V mul(V a, V b) { return _mm256_mul_ps(a, b); }
INLINE V divide(V a, V b) { return _mm256_div_ps(a, b); }
INLINE V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
INLINE V fnma(V a, V b, V c) { return _mm256_fnmadd_ps(a, b, c); }
INLINE V greater_of(V a, V b) { return _mm256_max_ps(a, b); }
INLINE V lesser_of(V a, V b) { return _mm256_min_ps(a, b); }
INLINE V magnitude(V a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
INLINE V power_of(V a) { return fma(a, set(kLog2e), set(kWhole)); }
INLINE V whole(V power) { return sub(power, set(kWhole)); }
INLINE V times_power(V a, V power) {
    const __m256i shift = _mm256_slli_epi32(_mm256_castps_si256(power), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), shift));
}
INLINE Flag less(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
INLINE Flag not_less(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_NLT_UQ); }
INLINE Flag equal(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
INLINE V select(Flag f, V yes, V no) { return _mm256_blendv_ps(no, yes, f); }
INLINE V where(Flag f, V a) { return _mm256_and_ps(f, a); }
INLINE void transpose_block(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
    V r[8], t[8];
    for (int i = 0; i < 8; ++i) r[i] = load(in + i * in_stride);
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
        store(out + i * out_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        store(out + (i + 4) * out_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}
}  // namespace attn::ISA

#elif defined(ATTN_NEON)
#include <arm_neon.h>
#define ISA neon
namespace attn::ISA {
using V = float32x4_t;
using Flag = uint32x4_t;
constexpr int W = 4;
constexpr int kVectors = 4;
constexpr int kRows[] = {0, 12, 12, 8, 6};
INLINE V load(const float* p) { return vld1q_f32(p); }
INLINE void store(float* p, V a) { vst1q_f32(p, a); }
INLINE V set(float a) { return vdupq_n_f32(a); }
INLINE V add(V a, V b) { return vaddq_f32(a, b); }
INLINE V sub(V a, V b) { return vsubq_f32(a, b); }
INLINE V mul(V a, V b) { return vmulq_f32(a, b); }
INLINE V divide(V a, V b) { return vdivq_f32(a, b); }
INLINE V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
INLINE V fnma(V a, V b, V c) { return vfmsq_f32(c, a, b); }
INLINE V greater_of(V a, V b) { return vmaxq_f32(a, b); }
INLINE V lesser_of(V a, V b) { return vminq_f32(a, b); }
INLINE V magnitude(V a) { return vabsq_f32(a); }
INLINE V power_of(V a) { return fma(a, set(kLog2e), set(kWhole)); }
INLINE V whole(V power) { return sub(power, set(kWhole)); }
INLINE V times_power(V a, V power) {
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a), vshlq_n_s32(vreinterpretq_s32_f32(power), 23)));
}
INLINE Flag less(V a, V b) { return vcltq_f32(a, b); }
INLINE Flag not_less(V a, V b) { return vmvnq_u32(vcltq_f32(a, b)); }
INLINE Flag equal(V a, V b) { return vceqq_f32(a, b); }
INLINE V select(Flag f, V yes, V no) { return vbslq_f32(f, yes, no); }
INLINE V where(Flag f, V a) { return vreinterpretq_f32_u32(vandq_u32(f, vreinterpretq_u32_f32(a))); }
INLINE void transpose_block(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
    const float32x4x2_t a = vtrnq_f32(load(in), load(in + in_stride));
    const float32x4x2_t b = vtrnq_f32(load(in + 2 * in_stride), load(in + 3 * in_stride));
    store(out, vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0])));
    store(out + out_stride, vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1])));
    store(out + 2 * out_stride, vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0])));
    store(out + 3 * out_stride, vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1])));
}
}  // namespace attn::ISA

#else
#define ISA portable
namespace attn::ISA {
constexpr int W = 4;
struct V {
    float x[W];
};
struct Flag {
    bool x[W];
};
constexpr int kVectors = 2;
constexpr int kRows[] = {0, 4, 4};
#define EACH(T, expression)                              \
    T out;                                               \
    for (int i = 0; i < W; ++i) out.x[i] = (expression); \
    return out
INLINE V load(const float* p) { EACH(V, p[i]); }
INLINE void store(float* p, V a) {
    for (int i = 0; i < W; ++i) p[i] = a.x[i];
}
INLINE V set(float a) { EACH(V, a); }
INLINE V add(V a, V b) { EACH(V, a.x[i] + b.x[i]); }
INLINE V sub(V a, V b) { EACH(V, a.x[i] - b.x[i]); }
INLINE V mul(V a, V b) { EACH(V, a.x[i] * b.x[i]); }
INLINE V divide(V a, V b) { EACH(V, a.x[i] / b.x[i]); }
INLINE V fma(V a, V b, V c) { EACH(V, a.x[i] * b.x[i] + c.x[i]); }
INLINE V fnma(V a, V b, V c) { EACH(V, c.x[i] - a.x[i] * b.x[i]); }
INLINE V greater_of(V a, V b) { EACH(V, a.x[i] > b.x[i] ? a.x[i] : b.x[i]); }
INLINE V lesser_of(V a, V b) { EACH(V, a.x[i] < b.x[i] ? a.x[i] : b.x[i]); }
INLINE V magnitude(V a) { EACH(V, fabsf(a.x[i])); }
INLINE V power_of(V a) { return fma(a, set(kLog2e), set(kWhole)); }
INLINE V whole(V power) { return sub(power, set(kWhole)); }
INLINE float times_power(float a, float power) {
    uint32_t bits, shift;
    memcpy(&bits, &a, 4);
    memcpy(&shift, &power, 4);
    bits += shift << 23;
    memcpy(&a, &bits, 4);
    return a;
}
INLINE V times_power(V a, V power) { EACH(V, times_power(a.x[i], power.x[i])); }
INLINE Flag less(V a, V b) { EACH(Flag, a.x[i] < b.x[i]); }
INLINE Flag not_less(V a, V b) { EACH(Flag, !(a.x[i] < b.x[i])); }
INLINE Flag equal(V a, V b) { EACH(Flag, a.x[i] == b.x[i]); }
INLINE V select(Flag f, V yes, V no) { EACH(V, f.x[i] ? yes.x[i] : no.x[i]); }
INLINE V where(Flag f, V a) { EACH(V, f.x[i] ? a.x[i] : 0.0f); }
INLINE void transpose_block(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
    for (int i = 0; i < W; ++i)
        for (int j = 0; j < W; ++j) out[j * out_stride + i] = in[i * in_stride + j];
}
#undef EACH
}  // namespace attn::ISA
#endif
