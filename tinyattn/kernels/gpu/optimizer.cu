// Updates of many arrays in one launch. A table on the device says where they lie: (arrays, count)
// addresses, then the count of sizes. Each block does CHUNK elements of one of them: `places` has
// the number of the array and the first element for every block.

const long long CHUNK = 4096;

// One step of Adam or AdamW; the table has parameters, gradients, m and v, the last two in what is
// computed with: squares of halves would vanish. What changes from step to step comes from the device
// where `changing` is not null, since a captured step keeps its arguments.
extern "C" __global__ void adam(
    const long long* table, const long long* places, long long count, double shrink, double rate,
    double inv_root, const double* changing, double decay, double beta1, double beta2, double eps) {
    if (changing) {
        shrink = changing[0];
        rate = changing[1];
        inv_root = changing[2];
    }
    long long which = places[2 * blockIdx.x], first = places[2 * blockIdx.x + 1];
    element* parameter = (element*)table[which];
    const element* grad = (const element*)table[count + which];
    real* m = (real*)table[2 * count + which];
    real* v = (real*)table[3 * count + which];
    long long size = table[4 * count + which];
    long long end = first + CHUNK < size ? first + CHUNK : size;
    for (long long i = first + threadIdx.x; i < end; i += blockDim.x) {
        real w = read(parameter[i]) * (real)shrink;
        real g = read(grad[i]) + (real)decay * w;
        m[i] = m[i] * (real)beta1 + (real)(1 - beta1) * g;
        v[i] = v[i] * (real)beta2 + (real)(1 - beta2) * g * g;
        real root = sqrt(v[i]) * (real)inv_root + (real)eps;
        parameter[i] = written(w - (real)rate * m[i] / root);
    }
}

// The sum of squares of each block's elements; the table has the gradients.
extern "C" __global__ void squares(
    const long long* table, const long long* places, long long count, double* sums) {
    long long which = places[2 * blockIdx.x], first = places[2 * blockIdx.x + 1];
    const element* grad = (const element*)table[which];
    long long size = table[count + which];
    long long end = first + CHUNK < size ? first + CHUNK : size;
    double sum = 0;
    for (long long i = first + threadIdx.x; i < end; i += blockDim.x)
        sum += (double)read(grad[i]) * read(grad[i]);
    sum = sum_of_row(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// The norm, from the sums of all blocks. In one block, though that is another launch: of a hundred
// million gradients there are so many sums that each block adding them up would take longest.
extern "C" __global__ void norm_of_sums(const double* sums, long long number, double* norm) {
    double total = 0;
    for (long long i = threadIdx.x; i < number; i += blockDim.x) total += sums[i];
    total = sum_of_row(total);
    if (threadIdx.x == 0) *norm = sqrt(total);
}

// Scales all gradients by max_norm / (norm + 1e-6) if that is below 1 and the norm is finite.
extern "C" __global__ void clip(
    const long long* table, const long long* places, long long count, const double* norm,
    double max_norm) {
    double factor = max_norm / (*norm + 1e-6);
    if (!(factor < 1) || *norm - *norm != 0) return;
    long long which = places[2 * blockIdx.x], first = places[2 * blockIdx.x + 1];
    element* grad = (element*)table[which];
    long long size = table[count + which];
    long long end = first + CHUNK < size ? first + CHUNK : size;
    for (long long i = first + threadIdx.x; i < end; i += blockDim.x)
        grad[i] = written(read(grad[i]) * (real)factor);
}
