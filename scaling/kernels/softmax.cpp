// Softmax: the weights of attention, and a classifier's losses with their gradient.
#include "lanes.h"

#include <algorithm>
#include <vector>

static const int64_t IGNORE = -100;

// Whole lanes of a row where it has room for them: what is beyond `seen` in the last is nothing, and costs nothing.
static int64_t rounded(int64_t seen, int64_t keys) { return std::min(whole(seen), keys); }

// x becomes e^(x − its largest), n whole lanes of it; the sum comes back, and the largest is told.
static float exponentials(float* x, int64_t n, float& top) {
    if (!n) return top = 0;
    Lanes tops = load(x), sums = {};
    for (int64_t i = LANES; i < n; i += LANES) tops = larger(tops, load(x + i));
    top = most(tops);
    for (int64_t i = 0; i < n; i += LANES) {
        const Lanes made = exponential(load(x + i) - top);
        store(x + i, made);
        sums += made;
    }
    return total(sums);
}

// Rows of [b, h, t, s], in place: softmax(scale x + added), added [b or 1, h or 1, t or 1, s] by its strides; where it
// is `causal` row i of a square sees i + 1 numbers, and the rest are zeros.
template <typename T>
static void softmax(
    T* x, const T* added, int64_t rows, int64_t heads, int64_t queries, int64_t keys, int64_t batch_stride,
    int64_t head_stride, int64_t query_stride, float scale, int64_t causal, int64_t threads) {
    const int64_t workers = thread_count(rows * keys, threads);
#pragma omp parallel num_threads(workers) if (workers > 1)
    {
        std::vector<float> buffer(whole(keys));
        float* row = buffer.data();
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            const int64_t query = r % queries, seen = causal ? query + 1 : keys, until = rounded(seen, keys);
            const int64_t batch = r / queries / heads, head = r / queries % heads;
            const T* here = added + (added ? batch * batch_stride + head * head_stride + query * query_stride : 0);
            T* own = x + r * keys;
            walk(until, [&](int64_t i, int64_t count) {
                Lanes logit = load(own + i, count) * scale;
                if (added) logit += load(here + i, count);
                store(row + i, first(seen - i, logit, -INFINITY));
            });
            float top;
            const float share = 1.0f / exponentials(row, whole(seen), top);
            walk(until, [&](int64_t i, int64_t count) { store(own + i, count, load(row + i) * share); });
            T beyond;
            put(beyond, share - share);  // 0, and NaN where the row is
            std::fill(own + until, own + keys, beyond);
        }
    }
}

// ∂x = scale p ⊙ (∂p − Σ p ⊙ ∂p)
template <typename T>
static void softmax_backward(
    const T* dp, const T* p, T* dx, int64_t rows, int64_t queries, int64_t keys, float scale, int64_t causal,
    int64_t threads) {
    const int64_t workers = thread_count(rows * keys, threads);
#pragma omp parallel for num_threads(workers) if (workers > 1) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const int64_t seen = causal ? r % queries + 1 : keys, until = rounded(seen, keys);
        const T *upstream = dp + r * keys, *chance = p + r * keys;
        T* to = dx + r * keys;
        Lanes alongs = {};
        walk(until, [&](int64_t i, int64_t count) { alongs += load(upstream + i, count) * load(chance + i, count); });
        const float along = total(alongs);
        walk(until, [&](int64_t i, int64_t count) {
            const Lanes below = scale * load(chance + i, count) * (load(upstream + i, count) - along);
            store(to + i, count, first(seen - i, below, 0));
        });
        std::fill(to + until, to + keys, T{});
    }
}

// −(1 − ε) log p[target] − ε mean log p of each row of logits, 0 where the target is to be ignored; and its gradient,
// p − (1 − ε) δ(target) − ε/v, where one is asked for.
template <typename T>
static void cross_entropy(
    const T* logits, const int64_t* targets, float* losses, T* gradient, int64_t rows, int64_t classes, float smoothing,
    int64_t threads) {
    const int64_t workers = thread_count(rows * classes, threads);
#pragma omp parallel num_threads(workers) if (workers > 1)
    {
        std::vector<float> buffer(whole(classes));
        float* row = buffer.data();
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            const T* own = logits + r * classes;
            T* made = gradient ? gradient + r * classes : nullptr;
            const int64_t target = targets[r];
            if (target < 0 || target >= classes) {
                losses[r] = target == IGNORE ? 0 : NAN;
                if (made) std::fill(made, made + classes, T{});
                continue;
            }
            walk(classes, [&](int64_t i, int64_t count) {
                store(row + i, first(count, load(own + i, count), -INFINITY));
            });
            float top;
            const float at = row[target], sum = exponentials(row, whole(classes), top);
            // Differences first: beside a large logit the logarithm would be lost.
            losses[r] = std::log(sum) + (1 - smoothing) * (top - at);
            if (smoothing) {
                Lanes gaps = {};
                walk(classes, [&](int64_t i, int64_t count) { gaps += first(count, top - load(own + i, count), 0); });
                losses[r] += smoothing * total(gaps) / classes;
            }
            if (!made) continue;
            const float share = 1.0f / sum, apart = smoothing / classes;
            row[target] -= (1 - smoothing) * sum;
            walk(classes, [&](int64_t i, int64_t count) { store(made + i, count, load(row + i) * share - apart); });
        }
    }
}

EXPORT(softmax, softmax<T>)
EXPORT(softmax_backward, softmax_backward<T>)
EXPORT(cross_entropy, cross_entropy<T>)
