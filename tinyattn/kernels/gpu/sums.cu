// Sums over the rows of a matrix, in one or two launches and always in the same order.

// (rows, columns) -> (gridDim.y, columns): each block adds every gridDim.y-th group of 32 rows.
// With one block for a column, its sum is the whole one and goes to `out`.
extern "C" __global__ void begin_sums(
    const element* x, precise* parts, element* out, long long rows, long long columns) {
    long long j = (long long)blockIdx.x * 32 + threadIdx.x;
    precise sum = 0;
    if (j < columns)
        for (long long i = 32ll * blockIdx.y + threadIdx.y; i < rows; i += gridDim.y * 32)
            sum += read(x[i * columns + j]);
    sum = sum_of_column(sum);
    if (threadIdx.y || j >= columns) return;
    if (gridDim.y == 1) out[j] = written(sum);
    else parts[blockIdx.y * columns + j] = sum;
}

// (number, columns) -> (columns,). If `second` is not null, `parts` has two such arrays.
extern "C" __global__ void end_sums(
    const precise* parts, element* out, element* second, long long number, long long columns) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (second ? 2 : 1) * columns) return;
    parts += i / columns * number * columns + i % columns;
    precise sum = 0;
    for (long long part = 0; part < number; part++) sum += parts[part * columns];
    (i < columns ? out : second)[i % columns] = written(sum);
}
