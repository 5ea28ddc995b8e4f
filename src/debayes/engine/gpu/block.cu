// A residual block of 32 or 64 channels in one kernel, for GPUs of the Hopper generation (sm_90a):
//
//     result = x + second * rectified(first * x + bias) + bias
//
// or that rectified, with 3x3 filters, zeros around the picture, half precision, and sums in single precision.
//
// A group of four warps goes down a band of BAND columns. Each step it multiplies a row of x, and the row between the
// convolutions that the step before made, with all three rows of filters: what that adds to the three rows around is
// kept in registers, and every step finishes one of these and begins another. So a row is read once, and what lies between
// the convolutions stays in shared memory. While the matrix units do one convolution, the warps finish a row of the
// other.
//
// A row in shared memory is planes of eight channels. There, pixels lie 16 bytes apart, so that the matrix units can
// be told to begin at any pixel. Several groups share the filters of a block of threads, and nothing else.

typedef unsigned int u32;
typedef unsigned long long u64;

// Who compiles this gives CHANNELS, GROUPS, groups of warps in a block of threads, AHEAD, rows fetched ahead, and
// BFLOAT16, whether that is the kind of half precision.
#if BFLOAT16
#define HALF "bf16"
#else
#define HALF "f16"
#endif

constexpr int PLANES = CHANNELS / 8;
constexpr int BAND = 62;               // columns of the result that a group makes
constexpr int PIXELS = BAND + 4;       // columns of x that those see
constexpr int PIXEL = 16;              // bytes of a pixel in a plane
constexpr int PLANE = PIXELS * PIXEL;  // bytes
constexpr int LINE = PLANES * PLANE;
constexpr int LINES = AHEAD + 5;  // rows of x that are kept: those to come, and four until theirs is added
constexpr int BETWEEN = 3;        // rows between the convolutions: written, read, and perhaps still being read
constexpr int THREADS = 128;      // of a group

// Filters, as `hopper.arrange` lays them out: for each column of taps and eight channels, the rows of taps 1 0 2 1 0,
// of which three in a row are what three rows of sums get at once; or, where these do not fit, 0 1 2.
constexpr bool AT_ONCE = CHANNELS == 32;
constexpr int BANK = CHANNELS * PIXEL;              // bytes of eight channels of a tap
constexpr int COLUMN = (AT_ONCE ? 5 : 3) * BANK;    // and of a column of taps
constexpr int FILTERS = 3 * PLANES * COLUMN;        // and of a convolution
constexpr int ROW_SUMS = CHANNELS * 64 / THREADS;   // a thread's, of a row of 64 pixels
constexpr int SUMS = 3 * ROW_SUMS;

constexpr int BIAS_AT = 2 * FILTERS;
constexpr int GROUPS_AT = BIAS_AT + 2 * CHANNELS * 4;
constexpr int GROUP = (LINES + BETWEEN) * LINE;

// A matrix in shared memory: eight rows of 16 bytes lie together, `across` bytes from those of the next eight channels.
__device__ __forceinline__ u64 matrix(u32 address, u32 across) {
    return (u64)(address >> 4) | (u64)(across >> 4) << 16 | (u64)(128 >> 4) << 32;
}

#define EIGHT(i)                                                                                                \
    "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), "+f"(s[i + 4]), "+f"(s[i + 5]), "+f"(s[i + 6]), \
        "+f"(s[i + 7])

// Sums of 64 pixels and 64 filters, from number AT on, += a * b, of 16 channels. It goes on while the program does.
template <int AT>
__device__ __forceinline__ void multiply_64(float (&s)[SUMS], u64 a, u64 b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32." HALF "." HALF
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 0, 0;\n}"
        : EIGHT(AT), EIGHT(AT + 8), EIGHT(AT + 16), EIGHT(AT + 24)
        : "l"(a), "l"(b)
        : "memory");
}

// The same of 96 filters.
__device__ __forceinline__ void multiply_96(float (&s)[SUMS], u64 a, u64 b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32." HALF "." HALF
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
        "%48, %49, p, 1, 1, 0, 0;\n}"
        : EIGHT(0), EIGHT(8), EIGHT(16), EIGHT(24), EIGHT(32), EIGHT(40)
        : "l"(a), "l"(b)
        : "memory");
}

