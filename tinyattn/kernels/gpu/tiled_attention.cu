// softmax(scale q k^T) v tile by tile: the scores of all queries with all keys are never in memory
// (Dao et al., "FlashAttention", 2022). HEAD is the width of queries and keys, VALUE that of
// values.
//
// A block has 4 warps of 32 lanes. It works on 4 * ROWS queries of one head, ROWS for each warp,
// and goes through the keys in tiles of 32, one key for each lane. For backward it saves the
// maximum and 1 / sum of each row of scores, (2, B * H * Q). Dropout uses the same hash as on the
// CPU. The weight of an invisible pair is 0; where a tile has NaN or inf, invisible pairs are not
// multiplied at all.
//
// q, k, v and grad are (B, N, H, width) with any strides, except that the numbers of one row are
// neighbours. Results are in C order. k and v may have fewer heads, `groups`: each is for
// heads / groups heads of queries that follow each other. dk and dv have all heads.
//
// Where whole tiles are too wide for shared memory, it has SLICE of their columns at a time, a
// multiple of 32. Otherwise SLICE is the larger width, and nothing is loaded twice.

#define ARRAY(x) const element *x, long long x##_b, long long x##_n, long long x##_h
#define SIZES                                                                               \
    long long pairs, long long heads, long long groups, long long queries, long long keys, \
        double scale

const int WARPS = 4, TILE = 32, THREADS = 32 * WARPS;
const int COLUMNS = (VALUE + 31) / 32, HEAD_COLUMNS = (HEAD + 31) / 32;
const int HEAD_SLICE = HEAD < SLICE ? HEAD : SLICE, VALUE_SLICE = VALUE < SLICE ? VALUE : SLICE;
const int WIDEST = HEAD > VALUE ? HEAD : VALUE;

__device__ real max_of_warp(real value) {
    return joined_lanes(value, [](real a, real b) { return b > a ? b : a; });
}

// The task of a block: the rows [first, first + 4 * ROWS) of one pair of sample and head. `group` is
// the head of its keys.
struct Task {
    long long pair, sample, head, group, first;
};

__device__ Task this_task(long long length, long long heads, long long groups) {
    long long tiles = (length + WARPS * ROWS - 1) / (WARPS * ROWS);
    long long pair = blockIdx.x / tiles, head = pair % heads, first = blockIdx.x % tiles;
    return {pair, pair / heads, head, head / (heads / groups), first * (WARPS * ROWS)};
}

// Which keys are visible to each query of the block, for all its threads. Returns the largest
// limit.
__device__ long long visible_to_block(
    Visible (&rows)[WARPS * ROWS], Task task, long long queries, long long keys,
    VISIBILITY_PARAMETERS) {
    if (threadIdx.x < WARPS * ROWS) {
        long long query = task.first + threadIdx.x;
        rows[threadIdx.x] = query < queries
            ? visible_to(task.sample, task.head, query, keys, VISIBILITY) : Visible{0, nullptr, 0};
    }
    __syncthreads();
    long long largest = 0;
    for (int row = 0; row < WARPS * ROWS; row++)
        largest = rows[row].limit > largest ? rows[row].limit : largest;
    return largest;
}

// The `size` rows of one head in memory, `step` numbers apart, and a factor for them.
struct Rows {
    const element* start;
    long long step, size;
    real factor;
};

