// Lanes: a register of numbers at once, float32 while they are computed with, float32 or bfloat16 in memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#ifdef __AVX2__
#include <immintrin.h>
#endif

// What is wider than the processor's registers goes through memory at every step.
#if defined(__AVX512F__)
constexpr int64_t LANES = 16;
#elif defined(__AVX2__)
constexpr int64_t LANES = 8;
#else
constexpr int64_t LANES = 4;
#endif

// So many numbers, and as many more as fill their last lanes.
static inline int64_t whole(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

struct bfloat16 {
    uint16_t bits;
};

static inline Lanes all(float x) { return x - Lanes{}; }

static inline Lanes load(const float* from) {
    Lanes x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

static inline Lanes load(const bfloat16* from) {
    Halves x;
    std::memcpy(&x, from, sizeof x);
    return reinterpret_cast<Lanes>(__builtin_convertvector(x, Words) << 16);
}

static inline void store(float* to, Lanes x) { std::memcpy(to, &x, sizeof x); }

// To the nearest, ties to even; what is no number stays none, of which the carry would make a zero.
static inline void store(bfloat16* to, Lanes x) {
#ifdef __AVX512BF16__
    const auto made = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(x));
#else
    const Words bits = reinterpret_cast<Words>(x), nearest = bits + 0x7fff + ((bits >> 16) & 1);
    const Halves made = __builtin_convertvector((x != x ? Words{} + 0x7fc00000 : nearest) >> 16, Halves);
#endif
    std::memcpy(to, &made, sizeof made);
}

// One number, as the lanes take it and leave it.
static inline float wide(float x) { return x; }

static inline float wide(bfloat16 x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16); }

static inline void put(float& to, float x) { to = x; }

static inline void put(bfloat16& to, float x) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, x), nearest = bits + 0x7fff + ((bits >> 16) & 1);
    to.bits = static_cast<uint16_t>((x != x ? 0x7fc00000 : nearest) >> 16);
}

// All bits in the first `count` lanes, none in those beyond.
static inline Words among(int64_t count) {
    static const int32_t places[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    Words place;
    std::memcpy(&place, places, sizeof place);
    return place < static_cast<int32_t>(count);
}

// The first `count` lanes of x, and `rest` in those beyond.
static inline Lanes first(int64_t count, Lanes x, float rest) {
    return count >= LANES ? x : among(count) ? x : all(rest);
}

// The end of a row: `count` numbers, and zeros in the lanes beyond.
template <typename T>
static inline Lanes load(const T* from, int64_t count) {
    if (count == LANES) return load(from);
    T some[LANES] = {};
    std::memcpy(some, from, count * sizeof(T));
    return load(some);
}

template <typename T>
static inline void store(T* to, int64_t count, Lanes x) {
    if (count == LANES) return store(to, x);
    T some[LANES];
    store(some, x);
    std::memcpy(to, some, count * sizeof(T));
}

// The same by a mask: to take the long way through memory is most of the time of a short row.
#if defined(__AVX512F__)
static inline __mmask16 mask(int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }

static inline Lanes load(const float* from, int64_t count) {
    return reinterpret_cast<Lanes>(_mm512_maskz_loadu_ps(mask(count), from));
}

static inline void store(float* to, int64_t count, Lanes x) {
    _mm512_mask_storeu_ps(to, mask(count), reinterpret_cast<__m512>(x));
}
#elif defined(__AVX2__)
static inline Lanes load(const float* from, int64_t count) {
    if (count == LANES) return load(from);
    return reinterpret_cast<Lanes>(_mm256_maskload_ps(from, reinterpret_cast<__m256i>(among(count))));
}

static inline void store(float* to, int64_t count, Lanes x) {
    if (count == LANES) return store(to, x);
    _mm256_maskstore_ps(to, reinterpret_cast<__m256i>(among(count)), reinterpret_cast<__m256>(x));
}
#endif

// f(i, count) for the numbers from i on, all lanes of them at a time and then what is left.
template <typename F>
static inline void walk(int64_t n, F f) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) f(i, LANES);
    if (i < n) f(i, n - i);
}

// How many threads are worth waking for so many numbers: as torch has it, one for each 2¹⁵. Where others are at work
// on the machine, every meeting of two threads may wait for one that is not running.
static inline int64_t thread_count(int64_t numbers, int64_t threads) {
    const int64_t worth = numbers >> 15;
    return worth < 1 ? 1 : worth < threads ? worth : threads;
}

static inline Lanes larger(Lanes a, Lanes b) { return a > b ? a : b; }

// Halves of the lanes meet until one number is left.
#if defined(__AVX2__) && !defined(__AVX512F__)
template <typename F>
static inline float folded(Lanes x, F f) {
    const __m256 all = reinterpret_cast<__m256>(x);
    __m128 half = f(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
    half = f(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(f(half, _mm_movehdup_ps(half)));
}
#endif

static inline float total(Lanes x) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps(reinterpret_cast<__m512>(x));
#elif defined(__AVX2__)
    return folded(x, [](__m128 a, __m128 b) { return _mm_add_ps(a, b); });
#else
    float sum = 0;
    for (int64_t i = 0; i < LANES; i++) sum += x[i];
    return sum;
#endif
}

static inline float most(Lanes x) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps(reinterpret_cast<__m512>(x));
#elif defined(__AVX2__)
    return folded(x, [](__m128 a, __m128 b) { return _mm_max_ps(a, b); });
#else
    float top = x[0];
    for (int64_t i = 1; i < LANES; i++) top = x[i] > top ? x[i] : top;
    return top;
#endif
}

// 1/x within two units in the last place: a guess of fourteen bits and one step of Newton's.
static inline Lanes reciprocal(Lanes x) {
#ifdef __AVX512F__
    const Lanes guess = reinterpret_cast<Lanes>(_mm512_rcp14_ps(reinterpret_cast<__m512>(x)));
    return guess * (2.0f - x * guess);
#else
    return 1.0f / x;
#endif
}

// eˣ within two units in the last place: 2ⁿ times a polynomial in what is left, after Cephes. 0 below −87.3, where
// float32 has no normal numbers, and e^88 from there on.
static inline Lanes exponential(Lanes x) {
    // What is added to n is 1.5 · 2²³, so that its last bits are whole, and 127, as an exponent is stored.
    const float low = -87.3f, high = 88.0f, shift = 12582912.0f + 127.0f;
    // The comparisons are so ordered that NaN comes through; and 2ⁿ is a factor, because to add n to the bits of p would
    // make a number of a NaN.
    Lanes y = x < low ? all(low) : x;
    y = y > high ? all(high) : y;
    const Lanes shifted = y * 1.44269504f + shift, n = shifted - shift;  // the nearest whole number, in the last bits
    const Lanes r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
    Lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + (r + 1.0f);
    return x < low ? Lanes{} : p * reinterpret_cast<Lanes>(reinterpret_cast<Words>(shifted) << 23);
}

// 0 where e⁻ˣ has no room.
static inline Lanes logistic(Lanes x) { return x < -87.0f ? Lanes{} : reciprocal(1.0f + exponential(-x)); }

// Export a kernel, a function of the number type T, for both types. A template has no C name, so pointers are exported.
#define EXPORT(name, ...)                                   \
    namespace of_float32 {                                  \
    using T = float;                                        \
    extern "C" { auto* name##_float32 = &__VA_ARGS__; }     \
    }                                                       \
    namespace of_bfloat16 {                                 \
    using T = bfloat16;                                     \
    extern "C" { auto* name##_bfloat16 = &__VA_ARGS__; }    \
    }
