// Depthwise convolution: a number a channel and neighbour, every token's neighbours read in one pass.
#include "lanes.h"

#include <vector>

// Rows of x hold `length` tokens and the `taps` − 1 that stand around them; taps [k, w], or [b, t, k, w] by the strides
// of its first two dimensions; seen [b or 1, t, k], or none.
struct Shape {
    int64_t rows, length, taps, width, taps_batch, taps_token, seen_batch;

    int64_t place(int64_t b, int64_t t) const { return (b * (length + taps - 1) + t) * width; }
    int64_t tap(int64_t b, int64_t t, int64_t j) const { return b * taps_batch + t * taps_token + j * width; }
    bool shared() const { return !taps_token; }
};

template <typename T>
static inline float visible(const T* seen, const Shape& n, int64_t b, int64_t t, int64_t j) {
    return seen ? wide(seen[b * n.seen_batch + t * n.taps + j]) : 1.0f;
}

template <typename T>
static void depthwise(const T* x, const T* taps, const T* seen, T* y, const Shape* shape, int64_t threads) {
    const Shape& n = *shape;
    const int64_t workers = thread_count(n.rows * n.length * n.width, threads);
#pragma omp parallel for num_threads(workers) if (workers > 1) schedule(static)
    for (int64_t b = 0; b < n.rows; b++)
        for (int64_t t = 0; t < n.length; t++)
            walk(n.width, [&](int64_t i, int64_t count) {
                Lanes sum = {};
                for (int64_t j = 0; j < n.taps; j++)
                    sum += load(x + n.place(b, t + j) + i, count) *
                           (load(taps + n.tap(b, t, j) + i, count) * visible(seen, n, b, t, j));
                store(y + (b * n.length + t) * n.width + i, count, sum);
            });
}

// ∂x adds up the tokens that a place was a neighbour of. Of taps that all places share lanes of channels are a thread's,
// who goes through the places in their order; others' gradients are one product each.
template <typename T>
static void depthwise_backward(
    const T* dy, const T* x, const T* taps, const T* seen, T* dx, T* dtaps, const Shape* shape,
    int64_t threads) {
    const Shape& n = *shape;
    const int64_t workers = thread_count(n.rows * n.length * n.width, threads), chunks = whole(n.width) / LANES;
#pragma omp parallel num_threads(workers) if (workers > 1)
    {
#pragma omp for schedule(static)
        for (int64_t b = 0; b < n.rows; b++) {
            const T* upstream = dy + b * n.length * n.width;
            for (int64_t s = 0; s < n.length + n.taps - 1; s++)
                walk(n.width, [&](int64_t i, int64_t count) {
                    Lanes sum = {};
                    for (int64_t j = 0; j < n.taps; j++) {
                        const int64_t t = s - j;
                        if (t < 0 || t >= n.length) continue;
                        sum += load(upstream + t * n.width + i, count) *
                               (load(taps + n.tap(b, t, j) + i, count) * visible(seen, n, b, t, j));
                    }
                    store(dx + n.place(b, s) + i, count, sum);
                });
            for (int64_t t = 0; t < n.length && !n.shared(); t++)
                for (int64_t j = 0; j < n.taps; j++)
                    walk(n.width, [&](int64_t i, int64_t count) {
                        const Lanes one = load(upstream + t * n.width + i, count) * visible(seen, n, b, t, j);
                        store(dtaps + n.tap(b, t, j) + i, count, one * load(x + n.place(b, t + j) + i, count));
                    });
        }
#pragma omp for schedule(static)
        for (int64_t chunk = 0; chunk < (n.shared() ? chunks : 0); chunk++) {
            const int64_t i = chunk * LANES, count = n.width - i < LANES ? n.width - i : LANES;
            std::vector<Lanes> sums(n.taps);
            for (int64_t b = 0; b < n.rows; b++)
                for (int64_t t = 0; t < n.length; t++) {
                    const Lanes upstream = load(dy + (b * n.length + t) * n.width + i, count);
                    for (int64_t j = 0; j < n.taps; j++)
                        sums[j] += upstream * visible(seen, n, b, t, j) * load(x + n.place(b, t + j) + i, count);
                }
            for (int64_t j = 0; j < n.taps; j++) store(dtaps + j * n.width + i, count, sums[j]);
        }
    }
}

EXPORT(depthwise, depthwise<T>)
EXPORT(depthwise_backward, depthwise_backward<T>)