// The compiler keeps what it does to the sums before this before it, and after it what comes after.
__device__ __forceinline__ void settle(float (&sums)[SUMS]) {
#pragma unroll
    for (int i = 0; i < SUMS; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

// Begins to add the products of a row of x, number i, with all filters to the sums; PHASE is i % 3. Those of row i are
// the sums number i % 3.
template <int PHASE>
__device__ __forceinline__ void convolve(float (&sums)[SUMS], u32 line, u32 filters) {
    // Kept from being taken apart, for which there are too few registers.
    u64 pixels = matrix(line, PLANE), banks = matrix(filters, COLUMN);
    asm volatile("" : "+l"(pixels), "+l"(banks));
    settle(sums);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int tap = 0; tap < 3; tap++)
#pragma unroll
        for (int half = 0; half < PLANES / 2; half++) {
            const u64 a = pixels + (2 * half * PLANE + tap * PIXEL) / 16;
            const u64 b = banks + (tap * PLANES + 2 * half) * COLUMN / 16;
            if constexpr (AT_ONCE) {
                multiply_96(sums, a, b + 2 * PHASE % 3 * (BANK / 16));
            } else {
                multiply_64<0>(sums, a, b + (1 + PHASE) % 3 * (BANK / 16));
                multiply_64<ROW_SUMS>(sums, a, b + PHASE % 3 * (BANK / 16));
                multiply_64<2 * ROW_SUMS>(sums, a, b + (2 + PHASE) % 3 * (BANK / 16));
            }
        }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until all products are there but those that were begun last, or all of them.
template <int BEGUN = 1>
__device__ __forceinline__ void await(float (&sums)[SUMS]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(BEGUN) : "memory");
    settle(sums);
}

// Two numbers in half precision, the first in the lower half.
template <bool RECTIFIED>
__device__ __forceinline__ u32 pack(float first, float second) {
    u32 both;
    if (RECTIFIED)
        asm("cvt.rn.relu." HALF "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    else
        asm("cvt.rn." HALF "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

__device__ __forceinline__ float2 unpack(u32 both) {
    float2 values;
#if BFLOAT16
    values.x = __uint_as_float(both << 16);
    values.y = __uint_as_float(both & 0xffff0000u);
#else
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
        : "=f"(values.x), "=f"(values.y)
        : "r"(both));
#endif
    return values;
}

// Eight pixels of four planes, as a warp's registers have them: a pixel for four threads, of each plane two channels.
__device__ __forceinline__ void store(u32 address, const u32* v) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v[0]), "r"(v[1]),
                 "r"(v[2]), "r"(v[3])
                 : "memory");
}

__device__ __forceinline__ void load(u32* v, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(address)
                 : "memory");
}

// What a group of warps knows of its band.
struct Band {
    u32 filters, lines, between;  // addresses in shared memory
    const float* bias;            // in shared memory
    const char* source;           // of a thread's first pixel of the next row to fetch
    char* goal;                   // of a thread's first pixel of the first row of the result
    long pitch;                   // bytes from row to row
    int top, left, rows;          // of the result
    int height, width;            // of the picture
    int thread, warp, lane, barrier;
    u32 tile;     // where, in a line, a warp's pixels are for a lane that stores or loads eight of four planes
    float least;  // that a result may be
};

// Begins to fetch row i of x, if it is one that is needed: zeros around the picture.
__device__ __forceinline__ void fetch(Band& band, u32 i) {
    if (i < band.rows + 4) {
        const int row = band.top - 2 + (int)i;
        const bool inside = row >= 0 && row < band.height;
        const u32 line = band.lines + i % LINES * LINE;
#pragma unroll
        for (int part = 0; part < (PIXELS * PLANES + THREADS - 1) / THREADS; part++) {
            const int pixel = band.thread / PLANES + part * (THREADS / PLANES);
            const int column = band.left - 2 + pixel;
            if (pixel < PIXELS) {
                const int bytes = inside && column >= 0 && column < band.width ? PIXEL : 0;
                const u32 place = line + band.thread % PLANES * PLANE + pixel * PIXEL;
                const char* from = band.source + part * (THREADS * PIXEL);
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(bytes)
                             : "memory");
            }
        }
        band.source += band.pitch;
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until the group has the next row, and all have written what the matrix units read next.
__device__ __forceinline__ void meet(const Band& band) {
    asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, %1;" ::"r"(band.barrier), "n"(THREADS) : "memory");
}

// Two sums, of channels of a plane that are this thread's, are the bias again.
__device__ __forceinline__ void begin(float (&sums)[SUMS], int at, const float* bias, int plane) {
    const float2 both = *(const float2*)(bias + 8 * plane + threadIdx.x % 4 * 2);
    sums[at] = both.x;
    sums[at + 1] = both.y;
}

// Makes a row between the convolutions of its sums, which begin anew: zeros around the picture.
template <int SLOT>
__device__ __forceinline__ void rectify(const Band& band, float (&sums)[SUMS], u32 line, int row) {
    const bool inside = row >= 0 && row < band.height;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int column = band.left - 1 + 16 * band.warp + band.lane / 4 + 8 * half;
        const bool seen = inside && column >= 0 && column < band.width;
#pragma unroll
        for (int plane = 0; plane < PLANES; plane += 4) {
            u32 values[4];
#pragma unroll
            for (int each = 0; each < 4; each++) {
                const int at = SLOT * ROW_SUMS + 4 * (plane + each) + 2 * half;
                const u32 both = pack<true>(sums[at], sums[at + 1]);
                values[each] = seen ? both : 0;
                begin(sums, at, band.bias, plane + each);
            }
            store(line + band.tile + plane * PLANE + 8 * half * PIXEL, values);
        }
    }
}

