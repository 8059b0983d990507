// Softmax of rows, its logarithm, its masked form, and cross-entropy. Each row is read twice, but
// comes from memory only once: the second time it is in the cache.

// The maximum of some numbers, `top`, and the sum of exp(x - top) over them, in one pass. When a
// larger maximum comes, the sum so far is scaled down to it (Milakov and Gimelshein, 2018). A NaN
// never is the maximum, but it stays in the sum.
struct Running {
    real top;
    precise sum;

    __device__ void take(real x) {
        if (x > top) {
            sum = sum * exp(top - x) + 1;
            top = x;
        } else if (x != minus_infinity()) {
            sum += exp(x - top);
        }
    }
};

__device__ Running joined_running(Running mine) {
    real top = joined(mine.top, [](real a, real b) { return a > b ? a : b; });
    // A thread that met only -inf has the sum 0, or NaN. An inf makes the sum NaN here.
    precise scaled = mine.top == minus_infinity() ? mine.sum : mine.sum * exp(mine.top - top);
    return {top, sum_of_row(scaled)};
}

extern "C" __global__ void masked_softmax(
    const element* x, element* out, long long rows, long long heads, long long queries,
    long long keys, VISIBILITY_PARAMETERS) {
    long long row = this_row();
    if (row >= rows) return;
    long long pair = row / queries;
    Visible visible = visible_to(pair / heads, pair % heads, row % queries, keys, VISIBILITY);
    x += row * keys;
    out += row * keys;
    Running mine = {minus_infinity(), 0};
    int any = 0;
    for (long long j = threadIdx.x; j < visible.limit; j += blockDim.x)
        if (visible(j)) {
            mine.take(read(x[j]));
            any = 1;
        }
    any = joined(any, [](int a, int b) { return a | b; });
    Running all = joined_running(mine);
    precise factor = any ? 1 / all.sum : 0;
    for (long long j = threadIdx.x; j < keys; j += blockDim.x)
        out[j] = written(any && visible(j) ? exp(read(x[j]) - all.top) * factor : 0);
}

// out * (grad - sum(grad * out)) over the visible keys.
extern "C" __global__ void masked_softmax_backward(
    const element* grad, const element* out, element* result, long long rows, long long heads,
    long long queries, long long keys, VISIBILITY_PARAMETERS) {
    long long row = this_row();
    if (row >= rows) return;
    long long pair = row / queries;
    Visible visible = visible_to(pair / heads, pair % heads, row % queries, keys, VISIBILITY);
    grad += row * keys;
    out += row * keys;
    result += row * keys;
    precise dot = 0;
    for (long long j = threadIdx.x; j < visible.limit; j += blockDim.x)
        if (visible(j)) dot += (precise)read(grad[j]) * read(out[j]);
    dot = sum_of_row(dot);
    for (long long j = threadIdx.x; j < keys; j += blockDim.x)
        result[j] = written(visible(j) ? read(out[j]) * (read(grad[j]) - dot) : 0);
}

extern "C" __global__ void log_softmax(
    const element* x, element* out, long long rows, long long columns) {
    long long row = this_row();
    if (row >= rows) return;
    x += row * columns;
    out += row * columns;
    Running mine = {minus_infinity(), 0};
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) mine.take(read(x[j]));
    Running all = joined_running(mine);
    precise log_sum = log(all.sum);
    for (long long j = threadIdx.x; j < columns; j += blockDim.x)
        out[j] = written(((precise)read(x[j]) - all.top) - log_sum);
}

extern "C" __global__ void log_softmax_backward(
    const element* grad, const element* out, element* result, long long rows, long long columns) {
    long long row = this_row();
    if (row >= rows) return;
    grad += row * columns;
    out += row * columns;
    result += row * columns;
    precise sum = 0;
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) sum += read(grad[j]);
    sum = sum_of_row(sum);
    for (long long j = threadIdx.x; j < columns; j += blockDim.x)
        result[j] = written(read(grad[j]) - exp(read(out[j])) * sum);
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
    for (long long j = threadIdx.x; counts && j < columns; j += blockDim.x)
        mine.take(read(logits[j]));
    Running all = joined_running(mine);
    if (threadIdx.x) return;
    precise log_total = log(all.sum);
    bool known = label >= 0 && label < columns;
    precise loss = known ? log_total - ((precise)read(logits[label]) - all.top) : not_a_number();
    losses[row] = written(counts ? loss : 0);
    log_sums[row] = counts ? all.top : 0;
    log_sums[rows + row] = counts ? log_total : 0;
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
    precise top = log_sums[row], log_total = log_sums[rows + row];
    precise factor = read(grad[row]);
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) {
        precise probability = exp((real)(((precise)read(logits[j]) - top) - log_total));
        result[j] = written(label == ignore_index ? 0 : (probability - (j == label)) * factor);
    }
}
