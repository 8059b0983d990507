// Layer normalization of rows, and its gradients. RMSNorm is the same with a mean of 0.

// 1 / sqrt(v). The lower part is a step of Newton's method.
__device__ Wide inverse_root_of(Wide v) {
    real root = 1 / sqrt(v.high);
    return {root, root * (1 - v * Wide(root) * Wide(root)).value() / 2};
}

// out = (x - mean) / std * weight + bias; and for backward the mean and 1 / std of each row. weight,
// bias and means may be null; without means it is RMSNorm.
extern "C" __global__ void layer_norm(
    const element* x, const element* weight, const element* bias, element* out, precise* means,
    precise* inv_stds, long long rows, long long columns, double eps) {
    long long row = this_row();
    if (row >= rows) return;
    x += row * columns;
    out += row * columns;
    Wide total = 0, squares = 0;
    if (means) {
        FOR_COLUMNS(j, columns) total = total + read(x[j]);
        total = sum_of_row(total);
    }
    Wide mean = total / columns;
    // Not mean(x^2) - mean^2, because the difference of close numbers has few digits.
    FOR_COLUMNS(j, columns) {
        Wide distance = read(x[j]) - mean;
        squares = squares + distance * distance;
    }
    Wide inv_std = inverse_root_of(sum_of_row(squares) / columns + from_saved(eps));
    FOR_COLUMNS(j, columns) {
        Wide normal = (read(x[j]) - mean) * inv_std;
        if (weight) normal = normal * read(weight[j]);
        if (bias) normal = normal + read(bias[j]);
        out[j] = written(normal.value());
    }
    if (threadIdx.x) return;
    if (means) means[row] = total.saved() / columns;
    inv_stds[row] = inv_std.saved();
}

// With n the normalized x and g = grad * weight: (g - mean(g) - n * mean(g * n)) / std. RMSNorm has
// no mean(g), because it subtracts no mean. `stats` gets the mean in two parts and 1 / std of each
// row, (3, rows), for the sums over rows, which would convert them once for each element.
extern "C" __global__ void layer_norm_backward(
    const element* grad, const element* x, const element* weight, const precise* means,
    const precise* inv_stds, real* stats, element* result, long long rows, long long columns) {
    long long row = this_row();
    if (row >= rows) return;
    grad += row * columns;
    x += row * columns;
    result += row * columns;
    Wide mean = means ? from_saved(means[row]) : 0, inv_std = from_saved(inv_stds[row]);
    Wide g_sum = 0, gn_sum = 0;
    FOR_COLUMNS(j, columns) {
        Wide g = Wide(read(grad[j])) * (weight ? read(weight[j]) : 1);
        g_sum = g_sum + g;
        gn_sum = gn_sum + g * ((read(x[j]) - mean) * inv_std);
    }
    Wide g_mean = means ? sum_of_row(g_sum) / columns : 0, gn_mean = sum_of_row(gn_sum) / columns;
    FOR_COLUMNS(j, columns) {
        Wide g = Wide(read(grad[j])) * (weight ? read(weight[j]) : 1);
        Wide normal = (read(x[j]) - mean) * inv_std;
        result[j] = written((inv_std * (g - g_mean - normal * gn_mean)).value());
    }
    if (threadIdx.x) return;
    stats[row] = mean.high;
    stats[rows + row] = mean.low;
    stats[2 * rows + row] = inv_std.value();
}
