// Tensors of any type, read and written as float32.
#pragma once

#include "call.hpp"
#include "simd.hpp"

namespace attn::ISA {

INLINE float from_bits(uint32_t bits) {
    float out;
    memcpy(&out, &bits, 4);
    return out;
}

INLINE uint32_t to_bits(float value) {
    uint32_t out;
    memcpy(&out, &value, 4);
    return out;
}

INLINE float from_half(uint16_t half) {
    const float size = from_bits((half & 0x7fffu) << 13) * 0x1p112f;  // right for denormals too
    const uint32_t special = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
    return from_bits(to_bits(size) | special | (half & 0x8000u) << 16);
}

INLINE uint16_t to_half(float value) {
    const uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
    if (size >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
    // adding a number whose last place is the half's last place rounds there, to even
    if (size < 0x38800000u) return static_cast<uint16_t>(sign | (to_bits(from_bits(size) + 0.5f) - 0x3f000000u));
    return static_cast<uint16_t>(sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13));
}

INLINE float from_bfloat(uint16_t bits) { return from_bits(static_cast<uint32_t>(bits) << 16); }

INLINE uint16_t to_bfloat(float value) {
    const uint32_t bits = to_bits(value);
    if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

INLINE int64_t bytes_of(int type) { return type == kFloat64 ? 8 : type == kFloat32 ? 4 : type == kBool ? 1 : 2; }

INLINE const char* at(const Tensor& t, int64_t a, int64_t b, int64_t c, int64_t d) {
    return t.data + bytes_of(t.type) * (a * t.stride[0] + b * t.stride[1] + c * t.stride[2] + d * t.stride[3]);
}

template <class From, class Convert>
INLINE void read_as(const char* from, int64_t stride, int64_t size, float* out, Convert convert) {
    const From* values = reinterpret_cast<const From*>(from);
    if (stride == 1)
        for (int64_t i = 0; i < size; ++i) out[i] = convert(values[i]);
    else
        for (int64_t i = 0; i < size; ++i) out[i] = convert(values[i * stride]);
}

// `size` elements of any type as float32; a bool becomes 0 (visible) or -inf (hidden), as a mask adds to a score.
static void read(const char* from, int type, int64_t stride, int64_t size, float* out) {
    if (type == kFloat32) read_as<float>(from, stride, size, out, [](float x) { return x; });
    if (type == kFloat16) read_as<uint16_t>(from, stride, size, out, [](uint16_t x) { return from_half(x); });
    if (type == kBfloat16) read_as<uint16_t>(from, stride, size, out, [](uint16_t x) { return from_bfloat(x); });
    if (type == kFloat64) read_as<double>(from, stride, size, out, [](double x) { return static_cast<float>(x); });
    if (type == kBool) read_as<uint8_t>(from, stride, size, out, [](uint8_t x) { return x ? 0.0f : -INFINITY; });
}

template <class To, class Convert>
INLINE void write_as(char* to, int64_t stride, int64_t size, const float* in, Convert convert) {
    To* values = reinterpret_cast<To*>(to);
    if (stride == 1)
        for (int64_t i = 0; i < size; ++i) values[i] = convert(in[i]);
    else
        for (int64_t i = 0; i < size; ++i) values[i * stride] = convert(in[i]);
}

static void write(char* to, int type, int64_t stride, int64_t size, const float* in) {
    if (type == kFloat32) write_as<float>(to, stride, size, in, [](float x) { return x; });
    if (type == kFloat16) write_as<uint16_t>(to, stride, size, in, [](float x) { return to_half(x); });
    if (type == kBfloat16) write_as<uint16_t>(to, stride, size, in, [](float x) { return to_bfloat(x); });
}
}  // namespace attn::ISA
