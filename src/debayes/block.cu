// A residual block of 32 channels in one kernel, for GPUs of the Hopper generation (sm_90a):
//
//     result = x + second * rectified(first * x + bias) + bias
//
// with 3x3 filters, zeros around the picture, half precision, and sums in single precision.
//
// A group of four warps goes down a band of BAND columns. Each step it multiplies a row of x, and the row between the
// convolutions that the step before made, with all three rows of filters at once: what that adds to the three rows
// around is kept in registers, a third of them for each, and every step finishes one of these and empties it. So a row
// is read once, and what lies between the convolutions stays in shared memory.
//
// A row in shared memory is four planes of eight channels. There, pixels lie 16 bytes apart, so that the matrix units
// can be told to begin at any pixel. Several groups share the filters of a block of threads, and nothing else.

typedef unsigned int u32;
typedef unsigned long long u64;

// GROUPS, groups of warps in a block of threads, and AHEAD, rows fetched ahead, are given by who compiles this.

constexpr int CHANNELS = 32;
constexpr int PLANES = CHANNELS / 8;
constexpr int BAND = 62;               // columns of the result that a group makes
constexpr int PIXELS = BAND + 4;       // columns of x that those see
constexpr int PIXEL = 16;              // bytes of a pixel in a plane
constexpr int PLANE = PIXELS * PIXEL;  // bytes; planes begin in other banks of memory
constexpr int LINE = PLANES * PLANE;
constexpr int LINES = AHEAD + 4;  // rows of x that are kept: those to come, and three until theirs is added
constexpr int THREADS = 128;      // of a group

// Filters, as `hopper.arrange` lays them out: for each column of taps and eight channels, the rows of taps 1 0 2 1 0,
// of which three in a row are what three rows of sums get.
constexpr int ROTATIONS = 5;
constexpr int TAPS = 3 * PLANES;
constexpr int TAP = ROTATIONS * CHANNELS * PIXEL;
constexpr int FILTERS = TAPS * TAP;  // bytes of a convolution

constexpr int SUMS = 3 * CHANNELS * 64 / THREADS;  // a thread's, of three rows of 64 pixels
constexpr int ROW_SUMS = SUMS / 3;

constexpr int BIAS_AT = 2 * FILTERS;
constexpr int GROUPS_AT = BIAS_AT + 2 * CHANNELS * 4;
constexpr int GROUP = (LINES + 2) * LINE;

// A matrix in shared memory: eight rows of 16 bytes lie together, `across` bytes from those of the next eight channels.
__device__ __forceinline__ u64 matrix(u32 address, u32 across) {
    return (u64)(address >> 4) | (u64)(across >> 4) << 16 | (u64)(128 >> 4) << 32;
}

// sums += a * b: 64 pixels of 16 channels, 96 filters. It goes on while the program does.
__device__ __forceinline__ void multiply(float (&s)[SUMS], u64 a, u64 b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
        "%48, %49, p, 1, 1, 0, 0;\n}"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7]),
          "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]), "+f"(s[14]), "+f"(s[15]),
          "+f"(s[16]), "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]), "+f"(s[21]), "+f"(s[22]), "+f"(s[23]),
          "+f"(s[24]), "+f"(s[25]), "+f"(s[26]), "+f"(s[27]), "+f"(s[28]), "+f"(s[29]), "+f"(s[30]), "+f"(s[31]),
          "+f"(s[32]), "+f"(s[33]), "+f"(s[34]), "+f"(s[35]), "+f"(s[36]), "+f"(s[37]), "+f"(s[38]), "+f"(s[39]),
          "+f"(s[40]), "+f"(s[41]), "+f"(s[42]), "+f"(s[43]), "+f"(s[44]), "+f"(s[45]), "+f"(s[46]), "+f"(s[47])
        : "l"(a), "l"(b)
        : "memory");
}

