/* A chain of 3x3 convolutions by Winograd's F(4x4, 3x3), in which 36 multiplications do the work of 144.

   The 6x6 cells that a tile of 4x4 results depends on are transformed to 36 points. At each point there is a product
   of matrices (tiles by channels, channels by filters), and a second transform turns the 36 products into the tile.
   GROUP tiles of a row are computed at a time, few enough for a core's L2 cache.

   The chain works down a strip of columns, four rows (a band) at a time: a band of a layer is computed as soon as the
   layer before has computed the band below it. Between two layers only twelve rows are kept, in a ring buffer. Outside
   of the picture a ring holds zeros, the padding of the convolutions. Channels are last, their number a multiple of
   LANES.

   LANES is the number of floats of a vector and TILES the number of tiles that the product of matrices computes at
   once; both depend on the processor. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GROUP 12
#define ROWS 12
#define MOST 32 /* layers of a chain: MOST_LAYERS in winograd.py */
#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef float Unaligned __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t Mask __attribute__((vector_size(4 * LANES)));

typedef struct {
    const float *filters; /* as winograd.py arranges them */
    const float *bias;
    int64_t in, out;   /* channels */
    int64_t rectified; /* whether a rectifier follows */
    int64_t sum;       /* the layer whose input is added, or -1 */
} Layer;

typedef struct { /* a source of the first layer's channels, or where the result goes; strides in floats */
    float *cells;
    int64_t row, cell, channels;
} Picture;

typedef struct { /* one call: left and right bound the result, `start` is the column at the left end of a ring */
    const Layer *layers;
    int64_t count;
    int64_t height, width;
    int64_t top, bottom, left, right;
    int64_t start, tiles, wide;
    float *rings[MOST];
    float *spread, *products;
} Work;

INLINE Vector load(const float *from) { return *(const Unaligned *)from; }

INLINE void store(float *to, Vector value) { *(Unaligned *)to = value; }

/* max(x, 0); NaN stays NaN. */
INLINE Vector rectify(Vector x) { return (Vector)((Mask)x & ~(Mask)(x <= 0.0f)); }

/* The place of a row of the picture in a ring; the four rows of a band are consecutive. */
INLINE int64_t place(const Work *work, int64_t row) { return ((row - work->top) % ROWS + ROWS) % ROWS; }

/* Transforms six cells in a line to the six points at which the product is taken. */
INLINE void to_points(const Vector *x, int step, Vector *y) {
    Vector a = x[4 * step] - 4.0f * x[2 * step], b = x[3 * step] - 4.0f * x[step];
    Vector c = x[4 * step] - x[2 * step], d = x[3 * step] - x[step];
    y[0] = 4.0f * x[0] - 5.0f * x[2 * step] + x[4 * step];
    y[step] = a + b;
    y[2 * step] = a - b;
    y[3 * step] = c + 2.0f * d;
    y[4 * step] = c - 2.0f * d;
    y[5 * step] = 4.0f * x[step] - 5.0f * x[3 * step] + x[5 * step];
}

/* Transforms the products at six points to four cells in a line. */
INLINE void from_points(const Vector *x, int step, Vector *y) {
    Vector a = x[step] + x[2 * step], b = x[step] - x[2 * step];
    Vector c = x[3 * step] + x[4 * step], d = x[3 * step] - x[4 * step];
    y[0] = x[0] + a + c;
    y[step] = b + 2.0f * d;
    y[2 * step] = a + 4.0f * c;
    y[3 * step] = b + 8.0f * d + x[5 * step];
}

/* Transforms six rows to the 36 points of some tiles; `spread` is tiles x 36 x channels. */
static void transform(const float *const rows[6], int64_t first, int64_t in, int64_t tiles, float *spread) {
    for (int64_t tile = 0; tile < tiles; tile++)
        for (int64_t c = 0; c < in; c += LANES) {
            Vector cells[36], points[36];
            int64_t at = (first + 4 * tile) * in + c;
            for (int i = 0; i < 6; i++)
                for (int j = 0; j < 6; j++) cells[6 * i + j] = load(rows[i] + at + j * in);
            for (int j = 0; j < 6; j++) to_points(cells + j, 6, points + j);
            for (int i = 0; i < 6; i++) to_points(points + 6 * i, 1, cells + 6 * i);
            for (int p = 0; p < 36; p++) store(spread + (tile * 36 + p) * in + c, cells[p]);
        }
}

