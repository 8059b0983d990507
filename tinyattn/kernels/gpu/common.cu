// Shared by all kernels: launch.py puts this file in front of every other one. SCALAR is 16, 32 or
// 64 and chooses three types:
//
//   element  numbers in memory. A half is a bare 16-bit number there, because CUDA's header for
//            halves is missing where only the runtime compiler is installed
//   real     numbers in a computation
//   precise  numbers that are saved with more digits: `sum_dtype` of ../sums.py
//
// A card for games or for inference computes float64 at 1/32 or 1/64 of its speed in float32. So
// kernels of float32 add up numbers of two parts, Wide, and float64 is not in their loops.
//
// Numbers arrive as long long and double, because CuPy makes these of Python's int and float.

#if SCALAR == 64
typedef double element, real, precise;
#elif SCALAR == 32
typedef float element, real;
typedef double precise;
#else
typedef float real, precise;
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
__device__ __forceinline__ element written(real x) {
    element bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
#else
__device__ __forceinline__ real read(element x) { return x; }
__device__ __forceinline__ element written(real x) { return (element)x; }
#endif

#ifdef TINYATTN_HOST
#define DYNAMIC_SHARED(type, name) type* name = (type*)block::dynamic
#else
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

#define ALL_LANES 0xffffffffu

// Functions for numbers that C++ names in headers, because the runtime compiler has no headers.
__device__ __forceinline__ real minus_infinity() { return __int_as_float(0xff800000); }
__device__ __forceinline__ real not_a_number() { return __int_as_float(0x7fc00000); }
__device__ __forceinline__ bool is_infinite(real x) {
    return x == minus_infinity() || x == -minus_infinity();
}
__device__ __forceinline__ bool is_finite(real x) { return x - x == 0; }

// The elements [0, size), divided among all threads of a launch: any number of blocks will do.
#define FOR_EACH(i, size)                                                          \
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < size; \
         i += (long long)gridDim.x * blockDim.x)

// The columns of a row, divided among the threads that work on it.
#define FOR_COLUMNS(j, columns) for (long long j = threadIdx.x; j < columns; j += blockDim.x)

// A number in two parts: `high` is rounded, `low` is what the rounding left out (Knuth, The Art of
// Computer Programming 2, section 4.2.2). So sums and products of float32 have some 45 bits.
struct Wide {
    real high, low;

    Wide() = default;
    __device__ __forceinline__ Wide(real high, real low = 0) : high(high), low(low) {}
    // Where a number is infinite, `low` is NaN and means nothing.
    __device__ __forceinline__ real value() const { return low == low ? high + low : high; }
    __device__ __forceinline__ precise saved() const {
        return low == low ? (precise)high + low : high;
    }
};

// a + b and b + a have the same bits.
__device__ __forceinline__ Wide operator+(Wide a, Wide b) {
    real sum = a.high + b.high, part = sum - a.high;
    return {sum, (a.low + b.low) + ((a.high - (sum - part)) + (b.high - part))};
}
__device__ __forceinline__ Wide operator-(Wide a) { return {-a.high, -a.low}; }
__device__ __forceinline__ Wide operator-(Wide a, Wide b) { return a + -b; }
// low * low counts after a difference of close numbers, in which `low` may be the larger part.
__device__ __forceinline__ Wide operator*(Wide a, Wide b) {
    real product = a.high * b.high, crossed = a.high * b.low + a.low * b.high;
    return {product, fma(a.high, b.high, -product) + (crossed + a.low * b.low)};
}
__device__ __forceinline__ Wide operator/(Wide a, real b) {
    real quotient = a.high / b;
    return {quotient, (fma(-quotient, b, a.high) + a.low) / b};
}
__device__ __forceinline__ Wide inverse_of(Wide a) {
    real inverse = 1 / a.high;
    return {inverse, inverse * (fma(-inverse, a.high, real(1)) - inverse * a.low)};
}
__device__ __forceinline__ Wide from_saved(precise x) { return {(real)x, (real)(x - (real)x)}; }

template <class T> __device__ __forceinline__ T of_other_lane(T value, int lanes) {
    return __shfl_xor_sync(ALL_LANES, value, lanes);
}
__device__ __forceinline__ Wide of_other_lane(Wide value, int lanes) {
    return {of_other_lane(value.high, lanes), of_other_lane(value.low, lanes)};
}

template <class T, class Join> __device__ __forceinline__ T joined_lanes(T value, Join join) {
    for (int lanes = 16; lanes; lanes /= 2) value = join(value, of_other_lane(value, lanes));
    return value;
}

