// weights @ values, of which a product of matrices does the most. 0 * NaN is NaN, so what is not
// finite may not go into it.

// finite = values, with 0 for NaN and inf; flags = whether a row (of `width` numbers) has any.
extern "C" __global__ void finite_values(
    const element* values, element* finite, bool* flags, long long rows, long long width) {
    long long row = this_row();
    if (row >= rows) return;
    int any = 0;
    FOR_COLUMNS(j, width) {
        real value = read(values[row * width + j]);
        any |= !is_finite(value);
        finite[row * width + j] = written(is_finite(value) ? value : 0);
    }
    bool some = any_of_row(any);
    if (threadIdx.x == 0) flags[row] = some;
}

// out (pairs, rows, width) += weights * the values that are not finite and are visible. weights lie
// as (pairs, rows, terms); or `transposed`, as (pairs, terms, rows). The mask is that of the weights
// before they were transposed: (queries, keys). The threads of a row look at all flags, and at the
// values only where one is set.
extern "C" __global__ void add_the_rest(
    const element* weights, const element* values, const bool* flags, element* out,
    long long out_rows, long long heads, long long rows, long long terms, long long width,
    long long transposed, VISIBILITY_PARAMETERS) {
    long long out_row = this_row();
    if (out_row >= out_rows) return;
    long long pair = out_row / rows, row = out_row % rows, keys = transposed ? rows : terms;
    int any = 0;
    FOR_COLUMNS(j, terms) any |= flags[pair * terms + j];
    if (!any_of_row(any)) return;
    for (long long j = 0; j < terms; j++) {
        long long query = transposed ? j : row, key = transposed ? row : j, term = pair * terms + j;
        if (!flags[term]) continue;
        if (!visible_to(pair / heads, pair % heads, query, keys, VISIBILITY)(key)) continue;
        real weight = read(weights[transposed ? term * rows + row : out_row * terms + j]);
        FOR_COLUMNS(column, width) {
            real value = read(values[term * width + column]);
            element* to = out + out_row * width + column;
            if (!is_finite(value)) *to = written(read(*to) + weight * value);
        }
    }
}