/* The product of TILES tiles and one or two vectors of filters. */
INLINE void multiply_block(const float *x, const float *filters, float *y, int64_t in, int64_t out, int vectors) {
    Vector sums[TILES][2];
    for (int tile = 0; tile < TILES; tile++)
        for (int n = 0; n < vectors; n++) sums[tile][n] = (Vector){0};
    for (int64_t k = 0; k < in; k++) {
        Vector filter[2];
        for (int n = 0; n < vectors; n++) filter[n] = load(filters + (k * vectors + n) * LANES);
        for (int tile = 0; tile < TILES; tile++)
            for (int n = 0; n < vectors; n++) sums[tile][n] += x[tile * 36 * in + k] * filter[n];
    }
    for (int tile = 0; tile < TILES; tile++)
        for (int n = 0; n < vectors; n++) store(y + tile * 36 * out + n * LANES, sums[tile][n]);
}

static void multiply(const float *spread, const Layer *layer, int64_t tiles, float *products) {
    int64_t in = layer->in, out = layer->out;
    for (int64_t p = 0; p < 36; p++)
        for (int64_t n = 0; n < out; n += 2 * LANES)
            for (int64_t tile = 0; tile < tiles; tile += TILES) {
                const float *x = spread + (tile * 36 + p) * in, *filters = layer->filters + (p * out + n) * in;
                float *y = products + (tile * 36 + p) * out + n;
                if (n + LANES < out) multiply_block(x, filters, y, in, out, 2);
                else multiply_block(x, filters, y, in, out, 1);
            }
}

/* Stores the sixteen cells of a tile, or those of them that belong to the result. */
static void hand_out(const Work *work, const Picture *target, int64_t row, int64_t column, int64_t c, const Vector *tile) {
    int64_t channels = target->channels - c;
    for (int i = 0; i < 16; i++) {
        int64_t y = row + i / 4, x = column + i % 4;
        if (y >= work->bottom || x < work->left || x >= work->right) continue;
        float *to = target->cells + y * target->row + x * target->cell + c;
        if (channels >= LANES) store(to, tile[i]);
        else if (channels > 0) memcpy(to, tile + i, channels * sizeof(float));
    }
}

/* Transforms the products to tiles, in the next ring or in the target, from `row` and column `first` on. */
static void finish(const Work *work, int64_t l, int64_t row, int64_t first, int64_t tiles, const Picture *target) {
    const Layer *layer = work->layers + l;
    int64_t out = layer->out, wide = work->wide;
    for (int64_t tile = 0; tile < tiles; tile++)
        for (int64_t c = 0; c < out; c += LANES) {
            Vector points[36], half[24], cells[16], bias = load(layer->bias + c);
            int64_t cell = 1 + 4 * (first + tile), at = (place(work, row) * wide + cell) * out + c;
            for (int p = 0; p < 36; p++) points[p] = load(work->products + (tile * 36 + p) * out + c);
            for (int j = 0; j < 6; j++) from_points(points + j, 6, half + j);
            for (int i = 0; i < 4; i++) {
                Vector line[4];
                from_points(half + 6 * i, 1, line);
                for (int j = 0; j < 4; j++) cells[4 * i + j] = line[j] + bias;
            }
            if (layer->rectified)
                for (int i = 0; i < 16; i++) cells[i] = rectify(cells[i]);
            if (layer->sum >= 0)
                for (int i = 0; i < 16; i++)
                    cells[i] += load(work->rings[layer->sum] + at + (i / 4 * wide + i % 4) * out);
            if (l + 1 < work->count)
                for (int i = 0; i < 16; i++) store(work->rings[l + 1] + at + (i / 4 * wide + i % 4) * out, cells[i]);
            else
                hand_out(work, target, row, work->start + cell, c, cells);
        }
}

/* The columns of a ring that are inside the picture. */
INLINE void find_inside(const Work *work, int64_t *from, int64_t *to) {
    *from = work->start < 0 ? -work->start : 0;
    *to = work->width - work->start < work->wide ? work->width - work->start : work->wide;
}