#define ROWS_OF(x, its_head, size, factor) \
    Rows { x + task.sample * x##_b + task.its_head * x##_h, x##_n, size, factor }

// Loads some columns of the rows [first, first + count), times their factor, into shared memory,
// and zeros behind the last row. Returns whether this thread met NaN or inf.
__device__ int load(
    Rows rows, int column, int columns, long long first, int count, real* to, int stride) {
    int not_finite = 0;
    for (int i = threadIdx.x; i < count * columns; i += THREADS) {
        long long row = i / columns;
        int at = i % columns;
        real x = 0;
        if (first + row < rows.size) x = read(rows.start[(first + row) * rows.step + column + at]);
        not_finite |= !is_finite(x);
        to[row * stride + at] = x * rows.factor;
    }
    return not_finite;
}

// Loads the slice of a tile of 32 rows that begins at a column, if there is one. Rows in shared
// memory are one number longer than the slice, because then no two lanes read the same bank.
template <int WIDTH>
__device__ int load_slice(Rows rows, int column, long long first, real* tile) {
    const int slice = WIDTH < SLICE ? WIDTH : SLICE;
    int left = WIDTH - column;
    return load(rows, column, left < slice ? left : slice, first, TILE, tile, slice + 1);
}

// sums[r] += the dot product of row r of this warp with this lane's row of the tile, over the slice
// that begins at a column.
template <int WIDTH>
__device__ void add_dots(
    real (&sums)[ROWS], const real* rows, const real* tile, int column, int lane) {
    const int slice = WIDTH < SLICE ? WIDTH : SLICE;
    const int columns = WIDTH - column < slice ? WIDTH - column : slice;
#pragma unroll 8
    for (int c = 0; c < columns; c++) {
        real x = tile[lane * (slice + 1) + c];
        for (int r = 0; r < ROWS; r++) sums[r] += rows[r * WIDTH + column + c] * x;
    }
}

// sums[r][n] += weights[r][j] * rows[first + j][lane + 32 n], over the 32 rows j of a tile. A whole
// tile is loaded already; slices are loaded here. Bit j of visible[r] says whether the pair is
// visible.
template <int WIDTH, int N>
__device__ void add_products(
    real (&sums)[ROWS][N], const real* weights, Rows rows, long long first, real* tile,
    int not_finite, const unsigned* visible) {
    const int slice = WIDTH < SLICE ? WIDTH : SLICE;
    int lane = threadIdx.x % 32;
#pragma unroll  // because then the sums stay in registers
    for (int n = 0; n < N; n++) {
        int begin = 32 * n / SLICE * SLICE, column = lane + 32 * n;
        if (WIDTH > SLICE && 32 * n == begin) {
            __syncthreads();
            not_finite = __syncthreads_or(load_slice<WIDTH>(rows, begin, first, tile));
        }
        if (column >= WIDTH) continue;
        const real* x = tile + column - begin;
        if (!not_finite) {
#pragma unroll 16
            for (int j = 0; j < TILE; j++)
                for (int r = 0; r < ROWS; r++)
                    sums[r][n] += weights[r * TILE + j] * x[j * (slice + 1)];
        } else {
            // 0 * NaN is NaN, so an invisible pair must not be multiplied where NaN may be. This
            // loop is short, because it is rarely used and must not take registers.
#pragma unroll 1
            for (int j = 0; j < TILE; j++)
                for (int r = 0; r < ROWS; r++)
                    if (visible[r] >> j & 1) sums[r][n] += weights[r * TILE + j] * x[j * (slice + 1)];
        }
    }
}

// Writes a row of sums, of which each lane has every 32nd, times a factor.
template <int WIDTH, int N>
__device__ void store(element* row, const real (&sums)[N], Wide factor) {
    for (int n = 0, column = threadIdx.x % 32; n < N; n++, column += 32)
        if (column < WIDTH) row[column] = written((sums[n] * factor).value());
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) attention(
    ARRAY(q), ARRAY(k), ARRAY(v), element* out, real* saved, SIZES, VISIBILITY_PARAMETERS,
    DROP_PARAMETERS) {
    DYNAMIC_SHARED(real, memory);
    real* q_tile = memory;                            // (4 * ROWS, HEAD)
    real* k_tile = q_tile + WARPS * ROWS * HEAD;      // (32, HEAD_SLICE + 1)
    real* v_tile = k_tile + TILE * (HEAD_SLICE + 1);  // (32, VALUE_SLICE + 1)
    real* weights = v_tile + TILE * (VALUE_SLICE + 1);  // (4, ROWS, 32)
    __shared__ Visible visible_to_row[WARPS * ROWS];

    Task task = this_task(queries, heads, groups);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Rows of_keys = ROWS_OF(k, group, keys, 1), of_values = ROWS_OF(v, group, keys, 1);
    Drop drop = drop_of(DROP);
    weights += warp * ROWS * TILE;

    load(ROWS_OF(q, head, queries, (real)scale), 0, HEAD, task.first, WARPS * ROWS, q_tile, HEAD);
    long long end = visible_to_block(visible_to_row, task, queries, keys, VISIBILITY);

    real top[ROWS], sums[ROWS][COLUMNS] = {};
    Wide total[ROWS] = {};  // the part of this lane
    int added[ROWS] = {};   // whether this lane added anything
    for (int r = 0; r < ROWS; r++) top[r] = minus_infinity();
    for (long long start = 0; start < end; start += TILE) {
        int not_finite = 0;
        real scores[ROWS] = {};
        for (int column = 0; column < HEAD; column += SLICE) {
            __syncthreads();  // the tile before this one may still be read
            load_slice<HEAD>(of_keys, column, start, k_tile);
            if (VALUE <= SLICE && column == 0)
                not_finite = load_slice<VALUE>(of_values, 0, start, v_tile);
            not_finite = __syncthreads_or(not_finite);  // and all is loaded
            add_dots<HEAD>(scores, q_tile + warp * ROWS * HEAD, k_tile, column, lane);
        }
        unsigned bits[ROWS];
        for (int r = 0; r < ROWS; r++) {
            int row = warp * ROWS + r;
            bool visible = visible_to_row[row](start + lane);
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
            if (drop.drops_any && visible) {
                keep = drop.keeps((task.pair * queries + task.first + row) * keys + start + lane);
                weight = keep ? weight * drop.factor : 0;
            }
            added[r] |= keep;
            weights[r * TILE + lane] = weight;
        }
        __syncwarp();  // all lanes have written their weights
        add_products<VALUE>(sums, weights, of_values, start, v_tile, not_finite, bits);
    }
    for (int r = 0; r < ROWS; r++) {
        long long query = task.first + warp * ROWS + r;
        Wide inverse = inverse_of(sum_of_warp(total[r]));
        unsigned some = __ballot_sync(ALL_LANES, added[r]);
        if (query >= queries) continue;
        // Without a visible key the sums are zeros. Only -inf, or an inf, gives NaN. A NaN that
        // dropout left out is not in the sums.
        if (is_infinite(top[r])) inverse = not_a_number();
        element* to = out + ((task.sample * queries + query) * heads + task.head) * VALUE;
        store<VALUE>(to, sums[r], some ? inverse : 1);
        if (lane == 0) {
            saved[task.pair * queries + query] = top[r];
            saved[(pairs + task.pair) * queries + query] = inverse.value();
        }
    }
}

// The scores of this warp's rows with the 32 rows of a tile, and the gradients of the weights after
// dropout: `head` are the rows of queries or keys, `value` those of gradients or values. Returns
// whether the tile has NaN or inf.
__device__ __forceinline__ int dots_of_tile(
    real (&scores)[ROWS], real (&dweights)[ROWS], const real* head, const real* value,
    Rows of_head, Rows of_value, long long start, real* head_tile, real* value_tile) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, not_finite = 0;
    for (int column = 0; column < WIDEST; column += SLICE) {
        __syncthreads();  // the tile before this one may still be read
        not_finite |= load_slice<HEAD>(of_head, column, start, head_tile);
        not_finite |= load_slice<VALUE>(of_value, column, start, value_tile);
        not_finite = __syncthreads_or(not_finite);  // and all is loaded
        add_dots<HEAD>(scores, head + warp * ROWS * HEAD, head_tile, column, lane);
        add_dots<VALUE>(dweights, value + warp * ROWS * VALUE, value_tile, column, lane);
    }
    return not_finite;
}