// The products of a row with the filters that begin at `filters`.
__device__ __forceinline__ void convolve(float (&sums)[SUMS], u32 line, u32 filters) {
#pragma unroll
    for (int tap = 0; tap < 3; tap++)
#pragma unroll
        for (int half = 0; half < PLANES / 2; half++)
            multiply(
                sums,
                matrix(line + 2 * half * PLANE + tap * PIXEL, PLANE),
                matrix(filters + (tap * PLANES + 2 * half) * TAP, TAP));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// The compiler keeps what it does to the sums before this before it, and after it what comes after.
__device__ __forceinline__ void settle(float (&sums)[SUMS]) {
#pragma unroll
    for (int i = 0; i < SUMS; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

// Waits until all but the last `PENDING` rows of products are there.
template <int PENDING>
__device__ __forceinline__ void await(float (&sums)[SUMS]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    settle(sums);
}

// Two numbers in half precision, the first in the lower half.
template <bool RECTIFIED>
__device__ __forceinline__ u32 pack(float first, float second) {
    u32 both;
    if (RECTIFIED)
        asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

__device__ __forceinline__ float2 unpack(u32 both) {
    float2 values;
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
        : "=f"(values.x), "=f"(values.y)
        : "r"(both));
    return values;
}

// Eight pixels of all planes, as a warp's registers have them: a pixel for four threads, of each plane two channels.
__device__ __forceinline__ void store(u32 address, const u32 (&v)[PLANES]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v[0]), "r"(v[1]),
                 "r"(v[2]), "r"(v[3])
                 : "memory");
}

__device__ __forceinline__ void load(u32 (&v)[PLANES], u32 address) {
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
};

// Begins to fetch a row of x, if it is one that is needed: zeros around the picture.
__device__ __forceinline__ void fetch(Band& band, int i) {
    if (i < band.rows + 4) {
        const int row = band.top - 2 + i;
        const bool inside = row >= 0 && row < band.height;
        const u32 line = band.lines + (i % LINES) * LINE;
#pragma unroll
        for (int part = 0; part < (PIXELS * PLANES + THREADS - 1) / THREADS; part++) {
            const int pixel = band.thread / PLANES + part * (THREADS / PLANES);
            const int column = band.left - 2 + pixel;
            if (pixel < PIXELS) {
                const int bytes = inside && column >= 0 && column < band.width ? PIXEL : 0;
                const u32 place = line + (band.thread % PLANES) * PLANE + pixel * PIXEL;
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

// Step i: takes row top - 2 + i of x, finishes row top - 3 + i between, and row top - 5 + i of the result.
template <int PHASE>
__device__ __forceinline__ void step(Band& band, float (&first)[SUMS], float (&second)[SUMS], int i) {
    constexpr int DONE = (PHASE + 2) % 3, DONE_SECOND = (PHASE + 1) % 3;
    constexpr int TURN = 2 * PHASE % 3, TURN_SECOND = 2 * (PHASE + 2) % 3;
    constexpr int TURNED = CHANNELS * PIXEL;
    fetch(band, i + AHEAD);
    settle(first);
    settle(second);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    convolve(first, band.lines + (i % LINES) * LINE, band.filters + TURN * TURNED);
    convolve(second, band.between + ((i + 1) & 1) * LINE, band.filters + FILTERS + TURN_SECOND * TURNED);
    const int pixel = 16 * band.warp + band.lane / 4;  // and the eighth after it
    const int channel = 2 * (band.lane % 4);           // and the next, of each plane
    const u32 tile = (band.lane / 8) * PLANE + (16 * band.warp + band.lane % 8) * PIXEL;

    await<1>(first);
    const int row = band.top - 3 + i;
    const bool inside = row >= 0 && row < band.height;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int column = band.left - 1 + pixel + 8 * half;
        const bool seen = inside && column >= 0 && column < band.width;
        u32 values[PLANES];
#pragma unroll
        for (int plane = 0; plane < PLANES; plane++) {
            const int at = DONE * ROW_SUMS + 4 * plane + 2 * half;
            const float2 bias = *(const float2*)(band.bias + 8 * plane + channel);
            const u32 both = pack<true>(first[at] + bias.x, first[at + 1] + bias.y);
            values[plane] = seen ? both : 0;
        }
        store(band.between + (i & 1) * LINE + tile + 8 * half * PIXEL, values);
    }
#pragma unroll
    for (int at = 0; at < ROW_SUMS; at++) first[DONE * ROW_SUMS + at] = 0;

    await<0>(second);
    if (i >= 5 && i < band.rows + 5) {
        const u32 line = band.lines + ((i - 3) % LINES) * LINE + 2 * PIXEL;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 values[PLANES];
            load(values, line + tile + 8 * half * PIXEL);
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++) {
                const int at = DONE_SECOND * ROW_SUMS + 4 * plane + 2 * half;
                const float2 bias = *(const float2*)(band.bias + CHANNELS + 8 * plane + channel);
                const float2 x = unpack(values[plane]);
                values[plane] = pack<false>(second[at] + bias.x + x.x, second[at + 1] + bias.y + x.y);
            }
            store(line + tile + 8 * half * PIXEL, values);  // in place of x, which nobody needs any more
        }
        __syncwarp();
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int here = pixel + 8 * half;
            uint4 values;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(values.x), "=r"(values.y), "=r"(values.z), "=r"(values.w)
                         : "r"(line + (band.lane % 4) * PLANE + here * PIXEL)
                         : "memory");
            if (here < BAND && band.left + here < band.width)
                *(uint4*)(band.goal + (i - 5) * band.pitch + half * 8 * CHANNELS * 2) = values;
        }
    }
#pragma unroll
    for (int at = 0; at < ROW_SUMS; at++) second[DONE_SECOND * ROW_SUMS + at] = 0;
    meet(band);
}

extern "C" __global__ void __launch_bounds__(GROUPS * THREADS, 1)
    block(const char* x, const uint4* filters, const float* bias, char* result, int height, int width, int rows,
          int bands, int segments, int tasks) {
    extern __shared__ __align__(128) char shared[];
    for (int i = threadIdx.x; i < 2 * FILTERS / 16; i += GROUPS * THREADS) ((uint4*)shared)[i] = filters[i];
    if (threadIdx.x < 2 * CHANNELS) ((float*)(shared + BIAS_AT))[threadIdx.x] = bias[threadIdx.x];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const int group = threadIdx.x / THREADS, task = blockIdx.x * GROUPS + group;
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
    band.height = height;
    band.width = width;
    band.left = task % bands * BAND;
    band.top = task / bands % segments * rows;
    band.rows = min(rows, height - band.top);
    band.pitch = (long)width * CHANNELS * 2;
    const long picture = (long)(task / bands / segments) * height * band.pitch;
    const long corner = picture + band.top * band.pitch + (long)band.left * CHANNELS * 2;
    band.source = x + corner - 2 * band.pitch - 2 * CHANNELS * 2 + band.thread * PIXEL;
    band.goal = result + corner + (16 * band.warp + band.lane / 4) * CHANNELS * 2 + band.lane % 4 * PIXEL;

    float first[SUMS], second[SUMS];
#pragma unroll
    for (int at = 0; at < SUMS; at++) first[at] = second[at] = 0;
    for (int i = 0; i < AHEAD; i++) fetch(band, i);
    meet(band);
    for (int i = 0; i < band.rows + 5; i += 3) {
        step<0>(band, first, second, i);
        step<1>(band, first, second, i + 1);
        step<2>(band, first, second, i + 2);
    }
}
