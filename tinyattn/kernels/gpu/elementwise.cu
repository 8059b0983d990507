// Functions of each element by itself. A thread takes every so many-th element, so that any number
// of blocks will do.

#define FOR_EACH(i, size)                                                                  \
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size;         \
         i += (long long)gridDim.x * blockDim.x)

// x / (1 - p) where the hash keeps it, 0 elsewhere. It is its own gradient.
extern "C" __global__ void dropout(
    const element* x, element* out, long long size, double p, long long threshold, long long seed,
    const long long* draws) {
    Dropping drop = dropping(p, threshold, seed, draws);
    real factor = read(written(drop.factor));  // rounded as on the CPU
    FOR_EACH(i, size) out[i] = written(drop.keeps(i) ? read(x[i]) * factor : 0);
}

extern "C" __global__ void erf_of(const element* x, element* out, long long size) {
    FOR_EACH(i, size) out[i] = written(erf(read(x[i])));
}

// 0 where out <= 0, else grad: a NaN is not <= 0.
extern "C" __global__ void relu_backward(
    const element* grad, const element* out, element* result, long long size) {
    FOR_EACH(i, size) result[i] = written(read(out[i]) <= 0 ? 0 : read(grad[i]));
}
