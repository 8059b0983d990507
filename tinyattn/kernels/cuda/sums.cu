// Sums over the rows of a matrix, in two steps and always in the same order.

// (rows, columns) -> (gridDim.y, columns): each block adds every gridDim.y-th group of 8 rows.
extern "C" __global__ void begin_sums(
    const element* x, wide* parts, long long rows, long long columns) {
    __shared__ wide sums[8][33];
    long long j = (long long)blockIdx.x * 32 + threadIdx.x;
    wide sum = 0;
    if (j < columns)
        for (long long i = (long long)blockIdx.y * 8 + threadIdx.y; i < rows; i += gridDim.y * 8)
            sum += read(x[i * columns + j]);
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || j >= columns) return;
    for (int i = 1; i < 8; i++) sum += sums[i][threadIdx.x];
    parts[blockIdx.y * columns + j] = sum;
}

// (count, parts, columns) -> (count, columns).
extern "C" __global__ void end_sums(
    const wide* parts, element* out, long long count, long long number, long long columns) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count * columns) return;
    parts += i / columns * number * columns + i % columns;
    wide sum = 0;
    for (long long part = 0; part < number; part++) sum += parts[part * columns];
    out[i] = written(sum);
}
