// softmax(scale q kᵀ + added) v of every head, block by block of queries: no matrix of queries by keys goes to memory.
#include "lanes.h"

#include <algorithm>
#include <vector>

static const int64_t BLOCK = 32;  // queries: their logits for 256 keys are 32 KiB

static int64_t eights(int64_t n) { return (n + 7) / 8 * 8; }

// The width of a head as it lies side by side: whole lanes, and whole tiles where it is laid across.
static int64_t padded(int64_t width) { return eights(whole(width)); }

struct Sizes {
    int64_t batch, queries, keys, heads, key_heads, width, value_width;

    int64_t group() const { return key_heads ? heads / key_heads : 0; }  // queries' heads that share keys
};

// [b, t or s, h or g, …] by the strides of its first three dimensions; 0 where one serves all.
template <typename T>
struct Strided {
    T* first;
    int64_t batch, token, head;

    T* at(int64_t b, int64_t t, int64_t h) const { return first + b * batch + t * token + h * head; }
    explicit operator bool() const { return first; }
};

typedef Strided<const float> In;
typedef Strided<float> Out;

// c = a b, or c + a b: R rows by C lanes, whose sums stay in registers.
template <int R, int C>
static inline void tile(
    int64_t depth, const float* a, int64_t a_row, int64_t a_depth, const float* b, int64_t b_row, float* c,
    int64_t c_row, bool more) {
    Lanes sums[R][C];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int l = 0; l < C; l++) sums[r][l] = more ? load(c + r * c_row + l * LANES) : Lanes{};
    for (int64_t k = 0; k < depth; k++) {
        Lanes right[C];
#pragma GCC unroll 16
        for (int l = 0; l < C; l++) right[l] = load(b + k * b_row + l * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const Lanes left = all(a[r * a_row + k * a_depth]);
#pragma GCC unroll 16
            for (int l = 0; l < C; l++) sums[r][l] += left * right[l];
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int l = 0; l < C; l++) store(c + r * c_row + l * LANES, sums[r][l]);
}

// A number of rows that is a multiple of eight, and whole lanes of columns, in tiles that fill the registers.
static void product(
    int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t a_row, int64_t a_depth, const float* b,
    int64_t b_row, float* c, int64_t c_row, bool more = false) {
    int64_t j = 0;
    const auto tiles = [&](auto made, int64_t tall, int64_t wide) {
        for (; j + wide * LANES <= columns; j += wide * LANES)
            for (int64_t i = 0; i < rows; i += tall)
                made(depth, a + i * a_row, a_row, a_depth, b + j, b_row, c + i * c_row + j, c_row, more);
    };
#ifdef __AVX512F__
    tiles(tile<4, 4>, 4, 4);
    tiles(tile<8, 2>, 8, 2);
    tiles(tile<8, 1>, 8, 1);
#else
    tiles(tile<4, 2>, 4, 2);
    tiles(tile<8, 1>, 8, 1);
#endif
}

// Rows of a head, side by side, times a factor; zeros to the end of their lanes, and in rows beyond. Returns whether all
// numbers are finite.
static bool pack(
    const float* from, int64_t stride, int64_t rows, int64_t width, float factor, float* to, int64_t until) {
    const int64_t buffer = padded(width);
    Lanes zeros = {};
    for (int64_t i = 0; i < rows; i++)
        walk(width, [&](int64_t j, int64_t count) {
            const Lanes x = load(from + i * stride + j, count) * factor;
            zeros += x - x;
            store(to + i * buffer + j, x);
        });
    std::fill(to + rows * buffer, to + until * buffer, 0.0f);
    return total(zeros) == 0;
}

static void transpose(const float* from, int64_t rows, int64_t row, int64_t columns, float* to, int64_t to_row) {
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++) to[j * to_row + i] = from[i * row + j];
}

// Store a row times a factor, and return whether all numbers are finite.
static inline bool store_scaled(const float* row, int64_t width, float factor, float* to) {
    Lanes zeros = {};
    walk(width, [&](int64_t j, int64_t lanes) {
        const Lanes x = load(row + j) * factor;
        zeros += x - x;
        store(to + j, lanes, x);
    });
    return total(zeros) == 0;
}

// What is added to a row's logits, and its end: in the lanes beyond what is seen there is nothing.
static inline void add(float* row, const float* added, int64_t seen) {
    const int64_t whole = seen / LANES * LANES, rest = seen - whole;
    for (int64_t j = 0; added && j < whole; j += LANES) store(row + j, load(row + j) + load(added + j));
    if (!rest) return;
    const Lanes x = added ? load(row + whole) + load(added + whole, rest) : load(row + whole);
    store(row + whole, first(rest, x, -INFINITY));
}