// Makes a row of the result of its sums, which begin anew, and of that row of x, in whose place it is put together.
template <int SLOT>
__device__ __forceinline__ void finish(const Band& band, float (&sums)[SUMS], u32 line, int row) {
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int plane = 0; plane < PLANES; plane += 4) {
            const u32 place = line + band.tile + plane * PLANE + (8 * half + 2) * PIXEL;
            u32 values[4];
            load(values, place);
#pragma unroll
            for (int each = 0; each < 4; each++) {
                const int at = SLOT * ROW_SUMS + 4 * (plane + each) + 2 * half;
                const float2 x = unpack(values[each]);
                values[each] = pack<false>(fmaxf(sums[at] + x.x, band.least), fmaxf(sums[at + 1] + x.y, band.least));
                begin(sums, at, band.bias + CHANNELS, plane + each);
            }
            store(place, values);
        }
    __syncwarp();
#pragma unroll
    for (int part = 0; part < PLANES / 2; part++) {
        const int pixel = 16 * band.warp + band.lane / PLANES + part * (32 / PLANES);
        uint4 values;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(values.x), "=r"(values.y), "=r"(values.z), "=r"(values.w)
                     : "r"(line + band.lane % PLANES * PLANE + (pixel + 2) * PIXEL)
                     : "memory");
        if (row >= 0 && row < band.rows && pixel < BAND && band.left + pixel < band.width)
            *(uint4*)(band.goal + row * band.pitch + part * (32 * PIXEL)) = values;
    }
}

// Step i: takes row top - 2 + i of x, makes row top - 3 + i between, and row top - 6 + i of the result, whose sums the
// step before this has begun.
template <int PHASE>
__device__ __forceinline__ void step(Band& band, float (&first)[SUMS], float (&second)[SUMS], u32 i) {
    fetch(band, i + AHEAD);
    convolve<PHASE>(first, band.lines + i % LINES * LINE, band.filters);
    await(second);
    finish<PHASE>(band, second, band.lines + (i + LINES - 4) % LINES * LINE, (int)i - 6);
    convolve<(PHASE + 2) % 3>(second, band.between + (PHASE + 2) % 3 * LINE, band.filters + FILTERS);
    await(first);
    rectify<(PHASE + 2) % 3>(band, first, band.between + PHASE * LINE, band.top - 3 + (int)i);
    meet(band);
}

extern "C" __global__ void __launch_bounds__(GROUPS * THREADS, 1)
    block(const char* x, const uint4* filters, const float* bias, char* result, int height, int width, int rows,
          int bands, int segments, int tasks, int rectified) {
    extern __shared__ __align__(128) char shared[];
    for (int i = threadIdx.x; i < 2 * FILTERS / 16; i += GROUPS * THREADS) ((uint4*)shared)[i] = filters[i];
    if (threadIdx.x < 2 * CHANNELS) ((float*)(shared + BIAS_AT))[threadIdx.x] = bias[threadIdx.x];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const int group = __shfl_sync(~0u, threadIdx.x / THREADS, 0), task = blockIdx.x * GROUPS + group;
    if (task >= tasks) return;

    const u32 base = (u32)__cvta_generic_to_shared(shared);
    Band band;
    band.filters = base;
    band.lines = base + GROUPS_AT + group * GROUP;
    band.between = band.lines + LINES * LINE;
    band.bias = (const float*)(shared + BIAS_AT);
    band.barrier = group + 1;
    band.thread = threadIdx.x % THREADS;
    band.warp = band.thread / 32;
    band.lane = band.thread % 32;
    band.tile = band.lane / 8 * PLANE + (16 * band.warp + band.lane % 8) * PIXEL;
    band.least = rectified ? 0.0f : -1.0f / 0.0f;
    band.height = height;
    band.width = width;
    band.left = task % bands * BAND;
    band.top = task / bands % segments * rows;
    band.rows = min(rows, height - band.top);
    band.pitch = (long)width * CHANNELS * 2;
    const long picture = (long)(task / bands / segments) * height * band.pitch;
    const long corner = picture + band.top * band.pitch + (long)band.left * CHANNELS * 2;
    band.source = x + corner - 2 * band.pitch - 2 * CHANNELS * 2 + band.thread * PIXEL;
    band.goal = result + corner + (16 * band.warp + band.lane / PLANES) * CHANNELS * 2 + band.lane % PLANES * PIXEL;

    float first[SUMS], second[SUMS];
#pragma unroll
    for (int at = 0; at < SUMS; at += 2) {
        begin(first, at, band.bias, at % ROW_SUMS / 4);
        begin(second, at, band.bias + CHANNELS, at % ROW_SUMS / 4);
    }
    for (int i = 0; i < AHEAD; i++) fetch(band, i);
    meet(band);
    for (u32 i = 0; i < band.rows + 6; i += 3) {
        step<0>(band, first, second, i);
        step<1>(band, first, second, i + 1);
        step<2>(band, first, second, i + 2);
        await<0>(second);  // as the compiler cannot have sums begun in one round of a loop and done in the next
    }
}
