// Norms of rows: LayerNorm, and RMSNorm, which is the same about zero.
#include "lanes.h"

#include <vector>

// y = g ⊙ n + b, n = r (x − m), r = 1 / √(mean (x − m)² + ε); m is the row's mean, or 0 where it is not `centred`.
// Returns how many rows have squares that overflow.
template <bool centred, typename T>
static int64_t norm(
    const T* x, const T* gain, const T* bias, T* y, float* mean, float* inverse, int64_t rows, int64_t width, float eps,
    int64_t threads) {
    const int64_t workers = thread_count(rows * width, threads);
    int64_t overflows = 0;
#pragma omp parallel for num_threads(workers) if (workers > 1) schedule(static) reduction(+ : overflows)
    for (int64_t row = 0; row < rows; row++) {
        const T* from = x + row * width;
        T* to = y + row * width;
        Lanes sums = {}, squares = {};
        if (centred) walk(width, [&](int64_t i, int64_t count) { sums += load(from + i, count); });
        const float m = total(sums) / width;
        walk(width, [&](int64_t i, int64_t count) {
            const Lanes away = first(count, load(from + i, count) - m, 0);
            squares += away * away;
        });
        const float r = 1.0f / std::sqrt(total(squares) / width + eps);
        if (r == 0) overflows++;
        walk(width, [&](int64_t i, int64_t count) {
            Lanes made = (load(from + i, count) - m) * r;
            if (gain) made *= load(gain + i, count);
            if (bias) made += load(bias + i, count);
            store(to + i, count, made);
        });
        mean[row] = m;
        inverse[row] = r;
    }
    return overflows;
}

// ∂x = r (u − mean u − n mean(n ⊙ u)), u = g ⊙ ∂y, the mean of u left out where nothing was centred; ∂g = Σ n ⊙ ∂y,
// ∂b = Σ ∂y. The sums over rows are made of blocks whose size knows nothing of threads, so that their number changes
// no bit. Returns how many rows have means that are not finite.
template <bool centred, typename T>
static int64_t norm_backward(
    const T* dy, const T* x, const T* gain, const float* mean, const float* inverse, T* dx, T* dgain, T* dbias,
    int64_t rows, int64_t width, int64_t threads) {
    const int64_t block = 64, blocks = (rows + block - 1) / block, buffer = (width + LANES - 1) / LANES * LANES;
    const bool learns = dgain || dbias;
    std::vector<float> sums(learns ? (blocks + !blocks) * 2 * buffer : 0);
    const int64_t workers = thread_count(rows * width, threads);
    int64_t overflows = 0;
#pragma omp parallel for num_threads(workers) if (workers > 1) schedule(static) reduction(+ : overflows)
    for (int64_t b = 0; b < blocks; b++) {
        float* sum_gain = sums.data() + (learns ? b * 2 * buffer : 0);
        float* sum_bias = sum_gain + (learns ? buffer : 0);
        const int64_t end = (b + 1) * block < rows ? (b + 1) * block : rows;
        for (int64_t row = b * block; row < end; row++) {
            const T *from = x + row * width, *upstream = dy + row * width;
            T* to = dx + row * width;
            const float m = mean[row], r = inverse[row];
            Lanes levels = {}, alongs = {};
            walk(width, [&](int64_t i, int64_t count) {
                const Lanes normal = (load(from + i, count) - m) * r, above = load(upstream + i, count);
                const Lanes u = gain ? above * load(gain + i, count) : above;
                levels += u;
                alongs += u * normal;
                if (learns) {
                    store(sum_gain + i, load(sum_gain + i) + above * normal);
                    store(sum_bias + i, load(sum_bias + i) + above);
                }
            });
            const float level = centred ? total(levels) / width : 0.0f, along = total(alongs) / width;
            if (!std::isfinite(level + along)) overflows++;
            walk(width, [&](int64_t i, int64_t count) {
                const Lanes normal = (load(from + i, count) - m) * r, above = load(upstream + i, count);
                const Lanes u = gain ? above * load(gain + i, count) : above;
                store(to + i, count, r * (u - level - normal * along));
            });
        }
    }
    if (!learns) return overflows;
    for (int64_t b = 1; b < blocks; b++)
        walk(2 * buffer, [&](int64_t i, int64_t) {
            store(sums.data() + i, load(sums.data() + i) + load(sums.data() + b * 2 * buffer + i));
        });
    walk(width, [&](int64_t i, int64_t count) {
        if (dgain) store(dgain + i, count, load(sums.data() + i));
        if (dbias) store(dbias + i, count, load(sums.data() + buffer + i));
    });
    return overflows;
}

EXPORT(layer_norm, norm<true, T>)
EXPORT(layer_norm_backward, norm_backward<true, T>)
EXPORT(rms_norm, norm<false, T>)
EXPORT(rms_norm_backward, norm_backward<false, T>)