// Whole lanes of numbers that begin where a cache line does: no load or store lies across two.
struct Buffer {
    std::vector<Lanes> lanes;

    explicit Buffer(int64_t numbers) : lanes(numbers / LANES) {}
    float* data() { return reinterpret_cast<float*>(lanes.data()); }
    bool empty() const { return lanes.empty(); }
    void clear() { std::fill(lanes.begin(), lanes.end(), Lanes{}); }
};

// The buffers of one thread: a head's keys and values, and what a block of its queries makes of them.
struct Workspace {
    const Sizes& n;
    // `row` is what a row of queries by keys takes: not a power of two, at which its numbers would fight for cache lines.
    int64_t keys, row, wide, value_wide;
    bool finite;  // all keys and values
    Buffer k, v, kt, vt, q, out, weights, slopes, below, dkt, dvt;

    Workspace(const Sizes& n, bool backward)
        : n(n), keys(whole(n.keys)), row(keys + LANES), wide(padded(n.width)), value_wide(padded(n.value_width)),
          k(keys * wide), v(keys * value_wide), kt(n.width * row), vt(backward ? n.value_width * row : 0),
          q(BLOCK * wide), out(BLOCK * value_wide), weights(BLOCK * row), slopes(backward ? BLOCK * row : 0),
          below(backward ? BLOCK * wide : 0), dkt(backward ? wide * row : 0), dvt(backward ? value_wide * row : 0) {}

    void load_head(const In& keys_of, const In& values_of, int64_t b, int64_t g) {
        finite = pack(keys_of.at(b, 0, g), keys_of.token, n.keys, n.width, 1.0f, k.data(), keys);
        finite &= pack(values_of.at(b, 0, g), values_of.token, n.keys, n.value_width, 1.0f, v.data(), keys);
        transpose(k.data(), keys, wide, n.width, kt.data(), row);
        if (!vt.empty()) transpose(v.data(), keys, value_wide, n.value_width, vt.data(), row);
    }
};

// A block of queries: `count` from `start` on, in `rows` of the buffers, which meet keys before `until`: those that some
// of them sees, or all where not all numbers are finite, for then a weight of 0 makes a NaN of one.
struct Block {
    int64_t b, h, start, count, rows, until;
    bool causal;

    Block(const Workspace& work, int64_t b, int64_t h, int64_t start, bool causal)
        : b(b), h(h), start(start), count(std::min(BLOCK, work.n.queries - start)), rows(eights(count)),
          until(causal && work.finite ? std::min(whole(start + count), work.keys) : work.keys), causal(causal) {}

    int64_t seen(const Workspace& work, int64_t i) const { return causal ? start + i + 1 : work.n.keys; }
    int64_t place(const Workspace& work, int64_t i) const { return (b * work.n.heads + h) * work.n.queries + start + i; }
};

static void logits(Workspace& work, Block& block, const In& q, const In& added, float scale) {
    if (!pack(q.at(block.b, block.start, block.h), q.token, block.count, work.n.width, scale, work.q.data(), BLOCK))
        block.until = work.keys;
    product(
        block.rows, block.until, work.n.width, work.q.data(), work.wide, 1, work.kt.data(), work.row,
        work.weights.data(), work.row);
    for (int64_t i = 0; i < block.count; i++) {
        const float* here = added ? added.at(block.b, block.start + i, block.h) : nullptr;
        add(work.weights.data() + i * work.row, here, block.seen(work, i));
    }
}

