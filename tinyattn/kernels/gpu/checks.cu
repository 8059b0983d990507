// Values that come from outside and stay on the device: looked at there, and reported later, so
// that the host need not wait for them.

// faults[0] becomes 1 + the position of some number outside [low, high), faults[1] that number; an
// earlier finding stays. `except` is allowed all the same.
extern "C" __global__ void check_range(
    const long long* numbers, long long* faults, long long size, long long low, long long high,
    long long except) {
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size;
         i += (long long)gridDim.x * blockDim.x) {
        long long number = numbers[i];
        if ((number < low || number >= high) && number != except &&
            atomicCAS((unsigned long long*)faults, 0ull, (unsigned long long)(1 + i)) == 0)
            faults[1] = number;
    }
}

// Whether any query may see a key: (B, heads of the mask, K). The grid is that of the output.
extern "C" __global__ void visible_keys(
    bool* out, long long size, long long heads, long long keys, long long queries,
    HIDDEN_PARAMETERS) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    long long key = i % keys, head = i / keys % heads, sample = i / keys / heads;
    bool any = false;
    for (long long query = 0; query < queries && !any; query++)
        any = seen_by(sample, head, query, keys, HIDDEN)(key);
    out[i] = any;
}
