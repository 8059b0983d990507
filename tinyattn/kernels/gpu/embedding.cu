// The gradient of a table whose rows are taken by their numbers.

// Positions are divided into chunks of 256. Bit c of an id's mask, (num_rows, words), says whether
// the id occurs in chunk c. Bits may be set in any order, because the result is the same.
const int CHUNK = 256;

extern "C" __global__ void mark_chunks(
    const long long* ids, unsigned long long* masks, long long count, long long num_rows,
    long long words) {
    FOR_EACH(i, count) {
        long long id = ids[i], chunk = i / CHUNK;
        if (id >= 0 && id < num_rows)
            atomicOr(&masks[id * words + chunk / 64], 1ull << chunk % 64);
    }
}

// table[ids[i]] += grad[i], once for each time that an id occurs. The sum runs in the order of the
// positions, because atomic additions would come in any order and would lose digits. Each position
// has a block. If its id has not occurred earlier, the block looks through the chunks of that id and
// sums its rows. All other rows of the table are zero already. An id out of range is left out.
extern "C" __global__ void scatter_rows(
    const element* grad, const long long* ids, const unsigned long long* masks, element* table,
    long long count, long long num_rows, long long words, long long width, long long skip) {
    __shared__ unsigned matches[CHUNK / 32];
    long long position = blockIdx.x, id = ids[position], first = position / CHUNK;
    if (id < 0 || id >= num_rows || id == skip) return;
    masks += id * words;
    unsigned long long before = masks[first / 64] & ((1ull << first % 64) - 1);
    for (long long word = 0; word < first / 64; word++) before |= masks[word];
    if (before) return;
    long long other = first * CHUNK + threadIdx.x;
    // All threads must leave or none, because those that stay wait for all.
    if (__syncthreads_or(other < position && ids[other] == id)) return;
    for (long long begin = 0; begin < width; begin += CHUNK) {
        long long j = begin + threadIdx.x;
        Wide sum = 0;
        for (long long word = first / 64; word < words; word++)
            for (unsigned long long chunks = masks[word]; chunks; chunks &= chunks - 1) {
                long long start = (word * 64 + __ffsll(chunks) - 1) * CHUNK;
                bool match = start + threadIdx.x < count && ids[start + threadIdx.x] == id;
                unsigned bits = __ballot_sync(ALL_LANES, match);
                if (threadIdx.x % 32 == 0) matches[threadIdx.x / 32] = bits;
                __syncthreads();  // all warps have written theirs
                for (int warp = 0; warp < CHUNK / 32; warp++)
                    for (unsigned left = matches[warp]; left; left &= left - 1)
                        if (j < width)
                            sum = sum + read(grad[(start + warp * 32 + __ffs(left) - 1) * width + j]);
                __syncthreads();  // all have read them, before the next chunk's are written
            }
        if (j < width) table[id * width + j] = written(sum.value());
    }
}
