// A residual block of 32 or 64 channels in one kernel, for GPUs of the Hopper generation (sm_90a):
//
//     result = x + second * relu(first * x + bias) + bias
//
// or the ReLU of that, with 3x3 filters, zero padding, half precision, and sums in single precision.
//
// A group of four warps processes a band of BAND columns from top to bottom. Each step multiplies a row of x, and the
// row between the convolutions that the previous step computed, with all three rows of filters. The partial sums of the
// three rows around stay in registers; every step finishes one of these rows and starts another. So each row is read
// once, and the features between the convolutions stay in shared memory. While the matrix units compute one
// convolution, the warps finish a row of the other.
//
// A row in shared memory is stored as planes of eight channels, in which pixels are 16 bytes apart, so that a matrix
// operand can start at any pixel. The groups of a thread block share the filters, and nothing else.

typedef unsigned int u32;
typedef unsigned long long u64;

// Macros set by the compiler (`hopper.compiler_macros`): CHANNELS; GROUPS, the groups of warps in a thread block;
// AHEAD, the rows fetched ahead; BFLOAT16, 1 for bfloat16 and 0 for float16.
#if BFLOAT16
#define HALF "bf16"
#else
#define HALF "f16"
#endif

constexpr int PLANES = CHANNELS / 8;
constexpr int BAND = 62;               // columns of the result that a group computes
constexpr int PIXELS = BAND + 4;       // columns of x that these depend on
constexpr int PIXEL = 16;              // bytes of a pixel in a plane
constexpr int PLANE = PIXELS * PIXEL;  // bytes
constexpr int LINE = PLANES * PLANE;
constexpr int LINES = AHEAD + 5;  // rows of x in shared memory: fetched ahead, current, and four to be added later
constexpr int BETWEEN = 3;        // rows between the convolutions: one written, one read, one that may still be read
constexpr int THREADS = 128;      // of a group

// Filters in the layout of `hopper.arrange_filters`: for each column of taps and eight channels, the rows of taps
// 1 0 2 1 0, of which three neighbours serve three rows of sums in one product; or 0 1 2 where five do not fit.
constexpr bool AT_ONCE = CHANNELS == 32;
constexpr int BANK = CHANNELS * PIXEL;              // bytes of eight channels of a tap
constexpr int COLUMN = (AT_ONCE ? 5 : 3) * BANK;    // and of a column of taps
constexpr int FILTERS = 3 * PLANES * COLUMN;        // and of a convolution
constexpr int ROW_SUMS = CHANNELS * 64 / THREADS;   // sums of a thread for a row of 64 pixels
constexpr int SUMS = 3 * ROW_SUMS;

constexpr int BIAS_AT = 2 * FILTERS;
constexpr int GROUPS_AT = BIAS_AT + 2 * CHANNELS * 4;
constexpr int GROUP = (LINES + BETWEEN) * LINE;

// Descriptor of a matrix in shared memory: groups of eight rows of 16 bytes, `across` bytes between eight channels and
// the next.
__device__ __forceinline__ u64 matrix(u32 address, u32 across) {
    return (u64)(address >> 4) | (u64)(across >> 4) << 16 | (u64)(128 >> 4) << 32;
}

#define EIGHT(i)                                                                                                \
    "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), "+f"(s[i + 4]), "+f"(s[i + 5]), "+f"(s[i + 6]), \
        "+f"(s[i + 7])

// sums[AT...] += a * b, for 64 pixels, 64 filters and 16 channels. Asynchronous.
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

// The same for 96 filters.
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

// Keeps the compiler from moving accesses to the sums across this point.
__device__ __forceinline__ void settle(float (&sums)[SUMS]) {
#pragma unroll
    for (int i = 0; i < SUMS; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

// Starts adding the products of row i of x with all filters to the sums; PHASE is i % 3. Sums i % 3 are those of row i.
template <int PHASE>
__device__ __forceinline__ void convolve(float (&sums)[SUMS], u32 line, u32 filters) {
    // Keeps the compiler from precomputing the addresses, for which there are too few registers.
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

// Waits for all products but the BEGUN batches started last.
template <int BEGUN = 1>
__device__ __forceinline__ void await(float (&sums)[SUMS]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(BEGUN) : "memory");
    settle(sums);
}

// Two values in half precision, the first in the lower half; their ReLU if RECTIFIED.
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

// Eight pixels of four planes from a warp's registers: four threads a pixel, each with two channels of every plane.
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

// The state of a group of warps.
struct Band {
    u32 filters, lines, between;  // addresses in shared memory
    const float* bias;            // in shared memory
    const char* source;           // a thread's first pixel of the next row to fetch
    char* goal;                   // a thread's first pixel of the first row of the result
    long pitch;                   // bytes per row
    int top, left, rows;          // of the result
    int height, width;            // of the image
    int thread, warp, lane, barrier;
    u32 tile;     // offset in a line of the pixels that a lane addresses when its warp stores or loads
    float least;  // lower limit of the result: 0 with a final ReLU
};

// Starts fetching row i of x if it is needed; zeros outside the image.
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

// Waits until the next row has arrived and all threads have written what the matrix units read next.
__device__ __forceinline__ void meet(const Band& band) {
    asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, %1;" ::"r"(band.barrier), "n"(THREADS) : "memory");
}

// Resets two sums, those of this thread's channels of a plane, to the bias.
__device__ __forceinline__ void begin(float (&sums)[SUMS], int at, const float* bias, int plane) {
    const float2 both = *(const float2*)(bias + 8 * plane + threadIdx.x % 4 * 2);
    sums[at] = both.x;
    sums[at + 1] = both.y;
}

// Writes a row between the convolutions from its sums, zeros outside the image, and resets these.
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

// Writes a row of the result from its sums and that row of x, in whose shared memory it is assembled; resets the sums.
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

// Step i: reads row top - 2 + i of x, writes row top - 3 + i between the convolutions, and row top - 6 + i of the
// result, whose last products the previous step started.
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
        await<0>(second);  // the compiler cannot keep products in flight from one round of a loop to the next
    }
}
