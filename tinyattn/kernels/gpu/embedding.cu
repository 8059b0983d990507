// Rows of a table by their numbers, and the gradient of the table.

// out[i] = table[ids[i]]. An id out of range gives NaN and is written to the slot.
extern "C" __global__ void take_rows(
    const element* table, const long long* ids, element* out, long long* slot, long long count,
    long long width, long long num_rows) {
    FOR_EACH(i, count * width) {
        long long position = i / width, id = ids[position];
        bool known = id >= 0 && id < num_rows;
        out[i] = known ? table[id * width + i % width] : written(not_a_number());
        if (!known) write_to_slot(slot, position, id);
    }
}

// table[ids[i]] += grad[i], once for each time that an id occurs. The sum runs in the order of the
// positions and in a precise type, because atomic additions would come in any order and would lose
// digits. Each position has a block. If its id has not occurred earlier, the block sums the rows of
// that id. All other rows of the table are zero already. An id out of range is left out.
extern "C" __global__ void scatter_rows(
    const element* grad, const long long* ids, element* table, long long count, long long width,
    long long num_rows, long long skip) {
    __shared__ unsigned matches[32];
    long long position = blockIdx.x, id = ids[position];
    if (id < 0 || id >= num_rows || id == skip) return;
    int earlier = 0;
    for (long long i = threadIdx.x; i < position && !earlier; i += blockDim.x)
        earlier = ids[i] == id;
    if (__syncthreads_or(earlier)) return;
    for (long long first = 0; first < width; first += blockDim.x) {
        long long j = first + threadIdx.x;
        precise sum = 0;
        for (long long start = position; start < count; start += blockDim.x) {
            bool match = start + threadIdx.x < count && ids[start + threadIdx.x] == id;
            unsigned bits = __ballot_sync(ALL_LANES, match);
            if (threadIdx.x % 32 == 0) matches[threadIdx.x / 32] = bits;
            __syncthreads();
            for (unsigned warp = 0; warp < blockDim.x / 32; warp++)
                for (unsigned left = matches[warp]; left; left &= left - 1)
                    if (j < width)
                        sum += read(grad[(start + warp * 32 + __ffs(left) - 1) * width + j]);
            __syncthreads();
        }
        if (j < width) table[id * width + j] = written(sum);
    }
}
