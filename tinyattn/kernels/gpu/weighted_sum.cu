// weights @ values, where a value behind the mask does not come through even if it is NaN.

// A thread makes one element of (pairs, rows, width). The sum runs over `inner` values; weights lie
// as (pairs, rows, inner), or transposed as (pairs, inner, rows), and the mask goes with the
// untransposed ones: (queries, keys).
extern "C" __global__ void weighted_sum(
    const element* weights, const element* values, element* out, long long pairs, long long heads,
    long long rows, long long inner, long long width, long long transposed, HIDDEN_PARAMETERS) {
    long long size = pairs * rows * width;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size;
         i += (long long)gridDim.x * blockDim.x) {
        long long column = i % width, row = i / width % rows, pair = i / width / rows;
        long long keys = transposed ? rows : inner;
        wide sum = 0;
        for (long long j = 0; j < inner; j++) {
            long long query = transposed ? j : row, key = transposed ? row : j;
            if (!seen_by(pair / heads, pair % heads, query, keys, HIDDEN)(key)) continue;
            long long at = transposed ? (pair * inner + j) * rows + row : (pair * rows + row) * inner + j;
            sum += (wide)read(weights[at]) * read(values[(pair * inner + j) * width + column]);
        }
        out[i] = written(sum);
    }
}
