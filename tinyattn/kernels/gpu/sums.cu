// Sums over the rows of a matrix, in one or two launches and always in the same order.

// plain = the sums of x over rows; and if `other` is not null, weighted = the sums of x times the
// normalized `other`, whose `stats` are those of layer_norm_backward. A block has 8 columns, because
// 8 numbers of float32 are the least that a read from memory brings, and every gridDim.y-th group of
// 128 rows. Its sums are the whole ones, or go to parts (2, gridDim.y, columns) for end_sums. Atomic
// additions would be simpler, but their last digits change from run to run.
extern "C" __global__ void __launch_bounds__(1024) column_sums(
    const element* x, const element* other, const real* stats, precise* parts, element* plain,
    element* weighted, long long rows, long long columns) {
    long long j = (long long)blockIdx.x * 8 + threadIdx.x;
    Wide sum = 0, weighted_sum = 0;
    if (j < columns)
        for (long long i = 128ll * blockIdx.y + threadIdx.y; i < rows; i += gridDim.y * 128) {
            real value = read(x[i * columns + j]);
            sum = sum + value;
            if (!other) continue;
            Wide centred = read(other[i * columns + j]) - Wide(stats[i], stats[rows + i]);
            weighted_sum = weighted_sum + value * (centred * stats[2 * rows + i]);
        }
    sum = sum_of_column(sum);
    if (other) weighted_sum = sum_of_column(weighted_sum);
    unsigned thread = threadIdx.y * 8 + threadIdx.x;
    j = (long long)blockIdx.x * 8 + thread / 32;
    if (thread % 32 || thread >= 8 * 32 || j >= columns) return;
    if (gridDim.y > 1) {
        parts[blockIdx.y * columns + j] = sum.saved();
        if (other) parts[(gridDim.y + blockIdx.y) * columns + j] = weighted_sum.saved();
    } else {
        plain[j] = written(sum.value());
        if (other) weighted[j] = written(weighted_sum.value());
    }
}

// (number, columns) -> (columns,). If `second` is not null, `parts` has two such arrays.
extern "C" __global__ void end_sums(
    const precise* parts, element* out, element* second, long long number, long long columns) {
    FOR_EACH(i, (second ? 2 : 1) * columns) {
        const precise* part = parts + i / columns * number * columns + i % columns;
        Wide sum = 0;
        for (long long n = 0; n < number; n++) sum = sum + from_saved(part[n * columns]);
        (i < columns ? out : second)[i % columns] = written(sum.value());
    }
}
