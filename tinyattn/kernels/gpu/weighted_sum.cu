// weights @ values, without the products of invisible pairs: 0 * NaN would be NaN.

// A thread computes one element of out (pairs, rows, width) as a sum of `terms` products. weights
// lie as (pairs, rows, terms); or `transposed`, as (pairs, terms, rows). The mask is that of the
// weights before they were transposed: (queries, keys).
extern "C" __global__ void weighted_sum(
    const element* weights, const element* values, element* out, long long pairs, long long heads,
    long long rows, long long terms, long long width, long long transposed, VISIBILITY_PARAMETERS) {
    FOR_EACH(i, pairs * rows * width) {
        long long column = i % width, row = i / width % rows, pair = i / width / rows;
        long long keys = transposed ? rows : terms;
        precise sum = 0;
        for (long long j = 0; j < terms; j++) {
            long long query = transposed ? j : row, key = transposed ? row : j;
            if (!visible_to(pair / heads, pair % heads, query, keys, VISIBILITY)(key)) continue;
            long long value = pair * terms + j;
            long long weight = transposed ? value * rows + row : (pair * rows + row) * terms + j;
            sum += (precise)read(weights[weight]) * read(values[value * width + column]);
        }
        out[i] = written(sum);
    }
}
