// Softmax of rows, its logarithm, its masked form, and cross-entropy. Each row is read twice, but
// comes from memory only once: the second time it is in the cache.

// The maximum of some numbers, `top`, and the sum of exp(x - top) over them, in one pass. When a
// larger maximum comes, the sum so far is scaled down to it (Milakov and Gimelshein, 2018). A NaN
// never is the maximum, but it stays in the sum. A Wide has a second part for what rounding leaves
// out of the sum.
struct Running {
    real top;
    Wide sum;

    __device__ __forceinline__ void take(real x) {
        if (x > top) {
            sum = sum * exp(top - x) + 1;
            top = x;
        } else if (x != minus_infinity()) {
            sum = sum + exp(x - top);
        }
    }
    // log(sum), from sum - 1, because that has the digits where one number is far above the others.
    __device__ real log_sum() const { return log1p((sum.high - 1) + sum.low); }
};

__device__ Running joined_running(Running mine) {
    real top = joined(mine.top, [](real a, real b) { return a > b ? a : b; });
    // A thread that met only -inf has the sum 0, or NaN. An inf makes the sum NaN here.
    if (mine.top != minus_infinity()) mine.sum = mine.sum * exp(mine.top - top);
    return {top, sum_of_row(mine.sum)};
}

extern "C" __global__ void masked_softmax(
    const element* x, element* out, long long rows, long long keys, long long heads,
    long long queries, VISIBILITY_PARAMETERS) {
    long long row = this_row();
    if (row >= rows) return;
    long long pair = row / queries;
    Visible visible = visible_to(pair / heads, pair % heads, row % queries, keys, VISIBILITY);
    x += row * keys;
    out += row * keys;
    Running mine = {minus_infinity(), 0};
    int any = 0;
    FOR_COLUMNS(j, visible.limit)
        if (visible(j)) {
            mine.take(read(x[j]));
            any = 1;
        }
    bool some = any_of_row(any);
    Running all = joined_running(mine);
    Wide factor = inverse_of(all.sum);
    FOR_COLUMNS(j, keys) {
        Wide power = exp(read(x[j]) - all.top);
        out[j] = written(some && visible(j) ? (power * factor).value() : 0);
    }
}

// out * (grad - sum(grad * out)) over the visible keys.
extern "C" __global__ void masked_softmax_backward(
    const element* grad, const element* out, element* result, long long rows, long long keys,
    long long heads, long long queries, VISIBILITY_PARAMETERS) {
    long long row = this_row();
    if (row >= rows) return;
    long long pair = row / queries;
    Visible visible = visible_to(pair / heads, pair % heads, row % queries, keys, VISIBILITY);
    grad += row * keys;
    out += row * keys;
    result += row * keys;
    Wide dot = 0;
    FOR_COLUMNS(j, visible.limit)
        if (visible(j)) dot = dot + Wide(read(grad[j])) * read(out[j]);
    dot = sum_of_row(dot);
    FOR_COLUMNS(j, keys)
        result[j] = written(visible(j) ? read(out[j]) * (read(grad[j]) - dot).value() : 0);
}

extern "C" __global__ void log_softmax(
    const element* x, element* out, long long rows, long long columns) {
    long long row = this_row();
    if (row >= rows) return;
    x += row * columns;
    out += row * columns;
    Running mine = {minus_infinity(), 0};
    FOR_COLUMNS(j, columns) mine.take(read(x[j]));
    Running all = joined_running(mine);
    real log_sum = all.log_sum();
    FOR_COLUMNS(j, columns)
        out[j] = written((read(x[j]) - all.top) - log_sum);
}

extern "C" __global__ void log_softmax_backward(
    const element* grad, const element* out, element* result, long long rows, long long columns) {
    long long row = this_row();
    if (row >= rows) return;
    grad += row * columns;
    out += row * columns;
    result += row * columns;
    Wide sum = 0;
    FOR_COLUMNS(j, columns) sum = sum + read(grad[j]);
    sum = sum_of_row(sum);
    FOR_COLUMNS(j, columns)
        result[j] = written((read(grad[j]) - exp(read(out[j])) * sum).value());
}

// The loss of each row; and for backward its maximum and log-sum, (2, rows). These are two numbers,
// because their sum would lose the digits of the smaller one.
extern "C" __global__ void cross_entropy(
    const element* logits, const long long* target, element* losses, precise* log_sums,
    long long rows, long long columns, long long ignore_index) {
    long long row = this_row();
    if (row >= rows) return;
    logits += row * columns;
    long long label = target[row];
    bool counts = label != ignore_index;
    Running mine = {minus_infinity(), 0};
    if (counts)
        FOR_COLUMNS(j, columns) mine.take(read(logits[j]));
    Running all = joined_running(mine);
    if (threadIdx.x) return;
    real log_sum = all.log_sum();
    bool known = label >= 0 && label < columns;
    real loss = known ? log_sum - (read(logits[label]) - all.top) : not_a_number();
    losses[row] = written(counts ? loss : 0);
    log_sums[row] = counts ? all.top : 0;
    log_sums[rows + row] = counts ? log_sum : 0;
}

// (softmax - one_hot) * grad; an ignored row is zero even where its logits are NaN.
extern "C" __global__ void cross_entropy_backward(
    const element* grad, const element* logits, const long long* target, const precise* log_sums,
    element* result, long long rows, long long columns, long long ignore_index) {
    long long row = this_row();
    if (row >= rows) return;
    logits += row * columns;
    result += row * columns;
    long long label = target[row];
    real top = log_sums[row], log_sum = log_sums[rows + row], factor = read(grad[row]);
    FOR_COLUMNS(j, columns) {
        real probability = exp((read(logits[j]) - top) - log_sum);
        result[j] = written(label == ignore_index ? 0 : (probability - (j == label)) * factor);
    }
}