// What backward needs of a visible pair: its weight, computed again, the weight after dropout, and
// the gradient of the weight. Where dropout left it out, these two are 0, even if they were NaN.
struct Pair {
    real weight, dropped, dweight;
};

__device__ __forceinline__ Pair pair_of(
    real score, real dweight, real top, real inverse, Drop drop, long long number) {
    real weight = exp(score - top) * inverse;
    bool kept = drop.keeps(number);
    return {weight, kept ? weight * drop.factor : 0, kept ? dweight * drop.factor : 0};
}

// Gradients of the queries. With w the weights and dw their gradients, those of the scores are w *
// (dw - sum(w * dw)). The sum has a pass of its own, over the same dw from which it is subtracted.
// sum(grad * out) would be equal and cheaper, but it is rounded in another way, and where one
// weight is close to 1 the difference would be little but rounding. The sum is saved in two parts,
// high and low, (2, B * H * Q), for the gradients of keys and values.
extern "C" __global__ void __launch_bounds__(THREADS, 1) attention_backward_q(
    ARRAY(grad), ARRAY(q), ARRAY(k), ARRAY(v), const real* saved, real* row_sums, element* dq,
    SIZES, VISIBILITY_PARAMETERS, DROP_PARAMETERS) {
    DYNAMIC_SHARED(real, memory);
    real* q_tile = memory;                             // (4 * ROWS, HEAD)
    real* g_tile = q_tile + WARPS * ROWS * HEAD;       // (4 * ROWS, VALUE)
    real* k_tile = g_tile + WARPS * ROWS * VALUE;      // (32, HEAD_SLICE + 1)
    real* v_tile = k_tile + TILE * (HEAD_SLICE + 1);   // (32, VALUE_SLICE + 1)
    real* dscores = v_tile + TILE * (VALUE_SLICE + 1);  // (4, ROWS, 32)
    __shared__ Visible visible_to_row[WARPS * ROWS];

    Task task = this_task(queries, heads, groups);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Rows of_keys = ROWS_OF(k, group, keys, 1), of_values = ROWS_OF(v, group, keys, 1);
    Drop drop = drop_of(DROP);
    dscores += warp * ROWS * TILE;

    load(ROWS_OF(q, head, queries, (real)scale), 0, HEAD, task.first, WARPS * ROWS, q_tile, HEAD);
    load(ROWS_OF(grad, head, queries, 1), 0, VALUE, task.first, WARPS * ROWS, g_tile, VALUE);
    long long end = visible_to_block(visible_to_row, task, queries, keys, VISIBILITY);

    real sums[ROWS][HEAD_COLUMNS] = {};
    Wide total[ROWS] = {};
    for (int pass = 0; pass < 2; pass++) {
        for (long long start = 0; start < end; start += TILE) {
            real scores[ROWS] = {}, dweights[ROWS] = {};
            int not_finite = dots_of_tile(
                scores, dweights, q_tile, g_tile, of_keys, of_values, start, k_tile, v_tile);
            unsigned bits[ROWS];
            for (int r = 0; r < ROWS; r++) {
                int row = warp * ROWS + r;
                bool visible = visible_to_row[row](start + lane);
                bits[r] = __ballot_sync(ALL_LANES, visible);
                long long at = task.pair * queries + task.first + row;
                real dscore = 0;
                if (visible) {
                    auto [weight, dropped, dweight] = pair_of(
                        scores[r], dweights[r], saved[at], saved[pairs * queries + at], drop,
                        at * keys + start + lane);
                    if (pass == 0) total[r] = total[r] + Wide(weight) * dweight;
                    dscore = weight * (dweight - total[r].high - total[r].low);
                }
                dscores[r * TILE + lane] = dscore;
            }
            if (pass == 0) continue;
            __syncwarp();  // all lanes have written their gradients
            add_products<HEAD>(sums, dscores, of_keys, start, k_tile, not_finite, bits);
        }
        for (int r = 0; pass == 0 && r < ROWS; r++) {
            long long query = task.first + warp * ROWS + r;
            total[r] = sum_of_warp(total[r]);
            if (lane || query >= queries) continue;
            row_sums[task.pair * queries + query] = total[r].high;
            row_sums[(pairs + task.pair) * queries + query] = total[r].low;
        }
    }
    for (int r = 0; r < ROWS; r++) {
        long long query = task.first + warp * ROWS + r;
        if (query >= queries) continue;
        element* to = dq + ((task.sample * queries + query) * heads + task.head) * HEAD;
        store<HEAD>(to, sums[r], (real)scale);
    }
}