// Rows go through a step together before the next: alone each would wait for its own largest and its own sum.
static void forward(
    Workspace& work, Block block, const In& q, const In& added, const Out& out, float* tops, float* shares,
    float scale) {
    float* const largest = tops + block.place(work, 0);
    float* const share = shares + block.place(work, 0);
    Lanes sums[BLOCK];
    logits(work, block, q, added, scale);
    for (int64_t i = 0; i < block.count; i++) {
        const float* row = work.weights.data() + i * work.row;
        Lanes top = load(row);
        for (int64_t j = LANES; j < block.seen(work, i); j += LANES) top = larger(top, load(row + j));
        largest[i] = most(top);
    }
    for (int64_t i = 0; i < block.count; i++) {
        const int64_t seen = block.seen(work, i);
        float* row = work.weights.data() + i * work.row;
        Lanes sum = {};
        for (int64_t j = 0; j < seen; j += LANES) {
            const Lanes made = exponential(load(row + j) - largest[i]);
            store(row + j, made);
            sum += made;
        }
        sums[i] = sum;
        for (int64_t j = whole(seen); j < block.until; j += LANES) store(row + j, Lanes{});
    }
    for (int64_t i = 0; i < block.count; i++) share[i] = work.n.keys ? 1.0f / total(sums[i]) : 0;
    const auto mixed = [&](bool divided) {
        bool finite = true;
        product(
            block.rows, work.value_wide, block.until, work.weights.data(), work.row, 1, work.v.data(), work.value_wide,
            work.out.data(), work.value_wide);
        for (int64_t i = 0; i < block.count; i++) {
            float* const to = out.at(block.b, block.start + i, block.h);
            finite &= store_scaled(work.out.data() + i * work.value_wide, work.n.value_width, divided ? 1 : share[i], to);
        }
        return finite;
    };
    if (mixed(false)) return;
    // The sum may overflow where the average does not: once more, with weights that add up to one.
    for (int64_t i = 0; i < block.count; i++) {
        float* row = work.weights.data() + i * work.row;
        for (int64_t j = 0; j < block.until; j += LANES) store(row + j, load(row + j) * share[i]);
    }
    mixed(true);
}

static void backward(
    Workspace& work, Block block, const In& upstream, const In& q, const In& added, const In& out, const float* tops,
    const float* shares, const Out& dq, const Out& dadded, float scale) {
    const int64_t wide = work.wide, value_wide = work.value_wide, width = work.n.value_width;
    const float* const largest = tops + block.place(work, 0);
    const float* const share = shares + block.place(work, 0);
    const float* const above = upstream.at(block.b, block.start, block.h);
    bool finite = pack(above, upstream.token, block.count, width, 1.0f, work.out.data(), BLOCK);
    for (int64_t i = 0; i < block.count; i++) finite &= share[i] == share[i];
    if (!finite) block.until = work.keys;
    logits(work, block, q, added, scale);
    product(
        block.rows, block.until, width, work.out.data(), value_wide, 1, work.vt.data(), work.row, work.slopes.data(),
        work.row);
    float alongs[BLOCK];
    for (int64_t i = 0; i < block.count; i++) {
        const float *made = out.at(block.b, block.start + i, block.h), *up = work.out.data() + i * value_wide;
        Lanes sum = {};
        walk(width, [&](int64_t j, int64_t lanes) { sum += load(made + j, lanes) * load(up + j); });
        alongs[i] = total(sum);
    }
    // The same over the keys, Σ p ⊙ ∂p, as torch adds it up: not all numbers are finite, and opposite infinities are NaN.
    for (int64_t i = 0; i < block.count && !finite; i++) {
        const float *weight = work.weights.data() + i * work.row, *slope = work.slopes.data() + i * work.row;
        Lanes sum = {};
        for (int64_t j = 0; j < block.seen(work, i); j += LANES) {
            const Lanes p = exponential(load(weight + j) - largest[i]) * share[i];
            sum += first(block.seen(work, i) - j, p * load(slope + j), 0);
        }
        alongs[i] = total(sum);
    }
    for (int64_t i = 0; i < block.count; i++) {
        const int64_t seen = block.seen(work, i);
        float *weight = work.weights.data() + i * work.row, *slope = work.slopes.data() + i * work.row;
        for (int64_t j = 0; j < seen; j += LANES) {
            const Lanes p = exponential(load(weight + j) - largest[i]) * share[i];
            store(weight + j, p);
            store(slope + j, p * (load(slope + j) - alongs[i]));
        }
        // Beyond what is seen weights are 0, or NaN where the row's sum is, and learn nothing.
        if (const int64_t rest = seen % LANES) store(slope + seen - rest, first(rest, load(slope + seen - rest), 0));
        const Lanes none = all(share[i] - share[i]);
        for (int64_t j = whole(seen); j < block.until; j += LANES) store(weight + j, none), store(slope + j, Lanes{});
        if (!dadded) continue;
        float* learns = dadded.at(block.b, block.start + i, block.h);
        walk(seen, [&](int64_t j, int64_t lanes) {
            store(learns + j, lanes, load(learns + j, lanes) + load(slope + j));
        });
    }
    product(
        block.rows, wide, block.until, work.slopes.data(), work.row, 1, work.k.data(), wide, work.below.data(), wide);
    for (int64_t i = 0; i < block.count; i++)
        store_scaled(work.below.data() + i * wide, work.n.width, scale, dq.at(block.b, block.start + i, block.h));
    // Across, so that narrow heads fill their lanes too.
    product(
        eights(work.n.width), block.until, block.count, work.q.data(), 1, wide, work.slopes.data(), work.row,
        work.dkt.data(), work.row, true);
    product(
        eights(width), block.until, block.count, work.out.data(), 1, value_wide, work.weights.data(), work.row,
        work.dvt.data(), work.row, true);
}

