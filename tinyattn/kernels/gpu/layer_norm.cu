// Layer normalization of rows, and its gradients.

// out = (x - mean) / std * weight + bias; and for backward the mean and 1 / std of each row. weight
// and bias may be null.
extern "C" __global__ void layer_norm(
    const element* x, const element* weight, const element* bias, element* out, precise* means,
    precise* inv_stds, long long rows, long long columns, double eps) {
    long long row = this_row();
    if (row >= rows) return;
    x += row * columns;
    out += row * columns;
    precise total = 0;
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) total += read(x[j]);
    precise mean = sum_of_row(total) / columns;
    // Not mean(x^2) - mean^2, because the difference of close numbers has few digits.
    precise squares = 0;
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) {
        precise distance = read(x[j]) - mean;
        squares += distance * distance;
    }
    precise inv_std = 1 / sqrt(sum_of_row(squares) / columns + (precise)eps);
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) {
        precise normal = (read(x[j]) - mean) * inv_std;
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
    const element* grad, const element* x, const element* weight, const precise* means,
    const precise* inv_stds, element* result, long long rows, long long columns) {
    long long row = this_row();
    if (row >= rows) return;
    grad += row * columns;
    x += row * columns;
    result += row * columns;
    precise mean = means[row], inv_std = inv_stds[row], g_sum = 0, gn_sum = 0;
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) {
        precise g = (precise)read(grad[j]) * (weight ? read(weight[j]) : 1);
        g_sum += g;
        gn_sum += g * ((read(x[j]) - mean) * inv_std);
    }
    precise g_mean = sum_of_row(g_sum) / columns, gn_mean = sum_of_row(gn_sum) / columns;
    for (long long j = threadIdx.x; j < columns; j += blockDim.x) {
        precise g = (precise)read(grad[j]) * (weight ? read(weight[j]) : 1);
        precise normal = (read(x[j]) - mean) * inv_std;
        result[j] = written(inv_std * (g - g_mean - normal * gn_mean));
    }
}

// The sums over all rows of grad * n, for the weight, and of grad, for the bias: one part for each
// block of a column, (2, gridDim.y, columns). end_sums in sums.cu adds the parts. A single part is
// the gradient itself. Atomic additions would be simpler, but their last digits change from run to
// run.
extern "C" __global__ void layer_norm_columns(
    const element* grad, const element* x, const precise* means, const precise* inv_stds,
    precise* parts, element* dweight, element* dbias, long long rows, long long columns) {
    long long j = (long long)blockIdx.x * 32 + threadIdx.x;
    precise weight = 0, bias = 0;
    if (j < columns)
        for (long long i = 32ll * blockIdx.y + threadIdx.y; i < rows; i += gridDim.y * 32) {
            precise g = read(grad[i * columns + j]);
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
