// A block of CUDA threads on the host: each thread is a fiber with a stack of its own, and runs
// until it has to wait for others. Barriers, shuffles and votes behave as on the device; a barrier
// that some threads never reach, which on the device is undefined, is an error here. So is a race: two
// threads use the same bytes, one of them writes, and no barrier is between the two. So is a read of
// shared memory that the block has not written. To see these, the compiler calls a function at each
// access to memory (-fsanitize=thread, with our own functions).
#pragma once
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <type_traits>
#include <unordered_map>
#include <utility>

#define TINYATTN_HOST 1
// For functions whose reads and writes the thread sanitizer does not watch.
#define UNWATCHED __attribute__((no_sanitize("thread"), noinline))
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static __attribute__((section("shared_memory")))
#define __launch_bounds__(...)
#define __restrict__

struct Dim {
    unsigned x, y, z;
};
static Dim threadIdx, blockIdx, blockDim, gridDim;

namespace block {

enum State { READY, AT_BLOCK, AT_WARP, DONE };
const int MOST = 1024, STACK = 1 << 17, GUARD = 4096;

struct Thread {
    jmp_buf place;
    State state;
    int line;
    bool started;
    unsigned turn;  // which of two slots its next exchange uses
    unsigned blocks, warps;  // barriers that it has passed: of the block, of its warp
};

static Thread threads[MOST];
static unsigned long long warp_slots[2][MOST], block_slots[2][MOST];
static char* stacks;
static ucontext_t starts;
static jmp_buf scheduler;
static int current, count;
static char message[256];
static void (*body)();
static unsigned char* dynamic;
static unsigned dynamic_size;

// An access to memory is ordered behind that of another thread if a barrier of the block was between
// them, or one of the warp and both are in it. Threads of different blocks have no order.

// The linker's names for where the __shared__ variables begin and end; null if there are none. Those
// of templates are not among them: g++ puts these between the other two names.
extern "C" __attribute__((weak, visibility("hidden"))) char __start_shared_memory, __stop_shared_memory;
extern "C" __attribute__((visibility("hidden"))) char __bss_start, _end;

struct Access {
    long long block = -1;
    int thread = 0;
    unsigned blocks = 0, warps = 0;

