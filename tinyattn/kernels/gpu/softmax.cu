// Softmax of rows, masked or not, and its logarithm. A row is read from memory once: the second
// reading, for the output, finds it in the cache.

// The maximum of some numbers, and the sum of exp(x - top) over them, in one pass: when a larger
// maximum comes, the sum so far is scaled down to it (Milakov and Gimelshein, 2018). A NaN is never
// the maximum, but stays in the sum.
struct Running {
    real top;
    wide sum;

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
    // Whoever saw nothing but -inf has the sum 0, or NaN. With inf the sum becomes NaN here.
    wide scaled = mine.top == minus_infinity() ? mine.sum : mine.sum * exp(mine.top - top);
    return {top, sum_of_row(scaled)};
}

extern "C" __global__ void masked_softmax(
    const element* x, element* out, long long rows, long long heads, long long queries,
    long long keys, HIDDEN_PARAMETERS) {
    long long row = this_row();
    if (row >= rows) return;
    Seen seen = seen_by(row / queries / heads, row / queries % heads, row % queries, keys, HIDDEN);
    x += row * keys;
    out += row * keys;
    Running mine = {minus_infinity(), 0};
    int any = 0;
    for (long long j = threadIdx.x; j < seen.limit; j += blockDim.x)
        if (seen(j)) {
            mine.take(read(x[j]));
            any = 1;
        }
    any = joined(any, [](int a, int b) { return a | b; });
    Running all = joined_running(mine);
    wide factor = any ? 1 / all.sum : 0;
    for (long long j = threadIdx.x; j < keys; j += blockDim.x)
        out[j] = written(any && seen(j) ? exp(read(x[j]) - all.top) * factor : 0);
}

// out * (grad - sum(grad * out)) over what is seen.
extern "C" __global__ void masked_softmax_backward(
    const element* grad, const element* out, element* result, long long rows, long long heads,
    long long queries, long long keys, HIDDEN_PARAMETERS) {
    long long row = this_row();
    if (row >= rows) return;
    Seen seen = seen_by(row / queries / heads, row / queries % heads, row % queries, keys, HIDDEN);
    grad += row * keys;
    out += row * keys;
    result += row * keys;
    wide inner = 0;
    for (long long j = threadIdx.x; j < seen.limit; j += blockDim.x)
        if (seen(j)) inner += (wide)read(grad[j]) * read(out[j]);
    inner = sum_of_row(inner);
    for (long long j = threadIdx.x; j < keys; j += blockDim.x)
        result[j] = written(seen(j) ? read(out[j]) * (read(grad[j]) - inner) : 0);
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
    wide log_sum = log(all.sum);
    for (long long j = threadIdx.x; j < columns; j += blockDim.x)
        out[j] = written(((wide)read(x[j]) - all.top) - log_sum);
}

extern "C" __global__ void log_softmax_backward(
    const element* grad, const element* out, element* result, long long rows, long long columns) {
    long long row = this_row();
    if (row >= rows) return;
    grad += row * columns;
    out += row * columns;
    result += row * columns;
    wide sum = 0;
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) sum += read(grad[j]);
    sum = sum_of_row(sum);
    for (long long j = threadIdx.x; j < columns; j += blockDim.x)
        result[j] = written(read(grad[j]) - exp(read(out[j])) * sum);
}

// The loss of each row, and its maximum and log-sum, (2, rows), which backward needs. They are kept
// apart, since in their sum the digits of the smaller one would be lost.
extern "C" __global__ void cross_entropy(
    const element* logits, const long long* target, element* losses, wide* log_sums,
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
    wide log_total = log(all.sum);
    bool known = label >= 0 && label < columns;
    wide loss = known ? log_total - ((wide)read(logits[label]) - all.top) : not_a_number();
    losses[row] = written(counts ? loss : 0);
    log_sums[row] = counts ? all.top : 0;
    log_sums[rows + row] = counts ? log_total : 0;
}

// (softmax - one_hot) * grad; an ignored row is zero even where its logits are NaN.
extern "C" __global__ void cross_entropy_backward(
    const element* grad, const element* logits, const long long* target, const wide* log_sums,
    element* result, long long rows, long long columns, long long ignore_index) {
    long long row = this_row();
    if (row >= rows) return;
    logits += row * columns;
    result += row * columns;
    long long label = target[row];
    wide top = log_sums[row], log_total = log_sums[rows + row];
    wide factor = read(grad[row]);
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) {
        wide probability = exp((real)(((wide)read(logits[j]) - top) - log_total));
        result[j] = written(label == ignore_index ? 0 : (probability - (j == label)) * factor);
    }
}
