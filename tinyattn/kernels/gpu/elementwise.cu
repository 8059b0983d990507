// Functions of each element by itself.

// x / (1 - p) where the hash keeps x, 0 elsewhere. The gradient is the same function of grad.
extern "C" __global__ void dropout(
    const element* x, element* out, long long size, DROP_PARAMETERS) {
    Drop drop = drop_of(DROP);
    real factor = drop.factor;  // in float16 it may be inf, so it is rounded to float32 only
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