template <typename T>
static Strided<T> strided(T* first, const int64_t* strides) {
    return {first, strides[0], strides[1], strides[2]};
}

template <typename T>
static Strided<T> dense(T* first, int64_t tokens, int64_t heads, int64_t width) {
    return {first, tokens * heads * width, heads * width, width};
}

static int64_t thread_count(const Sizes& n, int64_t threads) {
    return thread_count(n.batch * n.heads * n.queries * n.keys, threads);
}

// It was measured beside torch's own products with eight and sixteen numbers a register.
extern "C" int64_t attention_pays() { return LANES >= 8; }

// `sizes` as they stand in Sizes; `strides` of q, k, v and what is added, by batch, token and head.
static void attention(
    const float* q, const float* k, const float* v, const float* added, float* out, float* tops, float* shares,
    const Sizes* sizes, const int64_t* strides, float scale, int64_t causal, int64_t threads) {
    const Sizes& n = *sizes;
    const In queries = strided(q, strides), more = strided(added, strides + 9);
    const Out to = dense(out, n.queries, n.heads, n.value_width);
    const int64_t workers = thread_count(n, threads), group = n.group();
#pragma omp parallel num_threads(workers) if (workers > 1)
    {
        Workspace work(n, false);
#pragma omp for schedule(static)
        for (int64_t job = 0; job < n.batch * n.key_heads; job++) {
            const int64_t b = job / n.key_heads, g = job % n.key_heads;
            work.load_head(strided(k, strides + 3), strided(v, strides + 6), b, g);
            for (int64_t h = g * group; h < (g + 1) * group; h++)
                for (int64_t start = 0; start < n.queries; start += BLOCK)
                    forward(work, Block(work, b, h, start, causal), queries, more, to, tops, shares, scale);
        }
    }
}

// The gradients: weights are made again from what forward kept of each row, its largest logit and one over its sum.
// `strides` go on with those of what comes down and of the gradient by `added`, where it learns; what adds up to one of
// its numbers is one job, so that threads neither meet there nor decide about an order.
static void attention_backward(
    const float* upstream, const float* q, const float* k, const float* v, const float* added, const float* out,
    const float* tops, const float* shares, float* dq, float* dk, float* dv, float* dadded, const Sizes* sizes,
    const int64_t* strides, float scale, int64_t causal, int64_t threads) {
    const Sizes& n = *sizes;
    const In queries = strided(q, strides), more = strided(added, strides + 9), down = strided(upstream, strides + 12);
    const In made = dense(out, n.queries, n.heads, n.value_width);
    const Out learns = strided(dadded, strides + 15), at_q = dense(dq, n.queries, n.heads, n.width);
    const Out at_k = dense(dk, n.keys, n.key_heads, n.width), at_v = dense(dv, n.keys, n.key_heads, n.value_width);
    const bool one_batch = learns && !learns.batch, one_head = learns && !learns.head;
    const int64_t batches = one_batch ? n.batch : 1, groups = one_head ? n.key_heads : 1;
    const int64_t apart = one_head ? 1 : n.key_heads, jobs = (one_batch ? 1 : n.batch) * apart;
    const int64_t group = n.group(), workers = thread_count(n, threads);
#pragma omp parallel num_threads(workers) if (workers > 1)
    {
        Workspace work(n, true);
#pragma omp for schedule(static)
        for (int64_t job = 0; job < jobs; job++)
            for (int64_t part = 0; part < batches * groups; part++) {
                const int64_t b = job / apart * batches + part / groups, g = job % apart * groups + part % groups;
                work.load_head(strided(k, strides + 3), strided(v, strides + 6), b, g);
                work.dkt.clear();
                work.dvt.clear();
                for (int64_t h = g * group; h < (g + 1) * group; h++)
                    for (int64_t start = 0; start < n.queries; start += BLOCK)
                        backward(
                            work, Block(work, b, h, start, causal), down, queries, more, made, tops, shares, at_q,
                            learns, scale);
                transpose(work.dkt.data(), n.width, work.row, n.keys, at_k.at(b, 0, g), at_k.token);
                transpose(work.dvt.data(), n.value_width, work.row, n.keys, at_v.at(b, 0, g), at_v.token);
            }
    }
}

extern "C" {
auto* attention_float32 = attention;
auto* attention_backward_float32 = attention_backward;
}
