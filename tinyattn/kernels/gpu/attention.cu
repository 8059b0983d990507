// softmax(scale q k^T) v tile by tile, so that the scores of all queries with all keys are never in
// memory (Dao et al., "FlashAttention", 2022). HEAD is the width of queries and keys, VALUE that of
// values.
//
// A block has 4 warps and works on 4 * ROWS queries, ROWS for each warp, against tiles of 32 keys,
// one for each lane. What the softmax of a row needs, its maximum and 1 / sum, is kept for backward:
// (2, B * H * Q). Weights are dropped by the same hash as on the CPU, and of hidden pairs nothing is
// read but a product with 0; where a tile holds NaN or inf, not even that.
//
// Queries, keys and values may lie in any order but for their last dimension: they come with the
// strides of samples, heads and positions. Results lie as (B, N, H, width), so that joining the heads
// moves nothing.
//
// Where whole tiles are too wide for shared memory, SLICE of their columns are there at a time, a
// multiple of 32; otherwise SLICE is the larger width, and nothing is loaded twice.

#define STRIDES(x) long long x##_b, long long x##_h, long long x##_n

const int WARPS = 4, TILE = 32, THREADS = 32 * WARPS;
const int COLUMNS = (VALUE + 31) / 32, HEAD_COLUMNS = (HEAD + 31) / 32;
const int HEAD_SLICE = HEAD < SLICE ? HEAD : SLICE, VALUE_SLICE = VALUE < SLICE ? VALUE : SLICE;
const int WIDEST = HEAD > VALUE ? HEAD : VALUE;

__device__ real max_of_warp(real value) {
    for (int lanes = 16; lanes; lanes /= 2) {
        real other = __shfl_xor_sync(ALL_LANES, value, lanes);
        value = other > value ? other : value;
    }
    return value;
}

__device__ wide sum_of_warp(wide value) {
    for (int lanes = 16; lanes; lanes /= 2) value += __shfl_xor_sync(ALL_LANES, value, lanes);
    return value;
}

// What a block works on: the rows [first, first + 4 * ROWS) of one pair of sample and head.
struct Place {
    long long pair, sample, head, first;
};

__device__ Place this_place(long long length, long long heads) {
    long long tiles = (length + WARPS * ROWS - 1) / (WARPS * ROWS);
    long long pair = blockIdx.x / tiles;
    return {pair, pair / heads, pair % heads, blockIdx.x % tiles * (WARPS * ROWS)};
}

// What the queries of a block may see, for all its threads, and how many keys the furthest reach.
__device__ long long look(
    Seen (&seen)[WARPS * ROWS], Place place, long long queries, long long keys, HIDDEN_PARAMETERS) {
    if (threadIdx.x < WARPS * ROWS) {
        long long query = place.first + threadIdx.x;
        seen[threadIdx.x] = query < queries
            ? seen_by(place.sample, place.head, query, keys, HIDDEN) : Seen{0, nullptr, 0};
    }
    __syncthreads();
    long long reach = 0;
    for (int row = 0; row < WARPS * ROWS; row++)
        reach = seen[row].limit > reach ? seen[row].limit : reach;
    return reach;
}

// One head's `size` rows in memory, from each of which `step` leads to the next.
struct Rows {
    const element* start;
    long long step, size;
    real factor;
};

// Some columns of the rows [first, first + count) into shared memory, multiplied by their factor, and
// zeros behind the end. Returns whether this thread met a number that is not finite.
__device__ int load(
    Rows rows, int column, int columns, long long first, int count, real* to, int stride) {
    int odd = 0;
    for (int i = threadIdx.x; i < count * columns; i += THREADS) {
        long long row = i / columns;
        int at = i % columns;
        real x = 0;
        if (first + row < rows.size) x = read(rows.start[(first + row) * rows.step + column + at]);
        odd |= !is_finite(x);
        to[row * stride + at] = x * rows.factor;
    }
    return odd;
}