    bool races_with(const Access& now, bool shared) const {
        if (block < 0 || (block == now.block && thread == now.thread)) return false;
        if (block != now.block) return !shared;  // each block has shared memory of its own
        if (blocks != now.blocks) return false;
        return thread / 32 != now.thread / 32 || warps == now.warps;
    }
};
struct Accesses {
    Access write, reads[2];
};
static std::unordered_map<char*, Accesses> accesses;  // by address, for every four bytes
static bool watching, raced, unwritten;

// The compiler calls functions at the accesses of these too, but no kernel makes them.
struct Unwatched {
    UNWATCHED Unwatched() { watching = false; }
    UNWATCHED ~Unwatched() { watching = true; }
};

inline void note(char* bytes, int size, bool writes) {
    const Thread& me = threads[current];
    Access now;
    now.block = ((long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    now.thread = current;
    now.blocks = me.blocks;
    now.warps = me.warps;
    bool new_to_block = (bytes >= &__start_shared_memory && bytes < &__stop_shared_memory) ||
        (bytes >= (char*)dynamic && bytes < (char*)dynamic + dynamic_size);
    bool shared = new_to_block || (bytes >= &__bss_start && bytes < &_end);
    for (int i = 0; i < size; i += 4) {
        Accesses& past = accesses[bytes + i];
        raced |= past.write.races_with(now, shared);
        if (writes) {
            raced |= past.reads[0].races_with(now, shared) || past.reads[1].races_with(now, shared);
            past.write = now;
        } else {  // the first reader stays as long as a write could race with it
            past.reads[past.reads[0].races_with(now, shared)] = now;
            unwritten |= new_to_block && past.write.block != now.block;
        }
    }
}

UNWATCHED static void touch(void* address, int size, bool writes) {
    char* bytes = (char*)address;
    bool is_own = bytes >= stacks && bytes < stacks + (size_t)MOST * STACK;
    if (!watching || is_own) return;
    Unwatched here;
    note(bytes, size, writes);
}

inline void switch_to(int t) {
    current = t;
    threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
}

inline void suspend(State state, int line) {
    Thread& me = threads[current];
    me.state = state;
    me.line = line;
    (state == AT_BLOCK ? me.blocks : me.warps)++;
    if (!_setjmp(me.place)) _longjmp(scheduler, 1);
}

inline void wait(State state, int line) {
    Unwatched here;
    suspend(state, line);
}

UNWATCHED static void begin_watching(bool begin) { watching = begin; }

static void entry() {
    begin_watching(true);
    body();
    begin_watching(false);
    threads[current].state = DONE;
    _longjmp(scheduler, 1);
}

inline void resume(int t) {
    switch_to(t);
    if (_setjmp(scheduler)) return;
    if (threads[t].started) _longjmp(threads[t].place, 1);
    threads[t].started = true;
    getcontext(&starts);
    starts.uc_stack.ss_sp = stacks + (size_t)t * STACK;
    starts.uc_stack.ss_size = STACK;
    starts.uc_link = nullptr;
    makecontext(&starts, entry, 0);
    setcontext(&starts);
}

// Runs the threads of one warp until all of them have left or wait for the whole block: so far ahead
// of the other warps that a missing barrier shows. False if some of the warp wait for others of it.
inline bool run_warp(int first, const int* lanes) {
    for (;;) {
        for (int i = 0; i < 32; i++) {
            int t = first + lanes[i];
            if (t < count && threads[t].state == READY) resume(t);
        }
        int waiting = 0;
        bool one_line = true;
        for (int t = first; t < first + 32 && t < count; t++) {
            if (threads[t].state != AT_WARP) continue;
            waiting++;
            one_line = one_line && threads[t].line == threads[first].line;
        }
        if (!waiting) return true;
        if (waiting < 32 || !one_line) return false;
        for (int t = first; t < first + 32; t++) threads[t].state = READY;
    }
}

// Whether all threads wait at one and the same barrier of the block, and may go on.
inline bool release() {
    for (int t = 0; t < count; t++)
        if (threads[t].state != AT_BLOCK || threads[t].line != threads[0].line) return false;
    for (int t = 0; t < count; t++) threads[t].state = READY;
    return true;
}

// On the device no order of the threads is promised, nor of the warps.
inline void shuffle(int* numbers, int size, unsigned& order) {
    for (int i = size - 1; order && i > 0; i--) {
        order = order * 1664525u + 1013904223u;
        std::swap(numbers[i], numbers[(order >> 8) % (i + 1)]);
    }
}

inline bool run_block(unsigned order) {
    static int lanes[32], warps[MOST / 32];
    int warp_count = (count + 31) / 32;
    for (int t = 0; t < count; t++) {
        threads[t].state = READY;
        threads[t].started = false;
        threads[t].turn = threads[t].blocks = threads[t].warps = 0;
    }
    for (;;) {
        for (int i = 0; i < 32; i++) lanes[i] = i;
        for (int i = 0; i < warp_count; i++) warps[i] = i;
        shuffle(lanes, 32, order);
        shuffle(warps, warp_count, order);
        bool fine = true;
        for (int i = 0; i < warp_count && fine; i++) fine = run_warp(32 * warps[i], lanes);
        int waiting = 0, done = 0, line = 0;
        for (int t = 0; t < count; t++) {
            done += threads[t].state == DONE;
            waiting += threads[t].state == AT_BLOCK;
            if (threads[t].state == AT_BLOCK) line = threads[t].line;
        }
        if (fine && (done == count || release())) {
            if (done == count) return true;
            continue;
        }
        snprintf(message, sizeof message,
                 "threads wait for each other in vain: %d of %d at __syncthreads (line %d), %d have "
                 "left, the others wait for their warp", waiting, count, line, done);
        return false;
    }
}

inline const char* launch(void (*kernel)(), Dim grid, Dim threads_, unsigned shared, unsigned order) {
    message[0] = 0;
    raced = unwritten = false;
    accesses.clear();
    body = kernel;
    gridDim = grid;
    blockDim = threads_;
    count = threads_.x * threads_.y * threads_.z;
    if (count < 1 || count > MOST || !grid.x || !grid.y || !grid.z || grid.y > 65535 ||
        grid.z > 65535)
        return "a launch of no block, or of too many threads";
    if (!stacks) stacks = (char*)malloc((size_t)MOST * STACK);
    dynamic = (unsigned char*)malloc(shared + GUARD);
    dynamic_size = shared;
    for (unsigned z = 0; z < grid.z && !message[0]; z++)
        for (unsigned y = 0; y < grid.y && !message[0]; y++)
            for (unsigned x = 0; x < grid.x && !message[0]; x++) {
                blockIdx = {x, y, z};
                memset(dynamic, 0xff, shared + GUARD);  // NaN, whatever the type
                memset(&__start_shared_memory, 0xff, &__stop_shared_memory - &__start_shared_memory);
                run_block(order);
                for (int i = 0; i < GUARD; i++)
                    if (dynamic[shared + i] != 0xff)
                        snprintf(message, sizeof message, "wrote past %u bytes of shared memory",
                                 shared);
            }
    free(dynamic);
    if (raced && !message[0]) return "two threads use the same memory, and no barrier is between them";
    if (unwritten && !message[0]) return "a block reads shared memory that it has not written";
    return message;
}

template <class T> unsigned long long packed(T value) {
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> T unpacked(unsigned long long bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> T from_lane(T value, int source, int line) {
    Unwatched here;
    int first = current / 32 * 32;
    unsigned long long* slots = warp_slots[threads[current].turn++ % 2];
    slots[current] = packed(value);
    suspend(AT_WARP, line);
    return unpacked<T>(slots[first + source]);
}

inline int any_of_block(int predicate, int line) {
    Unwatched here;
    unsigned long long* slots = block_slots[threads[current].turn++ % 2];
    slots[current] = predicate != 0;
    suspend(AT_BLOCK, line);
    int any = 0;
    for (int t = 0; t < count; t++) any |= (int)slots[t];
    return any;
}

inline unsigned ballot(int predicate, int line) {
    Unwatched here;
    int first = current / 32 * 32;
    unsigned long long* slots = warp_slots[threads[current].turn++ % 2];
    slots[current] = predicate != 0;
    suspend(AT_WARP, line);
    unsigned bits = 0;
    for (int lane = 0; lane < 32; lane++) bits |= (unsigned)slots[first + lane] << lane;
    return bits;
}

// What a kernel's parameter is, for the launch to check: a pointer to what, or which number.
template <class T> const char* kind() {
    using V = std::remove_cv_t<T>;
    if constexpr (std::is_pointer_v<T>) {
        using P = std::remove_cv_t<std::remove_pointer_t<T>>;
        if constexpr (std::is_same_v<P, float>) return "float32 ";
        else if constexpr (std::is_same_v<P, double>) return "float64 ";
        else if constexpr (std::is_same_v<P, _Float16>) return "float16 ";
        else if constexpr (std::is_same_v<P, bool>) return "bool ";
        else if constexpr (std::is_same_v<P, int>) return "int32 ";
        else return "int64 ";
    } else if constexpr (std::is_same_v<V, long long>) return "int ";
    else if constexpr (std::is_same_v<V, double>) return "float ";
    else return "unknown ";
}

static void** arguments;
template <class... P> const char* signature(void (*)(P...)) {
    static char text[1024];
    text[0] = 0;
    (strcat(text, kind<P>()), ...);
    return text;
}
template <class... P, size_t... I> void call(void (*kernel)(P...), std::index_sequence<I...>) {
    kernel(*(std::remove_cv_t<P>*)arguments[I]...);
}
template <class... P> void call(void (*kernel)(P...)) {
    call(kernel, std::make_index_sequence<sizeof...(P)>());
}

}  // namespace block

#define __syncthreads() block::wait(block::AT_BLOCK, __LINE__)
#define __syncthreads_or(p) block::any_of_block(p, __LINE__)
#define __syncwarp() block::wait(block::AT_WARP, __LINE__)
#define __shfl_xor_sync(mask, value, lanes) \
    block::from_lane(value, (block::current % 32) ^ (lanes), __LINE__)
#define __shfl_sync(mask, value, lane) block::from_lane(value, lane, __LINE__)
#define __ballot_sync(mask, p) block::ballot(p, __LINE__)
#define __ffs(bits) __builtin_ffs(bits)
#define __ffsll(bits) __builtin_ffsll(bits)
inline float __int_as_float(int bits) { return block::unpacked<float>((unsigned)bits); }
template <class T> T atomicAdd(T* where, T value) {
    block::Unwatched here;
    T old = *where;
    *where += value;
    return old;
}
template <class T> T atomicOr(T* where, T bits) {
    block::Unwatched here;
    T old = *where;
    *where |= bits;
    return old;
}
inline unsigned long long atomicCAS(unsigned long long* where, unsigned long long expected,
                                    unsigned long long value) {
    block::Unwatched here;
    unsigned long long old = *where;
    if (old == expected) *where = value;
    return old;
}

#define TOUCHES(size)                                                                        \
    extern "C" UNWATCHED void __tsan_read##size(void* p) { block::touch(p, size, false); }   \
    extern "C" UNWATCHED void __tsan_write##size(void* p) { block::touch(p, size, true); }
TOUCHES(1)
TOUCHES(2)
TOUCHES(4)
TOUCHES(8)
TOUCHES(16)
extern "C" UNWATCHED void __tsan_read_range(void* p, long n) { block::touch(p, n, false); }
extern "C" UNWATCHED void __tsan_write_range(void* p, long n) { block::touch(p, n, true); }
extern "C" UNWATCHED void __tsan_init() {}
// g++ asks whether a static array has been constructed, which shared memory never is.
extern "C" UNWATCHED char __tsan_atomic8_load(const volatile char* p, int) { return *p; }
extern "C" UNWATCHED void __tsan_func_entry(void*) {}
extern "C" UNWATCHED void __tsan_func_exit() {}

#define EXPORT(name)                                                                          \
    extern "C" const char* signature_##name() { return block::signature(name); }              \
    extern "C" const char* launch_##name(void** arguments, const unsigned* geometry,          \
                                         unsigned shared, unsigned order) {                   \
        const unsigned* g = geometry;                                                         \
        block::arguments = arguments;                                                         \
        return block::launch([] { block::call(name); }, {g[0], g[1], g[2]},                   \
                             {g[3], g[4], g[5]}, shared, order);                              \
    }
