// Turns: heads before tokens, and back.
#include <cstdint>
#include <cstring>

// [a, b, c, d] as [a, c, b, d], d in bytes and without gaps, a, b and c by their strides in bytes.
template <int64_t size>
static void turn(
    const char* from, char* to, int64_t a, int64_t b, int64_t c, int64_t d, int64_t a_stride, int64_t b_stride,
    int64_t c_stride, int64_t threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t ac = 0; ac < a * c; ac++) {
        const char* own = from + ac / c * a_stride + ac % c * c_stride;
        char* made = to + ac * b * d;
        for (int64_t i = 0; i < b; i++) {
            const char* piece = own + i * b_stride;
            for (int64_t k = 0; k < d; k += size) std::memcpy(made + i * d + k, piece + k, size);
        }
    }
}

extern "C" void turn(
    const char* from, char* to, int64_t a, int64_t b, int64_t c, int64_t d, int64_t a_stride, int64_t b_stride,
    int64_t c_stride, int64_t threads) {
    const auto run = d % 64 == 0 ? turn<64> : d % 32 == 0 ? turn<32> : d % 8 == 0 ? turn<8> : turn<2>;
    run(from, to, a, b, c, d, a_stride, b_stride, c_stride, threads);
}
