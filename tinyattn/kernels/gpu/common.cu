// What all kernels share; it is put in front of each of them. SCALAR is 16, 32 or 64.
//
// element  what lies in memory; a half is a bare 16-bit number there, since CUDA's header for halves
//          is not found where only the runtime compiler is installed
// real     what is computed with
// wide     what sums are kept in
//
// Numbers come as long long and double: that is what CuPy makes of Python's int and float.

#if SCALAR == 64
typedef double element, real, wide;
#elif SCALAR == 32
typedef float element, real;
typedef double wide;
#else
typedef float real, wide;
#ifdef TINYATTN_HOST
typedef _Float16 element;
#else
typedef unsigned short element;
#endif
#endif

#if SCALAR == 16 && !defined(TINYATTN_HOST)
__device__ __forceinline__ real read(element x) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x));
    return value;
}
__device__ __forceinline__ element written(wide x) {
    element bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#else
__device__ __forceinline__ real read(element x) { return x; }
__device__ __forceinline__ element written(wide x) { return (element)x; }
#endif

#ifdef TINYATTN_HOST
#define DYNAMIC_SHARED(type, name) type* name = (type*)block::dynamic
#else
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

#define ALL_LANES 0xffffffffu

// The runtime compiler has no headers, and so no names for these.
__device__ __forceinline__ real minus_infinity() { return __int_as_float(0xff800000); }
__device__ __forceinline__ wide not_a_number() { return __int_as_float(0x7fc00000); }
__device__ __forceinline__ bool is_infinite(real x) {
    return x == minus_infinity() || x == -minus_infinity();
}
__device__ __forceinline__ bool is_finite(real x) { return x - x == 0; }

// A row is worked on by the threads with one threadIdx.y: by a warp, with several rows in a block,
// or by a block of several warps. `joined` is the value of all of them, in all of them: the same
// bits, since both sides of an exchange join the same two numbers.
template <class T, class Join> __device__ T joined(T value, Join join) {
    for (int lanes = 16; lanes; lanes /= 2)
        value = join(value, __shfl_xor_sync(ALL_LANES, value, lanes));
    if (blockDim.x > 32) {
        __shared__ T parts[32];
        __syncthreads();  // a row before this one may still be read
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
        __syncthreads();
        value = parts[0];
        for (unsigned warp = 1; warp < blockDim.x / 32; warp++) value = join(value, parts[warp]);
    }
    return value;
}

template <class T> __device__ T sum_of_row(T value) {
    return joined(value, [](T a, T b) { return a + b; });
}

// In a block of 32 x 32 threads: the sum over threadIdx.y, in the threads where that is 0.
__device__ wide sum_of_column(wide value) {
    __shared__ wide values[32][33];  // 33: a column is not all in one bank
    __syncthreads();
    values[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    // Transposed, so that a warp has the 32 numbers of one column.
    value = values[threadIdx.x][threadIdx.y];
    for (int lanes = 16; lanes; lanes /= 2) value += __shfl_xor_sync(ALL_LANES, value, lanes);
    __syncthreads();
    if (threadIdx.x == 0) values[0][threadIdx.y] = value;
    __syncthreads();
    return values[0][threadIdx.x];
}

__device__ __forceinline__ long long this_row() {
    return (long long)blockIdx.x * blockDim.y + threadIdx.y;
}

// Which keys one query may see: the first `limit`, and of these the ones a mask allows. A stride
// is 0 where one entry stands for a whole dimension; without limits or mask the pointer is null.
struct Seen {
    long long limit;
    const bool* mask;
    long long step;

    __device__ bool operator()(long long key) const {
        return key < limit && (!mask || mask[key * step]);
    }
};

__device__ __forceinline__ Seen seen_by(
    long long sample, long long head, long long query, long long keys,
    const long long* limits, long long limits_b, long long limits_q,
    const bool* mask, long long mask_b, long long mask_h, long long mask_q, long long mask_k) {
    Seen seen = {keys, nullptr, mask_k};
    if (limits) {
        long long limit = limits[sample * limits_b + query * limits_q];
        seen.limit = limit < keys ? limit : keys;
    }
    if (mask) seen.mask = mask + sample * mask_b + head * mask_h + query * mask_q;
    return seen;
}

#define HIDDEN_PARAMETERS                                                       \
    const long long *limits, long long limits_b, long long limits_q,            \
        const bool *mask, long long mask_b, long long mask_h, long long mask_q, \
        long long mask_k
#define HIDDEN limits, limits_b, limits_q, mask, mask_b, mask_h, mask_q, mask_k

// The hash of dropout: element `index` is kept if it is at least the threshold. The same numbers as
// on the CPU (kernels/reference.py has the source). `draws`, if not null, counts the replays of a
// captured step, so that each of them drops something else.
__device__ __forceinline__ unsigned mixed(unsigned h) {
    h = (h ^ (h >> 16)) * 0x21F0AAADu;
    h = (h ^ (h >> 15)) * 0x735A2D97u;
    return h ^ (h >> 15);
}

struct Dropping {
    unsigned low, high, threshold;
    real factor;

    __device__ bool keeps(long long index) const {
        return mixed(mixed((unsigned)index ^ low) ^ high) >= threshold;
    }
};

__device__ __forceinline__ Dropping dropping(
    double p, long long threshold, long long seed, const long long* draws) {
    unsigned long long bits = (unsigned long long)seed;
    if (draws) bits += (unsigned long long)*draws * 0x9E3779B97F4A7C15ull;
    return {(unsigned)bits, (unsigned)(bits >> 32), (unsigned)threshold, (real)(1 / (1 - p))};
}