/* Copies four rows of the sources into the first ring, their channels concatenated. */
static void enter(const Work *work, const Picture *sources, int64_t many, int64_t row) {
    int64_t in = work->layers[0].in, from, to;
    find_inside(work, &from, &to);
    for (int64_t y = row; y < row + 4; y++) {
        float *ring = work->rings[0] + place(work, y) * work->wide * in;
        if (y < 0 || y >= work->height) {
            memset(ring, 0, work->wide * in * sizeof(float));
            continue;
        }
        for (const Picture *source = sources; source < sources + many; source++) {
            const float *cells = source->cells + y * source->row + (work->start + from) * source->cell;
            if (source->cell == in && source->channels == in)
                memcpy(ring + from * in, cells, (to - from) * in * sizeof(float));
            else
                for (int64_t x = from; x < to; x++, cells += source->cell)
                    memcpy(ring + x * in, cells, source->channels * sizeof(float));
            ring += source->channels;
        }
    }
}

/* Sets four rows of a ring to zero outside of the picture. */
static void clear(const Work *work, int64_t l, int64_t row) {
    int64_t in = work->layers[l].in, from, to;
    find_inside(work, &from, &to);
    for (int64_t y = row; y < row + 4; y++) {
        float *ring = work->rings[l] + place(work, y) * work->wide * in;
        int64_t before = y < 0 || y >= work->height ? work->wide : from;
        memset(ring, 0, before * in * sizeof(float));
        if (before == from) memset(ring + to * in, 0, (work->wide - to) * in * sizeof(float));
    }
}

/* Computes a band of a layer: four rows, all columns. */
static void convolve(const Work *work, int64_t l, int64_t row, const Picture *target) {
    const Layer *layer = work->layers + l;
    const float *rows[6];
    for (int i = 0; i < 6; i++) rows[i] = work->rings[l] + place(work, row + i - 1) * work->wide * layer->in;
    for (int64_t first = 0; first < work->tiles; first += GROUP) {
        int64_t tiles = work->tiles - first < GROUP ? work->tiles - first : GROUP;
        transform(rows, 4 * first, layer->in, tiles, work->spread);
        multiply(work->spread, layer, tiles, work->products);
        finish(work, l, row, first, tiles, target);
    }
}

/* Tiles across a strip with so many columns of the result; each layer but the last adds one on either side. */
INLINE int64_t count_tiles(int64_t count, int64_t columns) { return (columns + 2 * (count - 1) + 3) / 4; }

/* Divides a block of memory, if one is given, into its parts; returns the floats needed. */
static int64_t share(Work *work, float *memory) {
    int64_t used = 0, most = 0;
    for (int64_t l = 0; l < work->count; l++) {
        const Layer *layer = work->layers + l;
        if (memory) work->rings[l] = memory + used;
        used += ROWS * work->wide * layer->in;
        if (layer->in > most) most = layer->in;
        if (layer->out > most) most = layer->out;
    }
    if (memory) work->spread = memory + used, work->products = work->spread + 36 * GROUP * most;
    return used + 2 * 36 * GROUP * most;
}

static Work begin(const Layer *layers, int64_t count, int64_t columns) {
    Work work = {.layers = layers, .count = count, .tiles = count_tiles(count, columns)};
    work.wide = 4 * work.tiles + 2;
    return work;
}

/* Floats of memory that a call needs for so many columns. */
EXPORT int64_t measure(const Layer *layers, int64_t count, int64_t columns) {
    Work work = begin(layers, count, columns);
    return share(&work, NULL);
}

/* Computes rows `top` to `bottom` and columns `left` to `right` of the chain's result for a picture. */
EXPORT void convolve_chain(const Layer *layers, int64_t count, const Picture *sources, int64_t many, const Picture *target,
                           int64_t height, int64_t width, int64_t top, int64_t bottom, int64_t left, int64_t right,
                           float *memory) {
    Work work = begin(layers, count, right - left);
    memset(memory, 0, share(&work, memory) * sizeof(float));
    work.height = height, work.width = width;
    work.top = top, work.bottom = bottom, work.left = left, work.right = right;
    work.start = left - count;
    int64_t bands = (bottom - top + 3) / 4, first = -((count + 3) / 4), entered = first;
    for (int64_t time = first; time < bands + count - 1; time++) {
        for (; entered <= time + 1; entered++) enter(&work, sources, many, top + 4 * entered);
        for (int64_t l = 0; l < count; l++) {
            int64_t band = time - l, around = (count - 1 - l + 3) / 4; /* bands beyond the part that later layers need */
            if (band < -around || band >= bands + around) continue;
            convolve(&work, l, top + 4 * band, target);
            if (l + 1 < count) clear(&work, l + 1, top + 4 * band);
        }
    }
}

/* Channels are multiples of this. */
EXPORT int64_t lanes(void) { return LANES; }