// The threads with one threadIdx.y work on one row. They are a warp, and then a block has several
// rows; or they are several warps, and then a block has one row. `joined` gives all of them the
// value of the whole row. All get the same bits, because both sides of an exchange join the same
// numbers.
template <class T, class Join> __device__ T joined(T value, Join join) {
    value = joined_lanes(value, join);
    if (blockDim.x > 32) {
        __shared__ T parts[32];
        __syncthreads();  // a value before this one may still be read
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
        __syncthreads();  // all warps have written theirs
        value = parts[0];
        for (unsigned warp = 1; warp < blockDim.x / 32; warp++) value = join(value, parts[warp]);
    }
    return value;
}

template <class T> __device__ T sum_of_row(T value) {
    return joined(value, [](T a, T b) { return a + b; });
}
__device__ bool any_of_row(int value) {
    return joined(value, [](int a, int b) { return a | b; });
}
__device__ Wide sum_of_warp(Wide value) {
    return joined_lanes(value, [](Wide a, Wide b) { return a + b; });
}

// In a block of 8 x 128 threads: the sum over threadIdx.y. The first lane of warp c gets that of
// column c. A warp has four rows of the eight columns.
__device__ Wide sum_of_column(Wide value) {
    __shared__ Wide parts[32][9];  // 9, because 8 would put a column into few banks
    unsigned thread = threadIdx.y * 8 + threadIdx.x, lane = thread % 32, warp = thread / 32;
    for (int lanes = 16; lanes >= 8; lanes /= 2) value = value + of_other_lane(value, lanes);
    __syncthreads();  // the parts of another sum may still be read
    if (lane < 8) parts[warp][lane] = value;
    __syncthreads();  // all warps have written theirs
    // Part by part, because the tests for races do not see a copy that is an argument.
    value.high = parts[lane][warp % 8].high;
    value.low = parts[lane][warp % 8].low;
    return sum_of_warp(value);
}

__device__ __forceinline__ long long this_row() {
    return (long long)blockIdx.x * blockDim.y + threadIdx.y;
}

// The keys that are visible to one query: of the first `limit`, those where the mask is true. The
// pointer is null without a mask. A stride is 0 where one entry stands for a whole dimension.
struct Visible {
    long long limit;
    const bool* mask;
    long long step;

    __device__ bool operator()(long long key) const {
        return key < limit && (!mask || mask[key * step]);
    }
};

// Limits (B|1, Q|1) and mask (B|1, H|1, Q|1, K|1) with their strides, as visibility_arguments in
// launch.py gives them.
#define VISIBILITY_PARAMETERS                                                   \
    const long long *limits, long long limits_b, long long limits_q,            \
        const bool *mask, long long mask_b, long long mask_h, long long mask_q, \
        long long mask_k
#define VISIBILITY limits, limits_b, limits_q, mask, mask_b, mask_h, mask_q, mask_k

__device__ __forceinline__ Visible visible_to(
    long long sample, long long head, long long query, long long keys, VISIBILITY_PARAMETERS) {
    Visible visible = {keys, nullptr, mask_k};
    if (limits) {
        long long limit = limits[sample * limits_b + query * limits_q];
        visible.limit = limit < keys ? limit : keys;
    }
    if (mask) visible.mask = mask + sample * mask_b + head * mask_h + query * mask_q;
    return visible;
}

// Dropout keeps element `index` if its hash is at least the threshold. The hash is that of the CPU;
// keep_mask in ../../ops/dropout.py names its source.
__device__ __forceinline__ unsigned mixed(unsigned h) {
    h = (h ^ (h >> 16)) * 0x21F0AAADu;
    h = (h ^ (h >> 15)) * 0x735A2D97u;
    return h ^ (h >> 15);
}

struct Drop {
    unsigned low, high, threshold;
    real factor;
    bool drops_any;  // if not, no hash is computed

    __device__ bool keeps(long long index) const {
        if (!drops_any) return true;
        unsigned beyond = (unsigned)(index >> 32);
        return mixed(mixed((unsigned)index ^ low) ^ high ^ beyond) >= threshold;
    }
};

// As drop_arguments in launch.py gives them: kept_factor is 1 / (1 - p).
#define DROP_PARAMETERS double kept_factor, long long threshold, long long seed
#define DROP kept_factor, threshold, seed

__device__ __forceinline__ Drop drop_of(DROP_PARAMETERS) {
    unsigned long long bits = (unsigned long long)seed;
    real factor = kept_factor;
    bool drops_any = threshold || factor != 1;
    return {(unsigned)bits, (unsigned)(bits >> 32), (unsigned)threshold, factor, drops_any};
}

// For a number out of range: slot[0] becomes 1 + its position, slot[1] the number itself. Only the
// first one is written. range_checks.py reads it.
__device__ __forceinline__ void write_to_slot(long long* slot, long long position, long long number) {
    if (atomicCAS((unsigned long long*)slot, 0ull, (unsigned long long)(1 + position)) == 0)
        slot[1] = number;
}
