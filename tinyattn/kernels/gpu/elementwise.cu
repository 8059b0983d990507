// Functions of each element by itself.

// x / (1 - p) where the hash keeps x, 0 elsewhere. The gradient is the same function of grad.
extern "C" __global__ void dropout(
    const element* xs, element* out, long long size, DROP_PARAMETERS) {
    Drop drop = drop_of(DROP);
    real factor = drop.factor;  // in float16 it may be inf, so it is rounded to float32 only
    FOR_EACH(i, size) out[i] = written(drop.keeps(i) ? read(xs[i]) * factor : 0);
}

// Each of the others is a formula: of x, an element of one array, or of x and y, those of two.
#define OF_ONE const element *xs, element *out, long long size
#define OF_TWO const element *xs, const element *ys, element *out, long long size
#define FOR_EACH_X(formula)                      \
    {                                            \
        FOR_EACH(i, size) {                      \
            real x = read(xs[i]);                \
            out[i] = written(formula);           \
        }                                        \
    }
#define FOR_EACH_X_AND_Y(formula)                \
    {                                            \
        FOR_EACH(i, size) {                      \
            real x = read(xs[i]), y = read(ys[i]); \
            out[i] = written(formula);           \
        }                                        \
    }

const real SQRT_HALF = 0.70710678118654752440, INV_SQRT_2PI = 0.39894228040143267794;
const real GELU_CUBIC = 0.044715, GELU_SCALE = 0.79788456080286535588;  // sqrt(2 / pi)

extern "C" __global__ void erf_of(OF_ONE) FOR_EACH_X(erf(x))

// Phi(x) = erfc(-x / sqrt(2)) / 2, because 1 + erf would lose the digits of a small Phi.
__device__ real normal_cdf(real x) { return real(0.5) * erfc(-x * SQRT_HALF); }

extern "C" __global__ void gelu(OF_ONE) FOR_EACH_X(x * normal_cdf(x))

// Phi(x) + x phi(x), where phi(x) = exp(-x^2 / 2) / sqrt(2 pi) is the slope of Phi.
__device__ real gelu_slope(real x) {
    return normal_cdf(x) + x * (exp(x * x * real(-0.5)) * INV_SQRT_2PI);
}

extern "C" __global__ void gelu_backward(OF_TWO) FOR_EACH_X_AND_Y(x * gelu_slope(y))

// 1 / (1 + exp(-x)), computed from exp(-|x|), which cannot overflow.
__device__ real sigmoid_of(real x) {
    real small = exp(-fabs(x));
    return (x >= 0 ? 1 : small) / (1 + small);
}

extern "C" __global__ void sigmoid(OF_ONE) FOR_EACH_X(sigmoid_of(x))

// The slope of the sigmoid, from its result.
extern "C" __global__ void sigmoid_backward(OF_TWO) FOR_EACH_X_AND_Y(x * y * (1 - y))

extern "C" __global__ void silu(OF_ONE) FOR_EACH_X(x * sigmoid_of(x))

__device__ real silu_slope(real x) {
    real part = sigmoid_of(x);
    return part + x * part * (1 - part);
}

extern "C" __global__ void silu_backward(OF_TWO) FOR_EACH_X_AND_Y(x * silu_slope(y))

// log(1 + exp(x)), computed from exp(-|x|), which cannot overflow.
extern "C" __global__ void softplus(OF_ONE) FOR_EACH_X((x < 0 ? 0 : x) + log1p(exp(-fabs(x))))

// x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x sigmoid(2 u).
__device__ real sigmoid_of_2u(real x) {
    return sigmoid_of(2 * GELU_SCALE * (x + GELU_CUBIC * x * x * x));
}

extern "C" __global__ void gelu_tanh(OF_ONE) FOR_EACH_X(x * sigmoid_of_2u(x))

__device__ real gelu_tanh_slope(real x) {
    real part = sigmoid_of_2u(x);
    // 0 where `part` is 0 or 1 anyway, because x * x may be inf there, and 0 * inf is NaN.
    real slope = fabs(x) < 100 ? 2 * GELU_SCALE * (1 + 3 * GELU_CUBIC * x * x) : 0;
    return part + x * part * (1 - part) * slope;
}

extern "C" __global__ void gelu_tanh_backward(OF_TWO) FOR_EACH_X_AND_Y(x * gelu_tanh_slope(y))

// x - y floor(x / y), with the sign of y. fmod is exact, and x / y is not.
__device__ real remainder_of(real x, real y) {
    real rest = fmod(x, y);
    if (rest == 0) return copysign(real(0), y);
    return (rest < 0) != (y < 0) ? rest + y : rest;
}

extern "C" __global__ void remainder_of_two(OF_TWO) FOR_EACH_X_AND_Y(remainder_of(x, y))

// The largest integer that is not above x / y. x less its remainder is a multiple of y, up to
// rounding, so the quotient is rounded to the nearest integer.
__device__ real floor_of_quotient(real x, real y) {
    if (y == 0) return x / y;
    real rest = fmod(x, y), quotient = (x - rest) / y;
    if (rest != 0 && (rest < 0) != (y < 0)) quotient -= 1;
    if (quotient == 0) return copysign(real(0), x / y);
    real whole = floor(quotient);
    return quotient - whole > real(0.5) ? whole + 1 : whole;
}

extern "C" __global__ void floor_divide(OF_TWO) FOR_EACH_X_AND_Y(floor_of_quotient(x, y))

// A NaN stays one.
extern "C" __global__ void relu(OF_ONE) FOR_EACH_X(x <= 0 ? 0 : x)

// 0 where y <= 0, else x, the gradient: a NaN is not <= 0.
extern "C" __global__ void relu_backward(OF_TWO) FOR_EACH_X_AND_Y(y <= 0 ? 0 : x)
