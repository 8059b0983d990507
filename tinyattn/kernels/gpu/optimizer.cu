// Updates of many arrays in one launch. A table on the device has their addresses, list after list
// of `count` arrays, and then the `count` sizes. A block of threads works on BLOCK_ELEMENTS elements
// of one array: `blocks` says on which, (blocks, 2): the number of the array, and its first element.

const long long BLOCK_ELEMENTS = 4096;

struct Chunk {
    long long array, first, end;
};

__device__ Chunk this_chunk(const long long* blocks, const long long* sizes) {
    long long array = blocks[2 * blockIdx.x], first = blocks[2 * blockIdx.x + 1];
    long long size = sizes[array];
    return {array, first, first + BLOCK_ELEMENTS < size ? first + BLOCK_ELEMENTS : size};
}

// One step of Adam or AdamW. The table has parameters, gradients, m and v. m and v are `real`,
// because squares of halves would vanish.
extern "C" __global__ void adam(
    const long long* table, const long long* blocks, long long count, double shrink, double rate,
    double inv_root, double decay, double beta1, double beta2, double eps) {
    auto [which, first, end] = this_chunk(blocks, table + 4 * count);
    element* parameter = (element*)table[which];
    const element* grad = (const element*)table[count + which];
    real* m = (real*)table[2 * count + which];
    real* v = (real*)table[3 * count + which];
    for (long long i = first + threadIdx.x; i < end; i += blockDim.x) {
        real w = read(parameter[i]) * (real)shrink;
        real g = read(grad[i]) + (real)decay * w;
        m[i] = m[i] * (real)beta1 + (real)(1 - beta1) * g;
        v[i] = v[i] * (real)beta2 + (real)(1 - beta2) * g * g;
        real root = sqrt(v[i]) * (real)inv_root + (real)eps;
        parameter[i] = written(w - (real)rate * m[i] / root);
    }
}
