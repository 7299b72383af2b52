// Rotations: rotary positions.
#include "lanes.h"

// Each pair (x_i, x_{i+half}) of a head turned by its angle, forwards or, where `way` is −1, back; the rest stays. Both
// sides are [b, t, h, d] by their strides over b, t and h; the angles are [b or 1, t, half].
template <typename T>
static void rotate(
    const T* from, T* to, const float* cosine, const float* sine, int64_t rows, int64_t tokens, int64_t heads,
    int64_t width, int64_t half, int64_t from_row, int64_t from_token, int64_t from_head, int64_t to_row,
    int64_t to_token, int64_t to_head, int64_t angle_row, float way, int64_t threads) {
    const int64_t workers = thread_count(rows * tokens * heads * width, threads);
#pragma omp parallel for num_threads(workers) if (workers > 1) schedule(static)
    for (int64_t at = 0; at < rows * tokens; at++) {
        const int64_t row = at / tokens, token = at % tokens;
        const float *c = cosine + row * angle_row + token * half, *s = sine + row * angle_row + token * half;
        for (int64_t head = 0; head < heads; head++) {
            const T* x = from + row * from_row + token * from_token + head * from_head;
            T* y = to + row * to_row + token * to_token + head * to_head;
#pragma omp simd
            for (int64_t i = 0; i < half; i++) {
                const float one = wide(x[i]), other = wide(x[i + half]), turn = way * s[i];
                put(y[i], one * c[i] - other * turn);
                put(y[i + half], other * c[i] + one * turn);
            }
            for (int64_t i = 2 * half; i < width; i++) y[i] = x[i];
        }
    }
}

EXPORT(rotate, rotate<T>)