// The same of a tile of 32 rows: the slice that begins at a column, if there is one. Rows of the tile
// are one number longer, so that no two lanes are in one bank.
template <int WIDTH>
__device__ int load_slice(Rows rows, int column, long long first, real* tile) {
    const int slice = WIDTH < SLICE ? WIDTH : SLICE;
    int left = WIDTH - column;
    return load(rows, column, left < slice ? left : slice, first, TILE, tile, slice + 1);
}

// sums[r] += the product of row r of this warp's rows with the tile's row of this lane, as far as
// they are in the slice that begins at a column.
template <int WIDTH>
__device__ void add_dots(
    real (&sums)[ROWS], const real* rows, const real* tile, int column, int lane) {
    const int slice = WIDTH < SLICE ? WIDTH : SLICE;
    for (int c = 0; c < slice && column + c < WIDTH; c++) {
        real x = tile[lane * (slice + 1) + c];
        for (int r = 0; r < ROWS; r++) sums[r] += rows[r * WIDTH + column + c] * x;
    }
}

// sums[r][n] += weights[r][j] * rows[first + j][column n of this lane], over the 32 rows of a tile,
// which is loaded already if it is whole.
template <int WIDTH, int N>
__device__ void add_products(
    real (&sums)[ROWS][N], const real* weights, Rows rows, long long first, real* tile, int odd,
    const unsigned* seen) {
    const int slice = WIDTH < SLICE ? WIDTH : SLICE;
    int lane = threadIdx.x % 32;
#pragma unroll  // so that the sums stay in registers
    for (int n = 0; n < N; n++) {
        int begin = 32 * n / SLICE * SLICE, column = lane + 32 * n;
        if (WIDTH > SLICE && 32 * n == begin) {
            __syncthreads();
            odd = __syncthreads_or(load_slice<WIDTH>(rows, begin, first, tile));
        }
        if (column >= WIDTH) continue;
        for (int j = 0; j < TILE; j++) {
            real x = tile[j * (slice + 1) + column - begin];
            for (int r = 0; r < ROWS; r++)
                // 0 * NaN is NaN, so a hidden pair must not be multiplied where there may be one.
                if (!odd || seen[r] >> j & 1) sums[r][n] += weights[r * TILE + j] * x;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) attention(
    const element* q, STRIDES(q), const element* k, STRIDES(k), const element* v, STRIDES(v),
    element* out, real* saved, long long pairs, long long heads, long long queries, long long keys,
    double scale, HIDDEN_PARAMETERS, double p, long long threshold, long long seed,
    const long long* draws) {
    DYNAMIC_SHARED(real, memory);
    real* q_tile = memory;                            // (4 * ROWS, HEAD)
    real* k_tile = q_tile + WARPS * ROWS * HEAD;      // (32, HEAD_SLICE + 1)
    real* v_tile = k_tile + TILE * (HEAD_SLICE + 1);  // (32, VALUE_SLICE + 1)
    real* weights = v_tile + TILE * (VALUE_SLICE + 1);  // (4, ROWS, 32)
    __shared__ Seen seen[WARPS * ROWS];

    Place place = this_place(queries, heads);
    auto [pair, sample, head, first] = place;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Rows own = {q + sample * q_b + head * q_h, q_n, queries, (real)scale};
    Rows of_keys = {k + sample * k_b + head * k_h, k_n, keys, 1};
    Rows of_values = {v + sample * v_b + head * v_h, v_n, keys, 1};
    Dropping drop = dropping(p, threshold, seed, draws);
    weights += warp * ROWS * TILE;

    load(own, 0, HEAD, first, WARPS * ROWS, q_tile, HEAD);
    long long reach = look(seen, place, queries, keys, HIDDEN);

    real top[ROWS], sums[ROWS][COLUMNS];
    wide total[ROWS];  // this lane's part
    int kept[ROWS];  // whether this lane added anything
    for (int r = 0; r < ROWS; r++) {
        top[r] = minus_infinity();
        total[r] = 0;
        kept[r] = 0;
        for (int n = 0; n < COLUMNS; n++) sums[r][n] = 0;
    }
    for (long long start = 0; start < reach; start += TILE) {
        int odd = 0;
        real scores[ROWS];
        for (int r = 0; r < ROWS; r++) scores[r] = 0;
        for (int column = 0; column < HEAD; column += SLICE) {
            __syncthreads();
            load_slice<HEAD>(of_keys, column, start, k_tile);
            if (VALUE <= SLICE && column == 0) odd = load_slice<VALUE>(of_values, 0, start, v_tile);
            odd = __syncthreads_or(odd);
            add_dots<HEAD>(scores, q_tile + warp * ROWS * HEAD, k_tile, column, lane);
        }
        unsigned bits[ROWS];
        for (int r = 0; r < ROWS; r++) {
            int row = warp * ROWS + r;
            bool visible = seen[row](start + lane);
            bits[r] = __ballot_sync(ALL_LANES, visible);
            real new_top = max_of_warp(visible ? scores[r] : minus_infinity());
            new_top = new_top > top[r] ? new_top : top[r];
            real shrink = top[r] == minus_infinity() ? 0 : exp(top[r] - new_top);
            top[r] = new_top;
            real weight = 0;
            if (visible && scores[r] != minus_infinity()) weight = exp(scores[r] - new_top);
            total[r] = total[r] * shrink + weight;
            for (int n = 0; n < COLUMNS; n++) sums[r][n] *= shrink;
            bool keep = visible;
            if (p > 0 && visible) {
                keep = drop.keeps((pair * queries + first + row) * keys + start + lane);
                weight = keep ? weight * drop.factor : 0;
            }
            kept[r] |= keep;
            weights[r * TILE + lane] = weight;
        }
        __syncwarp();
        add_products<VALUE>(sums, weights, of_values, start, v_tile, odd, bits);
    }
    for (int r = 0; r < ROWS; r++) {
        long long query = first + warp * ROWS + r;
        wide sum = sum_of_warp(total[r]);
        unsigned some = __ballot_sync(ALL_LANES, kept[r]);
        if (query >= queries) continue;
        // Nothing seen gives zeros; nothing but -inf, or inf, NaN. A NaN that was dropped is gone.
        wide inverse = is_infinite(top[r]) ? not_a_number() : 1 / sum;
        for (int n = 0; n < COLUMNS; n++)
            if (lane + 32 * n < VALUE)
                out[((sample * queries + query) * heads + head) * VALUE + lane + 32 * n] =
                    written(some ? sums[r][n] * inverse : sums[r][n]);
        if (lane == 0) {
            saved[pair * queries + query] = top[r];
            saved[pairs * queries + pair * queries + query] = inverse;
        }
    }
}

// Gradients of the queries. With w the weights and s what the weights' gradients are, those of the
// scores are w * (s - sum(w * s)). The sum is made in a pass of its own, from the very s it is taken
// off: as sum(grad * out), which is equal and cheaper, it would not share their rounding, and where
// one weight is near 1 little else would be left. It is kept in two parts, (2, B * H * Q).
extern "C" __global__ void __launch_bounds__(THREADS) attention_backward_q(
    const element* grad, STRIDES(g), const element* q, STRIDES(q), const element* k, STRIDES(k),
    const element* v, STRIDES(v), const real* saved, real* inner, element* dq, long long pairs,
    long long heads, long long queries, long long keys, double scale, HIDDEN_PARAMETERS, double p,
    long long threshold, long long seed, const long long* draws) {
    DYNAMIC_SHARED(real, memory);
    real* q_tile = memory;                             // (4 * ROWS, HEAD)
    real* g_tile = q_tile + WARPS * ROWS * HEAD;       // (4 * ROWS, VALUE)
    real* k_tile = g_tile + WARPS * ROWS * VALUE;      // (32, HEAD_SLICE + 1)
    real* v_tile = k_tile + TILE * (HEAD_SLICE + 1);   // (32, VALUE_SLICE + 1)
    real* slopes = v_tile + TILE * (VALUE_SLICE + 1);  // (4, ROWS, 32)
    __shared__ Seen seen[WARPS * ROWS];

    Place place = this_place(queries, heads);
    auto [pair, sample, head, first] = place;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Rows own = {q + sample * q_b + head * q_h, q_n, queries, (real)scale};
    Rows own_grad = {grad + sample * g_b + head * g_h, g_n, queries, 1};
    Rows of_keys = {k + sample * k_b + head * k_h, k_n, keys, 1};
    Rows of_values = {v + sample * v_b + head * v_h, v_n, keys, 1};
    Dropping drop = dropping(p, threshold, seed, draws);
    slopes += warp * ROWS * TILE;

    load(own, 0, HEAD, first, WARPS * ROWS, q_tile, HEAD);
    load(own_grad, 0, VALUE, first, WARPS * ROWS, g_tile, VALUE);
    long long reach = look(seen, place, queries, keys, HIDDEN);

    real sums[ROWS][HEAD_COLUMNS], high[ROWS], low[ROWS];
    wide total[ROWS];
    for (int r = 0; r < ROWS; r++) {
        total[r] = 0;
        for (int n = 0; n < HEAD_COLUMNS; n++) sums[r][n] = 0;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (long long start = 0; start < reach; start += TILE) {
            int odd = 0;
            real scores[ROWS], slope[ROWS];
            for (int r = 0; r < ROWS; r++) scores[r] = slope[r] = 0;
            for (int column = 0; column < WIDEST; column += SLICE) {
                __syncthreads();
                load_slice<VALUE>(of_values, column, start, v_tile);
                odd = __syncthreads_or(odd | load_slice<HEAD>(of_keys, column, start, k_tile));
                add_dots<HEAD>(scores, q_tile + warp * ROWS * HEAD, k_tile, column, lane);
                add_dots<VALUE>(slope, g_tile + warp * ROWS * VALUE, v_tile, column, lane);
            }
            unsigned bits[ROWS];
            for (int r = 0; r < ROWS; r++) {
                int row = warp * ROWS + r;
                bool visible = seen[row](start + lane);
                bits[r] = __ballot_sync(ALL_LANES, visible);
                long long at = pair * queries + first + row;
                real weight = 0;
                if (visible) {
                    weight = exp(scores[r] - saved[at]) * saved[pairs * queries + at];
                    if (p > 0)
                        slope[r] = drop.keeps(at * keys + start + lane) ? slope[r] * drop.factor : 0;
                    if (pass == 0) total[r] += (wide)weight * slope[r];
                }
                if (pass == 1)
                    slopes[r * TILE + lane] =
                        visible ? weight * (slope[r] - high[r] - low[r]) : 0;
            }
            if (pass == 0) continue;
            __syncwarp();
            add_products<HEAD>(sums, slopes, of_keys, start, k_tile, odd, bits);
        }
        for (int r = 0; pass == 0 && r < ROWS; r++) {
            long long query = first + warp * ROWS + r;
            wide all = sum_of_warp(total[r]);
            high[r] = all;
            low[r] = all - high[r];
            if (lane || query >= queries) continue;
            inner[pair * queries + query] = high[r];
            inner[pairs * queries + pair * queries + query] = low[r];
        }
    }
    for (int r = 0; r < ROWS; r++) {
        long long query = first + warp * ROWS + r;
        for (int n = 0; n < HEAD_COLUMNS; n++)
            if (query < queries && lane + 32 * n < HEAD)
                dq[((sample * queries + query) * heads + head) * HEAD + lane + 32 * n] =
                    written(sums[r][n] * (real)scale);
    }
}

// The same with keys and queries exchanged: a warp has ROWS keys, a lane one query of a tile.
extern "C" __global__ void __launch_bounds__(THREADS) attention_backward_kv(
    const element* grad, STRIDES(g), const element* q, STRIDES(q), const element* k, STRIDES(k),
    const element* v, STRIDES(v), const real* saved, const real* inner, element* dk, element* dv,
    long long pairs, long long heads, long long queries, long long keys, double scale,
    HIDDEN_PARAMETERS, double p, long long threshold, long long seed, const long long* draws) {
    DYNAMIC_SHARED(real, memory);
    real* k_tile = memory;                             // (4 * ROWS, HEAD)
    real* v_tile = k_tile + WARPS * ROWS * HEAD;       // (4 * ROWS, VALUE)
    real* q_tile = v_tile + WARPS * ROWS * VALUE;      // (32, HEAD_SLICE + 1)
    real* g_tile = q_tile + TILE * (HEAD_SLICE + 1);   // (32, VALUE_SLICE + 1)
    real* weights = g_tile + TILE * (VALUE_SLICE + 1);  // (4, ROWS, 32)
    real* slopes = weights + WARPS * ROWS * TILE;      // (4, ROWS, 32)

    auto [pair, sample, head, first] = this_place(keys, heads);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Rows own_key = {k + sample * k_b + head * k_h, k_n, keys, 1};
    Rows own_value = {v + sample * v_b + head * v_h, v_n, keys, 1};
    Rows of_queries = {q + sample * q_b + head * q_h, q_n, queries, (real)scale};
    Rows of_grad = {grad + sample * g_b + head * g_h, g_n, queries, 1};
    Dropping drop = dropping(p, threshold, seed, draws);
    weights += warp * ROWS * TILE;
    slopes += warp * ROWS * TILE;

    load(own_key, 0, HEAD, first, WARPS * ROWS, k_tile, HEAD);
    load(own_value, 0, VALUE, first, WARPS * ROWS, v_tile, VALUE);
    real of_k[ROWS][HEAD_COLUMNS], of_v[ROWS][COLUMNS];
    for (int r = 0; r < ROWS; r++) {
        for (int n = 0; n < HEAD_COLUMNS; n++) of_k[r][n] = 0;
        for (int n = 0; n < COLUMNS; n++) of_v[r][n] = 0;
    }
    for (long long start = 0; start < queries; start += TILE) {
        long long query = start + lane, at = pair * queries + query;
        Seen seen = {0, nullptr, 0};
        if (query < queries) seen = seen_by(sample, head, query, keys, HIDDEN);
        // Also the barrier after which the tile may be overwritten.
        if (!__syncthreads_or(seen.limit > first)) continue;
        int odd = 0;
        real scores[ROWS], slope[ROWS];
        for (int r = 0; r < ROWS; r++) scores[r] = slope[r] = 0;
        for (int column = 0; column < WIDEST; column += SLICE) {
            if (column) __syncthreads();
            odd |= load_slice<HEAD>(of_queries, column, start, q_tile);
            odd = __syncthreads_or(odd | load_slice<VALUE>(of_grad, column, start, g_tile));
            add_dots<HEAD>(scores, k_tile + warp * ROWS * HEAD, q_tile, column, lane);
            add_dots<VALUE>(slope, v_tile + warp * ROWS * VALUE, g_tile, column, lane);
        }
        unsigned bits[ROWS];
        for (int r = 0; r < ROWS; r++) {
            long long key = first + warp * ROWS + r;
            bool visible = seen(key);
            bits[r] = __ballot_sync(ALL_LANES, visible);
            real weight = 0, of_scores = 0;
            if (visible) {
                weight = exp(scores[r] - saved[at]) * saved[pairs * queries + at];
                bool kept = p <= 0 || drop.keeps(at * keys + key);
                real factor = p > 0 ? drop.factor : 1;
                real s = kept ? slope[r] * factor : 0;
                of_scores = weight * (s - inner[at] - inner[pairs * queries + at]);
                weight = kept ? weight * factor : 0;
            }
            weights[r * TILE + lane] = weight;
            slopes[r * TILE + lane] = of_scores;
        }
        __syncwarp();
        add_products<HEAD>(of_k, slopes, of_queries, start, q_tile, odd, bits);
        add_products<VALUE>(of_v, weights, of_grad, start, g_tile, odd, bits);
    }
    for (int r = 0; r < ROWS; r++) {
        long long key = first + warp * ROWS + r;
        if (key >= keys) continue;
        for (int n = 0; n < HEAD_COLUMNS; n++)
            if (lane + 32 * n < HEAD)
                dk[((sample * keys + key) * heads + head) * HEAD + lane + 32 * n] = written(of_k[r][n]);
        for (int n = 0; n < COLUMNS; n++)
            if (lane + 32 * n < VALUE)
                dv[((sample * keys + key) * heads + head) * VALUE + lane + 32 * n] = written(of_v[r][n]);
    }
}
