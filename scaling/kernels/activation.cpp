// Activations: φ(x) and its slope at once, alone or beside the numbers that φ(x) gates.
#include "lanes.h"

struct At {
    Lanes value, slope;
};

// x σ(z), z = √(8/π) (x + 0.044715 x³): as ½ (1 + tanh u) = σ(2u), this is GeLU's tanh form, ½ x (1 + tanh(z/2)).
struct GeLU {
    static At at(Lanes x) {
        const float linear = 1.5957691216057308f, cubic = 0.044715f * linear;
        const Lanes square = x * x, gate = logistic(x * (linear + cubic * square)), value = x * gate;
        return {value, gate + value * (1.0f - gate) * (linear + 3.0f * cubic * square)};
    }
};

struct SiLU {
    static At at(Lanes x) {
        const Lanes gate = logistic(x), value = x * gate;
        return {value, gate + value * (1.0f - gate)};
    }
};

// f(i, count) for all numbers up to n, on all threads.
template <typename F>
static void everywhere(int64_t n, int64_t threads, F f) {
    const int64_t block = 1 << 13, blocks = (n + block - 1) / block;
    const int64_t workers = thread_count(n, threads);
#pragma omp parallel for num_threads(workers) if (workers > 1) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t start = b * block, size = start + block < n ? block : n - start;
        walk(size, [&](int64_t i, int64_t count) { f(start + i, count); });
    }
}

// y = φ(x), and its slope where backward is to come, which is one product then.
template <typename Phi, typename T>
static void activate(const T* x, T* y, T* slope, int64_t n, int64_t threads) {
    everywhere(n, threads, [=](int64_t i, int64_t count) {
        const At at = Phi::at(load(x + i, count));
        store(y + i, count, at.value);
        if (slope) store(slope + i, count, at.slope);
    });
}

// y = φ(gate) ⊙ x
template <typename Phi, typename T>
static void gated(const T* gate, const T* x, T* y, int64_t n, int64_t threads) {
    everywhere(n, threads, [=](int64_t i, int64_t count) {
        store(y + i, count, Phi::at(load(gate + i, count)).value * load(x + i, count));
    });
}

// ∂gate = ∂y ⊙ x ⊙ φ'(gate), ∂x = ∂y ⊙ φ(gate)
template <typename Phi, typename T>
static void gated_backward(const T* dy, const T* gate, const T* x, T* dgate, T* dx, int64_t n, int64_t threads) {
    everywhere(n, threads, [=](int64_t i, int64_t count) {
        const At at = Phi::at(load(gate + i, count));
        const Lanes upstream = load(dy + i, count);
        store(dgate + i, count, upstream * load(x + i, count) * at.slope);
        store(dx + i, count, upstream * at.value);
    });
}

EXPORT(gelu, activate<GeLU, T>)
EXPORT(gelu_gated, gated<GeLU, T>)
EXPORT(gelu_gated_backward, gated_backward<GeLU, T>)
EXPORT(silu, activate<SiLU, T>)
EXPORT(silu_gated, gated<SiLU, T>)
EXPORT(silu_gated_backward, gated_backward<SiLU, T>)