// Gradients of keys and values, the same with keys and queries exchanged: a warp has ROWS keys, and
// a lane one query of a tile.
extern "C" __global__ void __launch_bounds__(THREADS, 1) attention_backward_kv(
    ARRAY(grad), ARRAY(q), ARRAY(k), ARRAY(v), const real* saved, const real* row_sums, element* dk,
    element* dv, SIZES, VISIBILITY_PARAMETERS, DROP_PARAMETERS) {
    DYNAMIC_SHARED(real, memory);
    real* k_tile = memory;                             // (4 * ROWS, HEAD)
    real* v_tile = k_tile + WARPS * ROWS * HEAD;       // (4 * ROWS, VALUE)
    real* q_tile = v_tile + WARPS * ROWS * VALUE;      // (32, HEAD_SLICE + 1)
    real* g_tile = q_tile + TILE * (HEAD_SLICE + 1);   // (32, VALUE_SLICE + 1)
    real* weights = g_tile + TILE * (VALUE_SLICE + 1);  // (4, ROWS, 32)
    real* dscores = weights + WARPS * ROWS * TILE;      // (4, ROWS, 32)

    Task task = this_task(keys, heads, groups);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Rows of_queries = ROWS_OF(q, head, queries, (real)scale);
    Rows of_grad = ROWS_OF(grad, head, queries, 1);
    Drop drop = drop_of(DROP);
    weights += warp * ROWS * TILE;
    dscores += warp * ROWS * TILE;

    load(ROWS_OF(k, group, keys, 1), 0, HEAD, task.first, WARPS * ROWS, k_tile, HEAD);
    load(ROWS_OF(v, group, keys, 1), 0, VALUE, task.first, WARPS * ROWS, v_tile, VALUE);
    real dk_sums[ROWS][HEAD_COLUMNS] = {}, dv_sums[ROWS][COLUMNS] = {};
    for (long long start = 0; start < queries; start += TILE) {
        long long query = start + lane, at = task.pair * queries + query;
        Visible visible_keys = {0, nullptr, 0};
        if (query < queries)
            visible_keys = visible_to(task.sample, task.head, query, keys, VISIBILITY);
        // All threads must go on or none, because those that stay wait for all.
        if (!__syncthreads_or(visible_keys.limit > task.first)) continue;
        real scores[ROWS] = {}, dweights[ROWS] = {};
        int not_finite = dots_of_tile(
            scores, dweights, k_tile, v_tile, of_queries, of_grad, start, q_tile, g_tile);
        unsigned bits[ROWS];
        for (int r = 0; r < ROWS; r++) {
            long long key = task.first + warp * ROWS + r;
            bool visible = visible_keys(key);
            bits[r] = __ballot_sync(ALL_LANES, visible);
            real after_dropout = 0, dscore = 0;
            if (visible) {
                auto [weight, dropped, dweight] = pair_of(
                    scores[r], dweights[r], saved[at], saved[pairs * queries + at], drop,
                    at * keys + key);
                after_dropout = dropped;
                dscore = weight * (dweight - row_sums[at] - row_sums[pairs * queries + at]);
            }
            weights[r * TILE + lane] = after_dropout;
            dscores[r * TILE + lane] = dscore;
        }
        __syncwarp();  // all lanes have written theirs
        add_products<HEAD>(dk_sums, dscores, of_queries, start, q_tile, not_finite, bits);
        add_products<VALUE>(dv_sums, weights, of_grad, start, g_tile, not_finite, bits);
    }
    for (int r = 0; r < ROWS; r++) {
        long long key = task.first + warp * ROWS + r;
        if (key >= keys) continue;
        long long row = (task.sample * keys + key) * heads + task.head;
        store<HEAD>(dk + row * HEAD, dk_sums[r], 1);
        store<VALUE>(dv + row * VALUE, dv_sums[r], 1);
    }
}
