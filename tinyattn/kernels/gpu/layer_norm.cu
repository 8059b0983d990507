// Layer normalization of rows, and its gradients.

// out = (x - mean) / std * weight + bias; mean and 1 / std of each row are kept for backward.
// weight and bias may be null.
extern "C" __global__ void layer_norm(
    const element* x, const element* weight, const element* bias, element* out, wide* means,
    wide* inv_stds, long long rows, long long columns, double eps) {
    long long row = this_row();
    if (row >= rows) return;
    x += row * columns;
    out += row * columns;
    wide total = 0;
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) total += read(x[j]);
    wide mean = sum_of_row(total) / columns;
    // The distances from the mean, not the squares: their difference would lose its digits.
    wide squares = 0;
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) {
        wide distance = read(x[j]) - mean;
        squares += distance * distance;
    }
    wide inv_std = 1 / sqrt(sum_of_row(squares) / columns + (wide)eps);
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) {
        wide normal = (read(x[j]) - mean) * inv_std;
        if (weight) normal *= read(weight[j]);
        if (bias) normal += read(bias[j]);
        out[j] = written(normal);
    }
    if (threadIdx.x == 0) {
        means[row] = mean;
        inv_stds[row] = inv_std;
    }
}

// With n the normalized x and g = grad * weight: (g - mean(g) - n * mean(g * n)) / std.
extern "C" __global__ void layer_norm_backward(
    const element* grad, const element* x, const element* weight, const wide* means,
    const wide* inv_stds, element* result, long long rows, long long columns) {
    long long row = this_row();
    if (row >= rows) return;
    grad += row * columns;
    x += row * columns;
    result += row * columns;
    wide mean = means[row], inv_std = inv_stds[row], g_sum = 0, gn_sum = 0;
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) {
        wide g = (wide)read(grad[j]) * (weight ? read(weight[j]) : 1);
        g_sum += g;
        gn_sum += g * ((read(x[j]) - mean) * inv_std);
    }
    wide g_mean = sum_of_row(g_sum) / columns, gn_mean = sum_of_row(gn_sum) / columns;
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) {
        wide g = (wide)read(grad[j]) * (weight ? read(weight[j]) : 1);
        wide normal = (read(x[j]) - mean) * inv_std;
        result[j] = written(inv_std * (g - g_mean - normal * gn_mean));
    }
}

// Sums over rows, of grad * n for the weight and of grad for the bias, as begin_sums of sums.cu makes
// them: (2, gridDim.y, columns), or with one group the gradients themselves. Atomic additions would be
// simpler, but with them the last digits would change from run to run.
extern "C" __global__ void layer_norm_columns(
    const element* grad, const element* x, const wide* means, const wide* inv_stds, wide* parts,
    element* dweight, element* dbias, long long rows, long long columns) {
    long long j = (long long)blockIdx.x * 32 + threadIdx.x;
    wide weight = 0, bias = 0;
    if (j < columns)
        for (long long i = (long long)blockIdx.y * 32 + threadIdx.y; i < rows; i += gridDim.y * 32) {
            wide g = read(grad[i * columns + j]);
            weight += g * ((read(x[i * columns + j]) - means[i]) * inv_stds[i]);
            bias += g;
        }
    weight = sum_of_column(weight);
    bias = sum_of_column(bias);
    if (threadIdx.y || j >= columns) return;
    if (gridDim.y == 1) {
        dweight[j] = written(weight);
        dbias[j] = written(bias);
    } else {
        parts[blockIdx.y * columns + j] = weight;
        parts[(gridDim.y + blockIdx.y) * columns + j] = bias;
    }
}
