/* Products of tables of 16-bit integers with weights and multipliers, and whole steps of training.

   tacit.engine.quantization has the argument for every bound that is used here. Numbers are exact
   integers, or the results of correctly rounded operations in a fixed order, so that every level
   of instructions, and NumPy (tacit.engine.kernels.compact), finds the same bits. That takes
   strict IEEE arithmetic: no contraction, no -ffast-math.

   A row is `stride` integers, a multiple of 16. What else belongs to a row (the inverse of its
   norm, its largest magnitude, its target) lies in arrays beside the table, at the same index. So
   do cells of shaped columns (tacit.data.shaped). A cell has a place, `one` apart from weight to weight
   of its column, and meets the two neighbours of it: `one` less a fraction of the first and that
   fraction of the second, which is the rest of the place. The first weight of all is what a gap
   meets: it is zero, and has no sum. Planes of 16 bits have as much of a place as they hold, one
   after the other, so that it is their sum; or, of wide columns, a weight's number and the fraction.

   Buffers are checked on entry; then the interpreter is let go, and Python's threads may run
   several calls at once. */

#ifndef NO_PYTHON /* as tests/trainers/neon.c has it */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#else
#include <stddef.h>
typedef ptrdiff_t Py_ssize_t;
#endif
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__GNUC__) || FLT_EVAL_METHOD != 0 || defined(__FAST_MATH__)
#error "needs the vectors of GCC or Clang, and IEEE arithmetic in double precision"
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#define LEVELS 3
#else
#define LEVELS 1
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8") /* so that sums stay in registers */
#define UNROLL16 _Pragma("GCC unroll 16")

enum { LOGISTIC, SOFTMAX, SQUARED };
enum { NARROW = 64, AHEAD = 16, BLOCK_VALUES = 1 << 17, LIMB = 13, LANES = 16, SIDE = 2 };
/* columns of rows that are fetched a block ahead; rows to fetch ahead; numbers of a block; bits of l;
   rows whose cells lie together; vectors side by side */
enum { TABLE = 32, SPARE = TABLE + 1, WIDE = 48, SOON = 8 };
/* weights in a table, and behind those of the last shape; weights of a shape that vectors sum; how many times
   LANES rows ahead cells are fetched */

/* Constants of tacit.losses.elementary and tacit.engine.quantization; a test compares them. */
#define ROUND 0x1.8p52
#define TINY 0x1p-500
#define LOWEST (-0x1.62p9) /* -708 */
#define LOG2E 0x1.71547652b82fep+0
#define LN2_HIGH 0x1.62e42fefa3800p-1
#define LN2_LOW 0x1.ef35793c76730p-45
static const double EXP[8] = {1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0};

/* From scores to multipliers: public numbers of a step, and what belongs to rows. */
typedef struct {
    int loss, separate;
    int64_t settings, outputs;
    const double *unit, *ceiling, *multiplier; /* of every line; of every setting */
    double allowance, shrink;
    const double *inverse; /* 1 / |x| of every row */
    const void *targets;   /* of every row: doubles (n, outputs), or 64-bit classes (n) */
    int64_t many;          /* rows of a person, in tiles (tacit.engine.people); 1 for none */
    const double *gram;    /* inner products of them, (many * (many - 1) / 2, people) */
    int64_t people, person; /* of `gram`, and the one whose rows come first */
    double loose, spread;
} Terms;

typedef struct {
    const int16_t *rows;
    int64_t n, stride;
    const int64_t *index;  /* which rows; NULL for all from `start` on */
    int64_t start, count;
    const uint16_t *peaks; /* magnitude that no number of a row exceeds */
    const int16_t *weights;
    int64_t lines, reach;  /* of weights or multipliers: settings times outputs; their columns */
    const uint16_t *cells; /* (n / LANES, planes, LANES): places; or NULL */
    int64_t shapes, planes, one, bits, bases; /* one = 2**bits */
    const int64_t *offsets; /* where the weights of every shape begin behind those of rows, and end */
    const int32_t *base;    /* what every score of a line begins with, modulo 2**32 */
    Terms terms;
    const double *given;   /* multipliers (lines, count) */
    uint64_t *onto;        /* sums (lines, reach), modulo 2**64 */
} Job;

typedef enum { SCORES, SUMS, STEP } Kind;

/* Memory for one block of rows at a time. */
typedef struct {
    int64_t length, wide;  /* rows of a block; columns of `sums` */
    const int16_t **at;    /* where rows lie, and AHEAD more */
    int32_t *raw;          /* scores (lines, length) */
    int16_t *parts;        /* of multipliers (2 lines, length) */
    int32_t *peaks, *sizes, *most; /* largest magnitude in a row, and of its parts; their product */
    const double *inverse, *targets; /* of the rows, where they lie or in their room */
    double *inverse_room, *target_room, *residuals, *tops;
    int64_t *cuts, chunks; /* rows whose products are added up in 32 bits */
    void *pairs;
    int64_t *sums;         /* (lines, wide), columns in the order of their vectors */
    const uint16_t **cells; /* where those of LANES rows lie, (planes, LANES); of the last rows again */
    uint16_t *picked;       /* room for those of a batch */
    uint64_t *bins;         /* sums of multipliers, and of their fractions, for a shape's weights */
    int32_t *tables;        /* pairs of neighbouring weights, (lines, shapes, 32) */
    int64_t *planes;        /* where those of every shape begin, and end */
} Scratch;

typedef struct {
    void (*scores)(const Job *, Scratch *, int64_t count);
    void (*multipliers)(const Job *, Scratch *, int64_t first, int64_t count);
    void (*people)(const Job *, Scratch *, int64_t first, int64_t count);
    void (*given)(const Job *, Scratch *, int64_t first, int64_t count);
    void (*sums)(const Job *, Scratch *, int64_t count);
    void (*conclude)(const Job *, Scratch *);
    void (*shape_scores)(const Job *, Scratch *, int64_t count);
    void (*shape_sums)(const Job *, Scratch *, int64_t count);
    int (*round_doubles)(const double *, const double *, int64_t, double, int64_t, int16_t *);
    int (*round_singles)(const float *, const double *, int64_t, double, int64_t, int16_t *);
    void (*measure)(const int16_t *, int64_t, double *, uint16_t *);
} Loops;

/* Number of the row in place i; the last one again beyond the end. */
INLINE int64_t number_at(const Job *job, int64_t i)
{
    i = i < job->count ? i : job->count - 1;
    return job->index ? job->index[job->start + i] : job->start + i;
}

/* Ask for rows of the next block while the processor is busy with this one. */
INLINE void fetch(const Job *job, int64_t i, int64_t count)
{
    if (job->stride > NARROW || i >= job->count)
        return;
    int64_t row = number_at(job, i), outputs = job->terms.loss == SOFTMAX ? 1 : job->terms.outputs;
    for (int64_t lane = 0; lane < count; lane++) {
        int64_t number = number_at(job, i + lane);
        const int16_t *at = job->rows + number * job->stride;
        for (int64_t j = 0; j < job->stride; j += 32)
            __builtin_prefetch(at + j);
        if (job->terms.many > 1 && job->index) { /* nobody's neighbours in the table */
            __builtin_prefetch(job->peaks + number);
            __builtin_prefetch(job->terms.inverse + number);
            __builtin_prefetch((const double *)job->terms.targets + number * outputs);
        }
    }
    __builtin_prefetch(job->terms.inverse + row);
    __builtin_prefetch((const double *)job->terms.targets + row * outputs);
}

INLINE int32_t pair_at(const int16_t *p)
{
    int32_t both;
    memcpy(&both, p, sizeof both);
    return both;
}

/* Planes that a shape's cells take. */
INLINE int64_t planes_of(const Job *job, int64_t shape)
{
    int64_t weights = job->offsets[shape + 1] - job->offsets[shape] - 1, hold = UINT16_MAX / job->one;
    return weights > WIDE ? 2 : weights ? (weights + hold - 1) / hold : 1;
}

/* Places of LANES cells in a shape. */
INLINE void places_of(const Job *job, int64_t shape, int64_t planes, const uint16_t *cells, uint32_t *to)
{
    int64_t wide = job->offsets[shape + 1] - job->offsets[shape] > WIDE + 1;
    for (int64_t lane = 0; lane < LANES; lane++)
        to[lane] = cells[lane] * (uint32_t)(wide ? job->one : 1);
    for (int64_t q = LANES; q < planes * LANES; q += LANES)
        for (int64_t lane = 0; lane < LANES; lane++)
            to[lane] += cells[q + lane];
}

/* Which of its shape's weights a place meets first, none that is not there, and how much of the next. */
INLINE int64_t weight_at(const Job *job, int64_t shape, uint32_t place, uint32_t *upper)
{
    int64_t last = job->offsets[shape + 1] - job->offsets[shape] - 1, index = place >> job->bits;
    *upper = place & (uint32_t)(job->one - 1);
    return index < last ? index : last;
}

/* Cells of LANES rows, of which this is one. */
INLINE const uint16_t *cells_at(const Job *job, int64_t row) { return job->cells + row / LANES * job->planes * LANES; }

/* One row times a multiplier that does not fit two parts. */
static __attribute__((noinline)) void add_alone(const Job *job, int64_t i, int64_t line, double z)
{
    int64_t number = number_at(job, i);
    if (i >= job->count || !job->peaks[number] || !(fabs(z) < 0x1p62))
        return;
    const int16_t *row = job->rows + number * job->stride;
    uint64_t *onto = job->onto + line * job->reach, by = (uint64_t)(int64_t)z;
    for (int64_t j = 0; j < job->stride; j++)
        onto[j] += (uint64_t)(int64_t)row[j] * by;
    for (int64_t j = 0, p = 0, planes; j < job->shapes; j++, p += planes) {
        uint32_t places[LANES], upper;
        planes = planes_of(job, j);
        places_of(job, j, planes, cells_at(job, number) + p * LANES, places);
        int64_t at = job->stride + job->offsets[j] + weight_at(job, j, places[number % LANES], &upper);
        onto[at] += (uint64_t)(job->one - upper) * by;
        onto[at + 1] += upper * by;
    }
}

/* --- Vectors of any processor ----------------------------------------------------------------- */

typedef int16_t shorts __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(16)));
typedef uint32_t words __attribute__((vector_size(16)));

INLINE shorts load_shorts(const int16_t *p)
{
    shorts found;
    memcpy(&found, p, sizeof found);
    return found;
}

INLINE words madd(words sum, shorts a, shorts b)
{
    for (int t = 0; t < 4; t++)
        sum[t] += (uint32_t)(a[2 * t] * b[2 * t]) + (uint32_t)(a[2 * t + 1] * b[2 * t + 1]);
    return sum;
}

/* The larger of unsigned numbers. */
INLINE shorts larger(shorts a, shorts b)
{
    shorts above = (shorts)((halves)a > (halves)b);
    return (above & a) | (~above & b);
}

INLINE shorts beside(shorts a, shorts b, int from)
{
    return (shorts){a[from],     b[from],     a[from + 1], b[from + 1],
                    a[from + 2], b[from + 2], a[from + 3], b[from + 3]};
}

#define LEVEL 0
#include "loops.h"
#undef LEVEL

#if LEVELS > 1
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
/* As such, since GCC moves every sum around for intrinsic functions. */
INLINE __m256i maddwd(__m256i sum, __m256i a, __m256i b)
{
    __m256i t;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(t) : "x"(a), "x"(b));
    return sum;
}
#define LEVEL 1
#include "loops.h"
#undef LEVEL
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,prefer-vector-width=512")
#endif
INLINE __m512i dpwssd(__m512i sum, __m512i a, __m512i b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}
#define LEVEL 2
#include "loops.h"
#undef LEVEL
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

/* The loops of a level, or NULL where the processor lacks its instructions. */
static const Loops *loops_of(Py_ssize_t level)
{
    if (level == 0)
        return &loops_portable;
#if LEVELS > 1
    __builtin_cpu_init();
    if (level == 1 && __builtin_cpu_supports("avx2"))
        return &loops_avx2;
    if (level == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni"))
        return &loops_avx512;
#endif
    return NULL;
}

/* --- A block after the other -------------------------------------------------------------------- */

static int64_t block_rows(int64_t values)
{
    int64_t rows = BLOCK_VALUES / values; /* so that they stay in the cache */
    rows = rows < 32 ? 32 : rows > 1024 ? 1024 : rows;
    return rows & ~(int64_t)(LANES - 1);
}

static int64_t padded(int64_t count) { return (count + LANES - 1) & ~(int64_t)(LANES - 1); }

/* All arrays of a Scratch in one piece of memory; NULL if there is none. */
static void *scratch_for(const Job *job, Scratch *work)
{
    int64_t length = block_rows(job->stride + job->planes), lines = job->lines, outputs = job->terms.outputs;
    int64_t many = job->terms.many > 1 ? job->terms.many : 1, tile = LANES * many;
    length = length < tile ? tile : length / tile * tile; /* all rows of a person in one block */
    if (length > padded(job->count))
        length = padded(job->count);
    work->length = length;
    work->wide = (job->stride + 31) & ~(int64_t)31;
    int64_t most = 0;
    for (int64_t j = 0; j < job->shapes; j++)
        most = most < job->offsets[j + 1] - job->offsets[j] ? job->offsets[j + 1] - job->offsets[j] : most;
    size_t sizes[] = {
        sizeof(*work->at) * (size_t)(length + AHEAD), sizeof(*work->raw) * (size_t)(lines * length),
        sizeof(*work->parts) * (size_t)(2 * lines * length + 32), sizeof(*work->most) * (size_t)length,
        sizeof(*work->peaks) * (size_t)(2 * length),
        sizeof(double) * (size_t)length, sizeof(double) * (size_t)(outputs * length),
        64 * (size_t)((outputs + 1) * many), sizeof(*work->cuts) * (size_t)(length / 2 + 1), 64 * (size_t)length,
        sizeof(*work->sums) * (size_t)(lines * work->wide),
        sizeof(*work->cells) * (size_t)(length / LANES + SIDE * 2),
        sizeof(*work->picked) * (size_t)(job->index || job->start % LANES ? job->planes * length : 0),
        sizeof(*work->bins) * (size_t)(2 * most),
        sizeof(*work->tables) * (size_t)(job->weights ? lines * job->shapes * TABLE : 0),
        sizeof(*work->planes) * (size_t)(job->shapes + 1)};
    enum { PIECES = sizeof sizes / sizeof *sizes };
    size_t total = 64;
    for (int i = 0; i < PIECES; i++)
        total += (sizes[i] + 63) & ~(size_t)63;
    char *memory = malloc(total), *pieces[PIECES];
    if (!memory)
        return NULL;
    char *at = memory + (64 - (uintptr_t)memory % 64);
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = at;
        at += (sizes[i] + 63) & ~(size_t)63;
    }
    work->at = (void *)pieces[0];
    work->raw = (void *)pieces[1];
    work->parts = (void *)pieces[2];
    work->most = (void *)pieces[3];
    work->peaks = (void *)pieces[4];
    work->sizes = work->peaks + length;
    work->inverse_room = (void *)pieces[5];
    work->target_room = (void *)pieces[6];
    work->residuals = (void *)pieces[7];
    work->tops = work->residuals + 8 * outputs * many;
    work->cuts = (void *)pieces[8];
    work->pairs = (void *)pieces[9];
    work->sums = memset(pieces[10], 0, sizes[10]);
    work->cells = (void *)pieces[11];
    work->picked = (void *)pieces[12];
    work->bins = (void *)pieces[13];
    work->tables = (void *)pieces[14];
    work->planes = memset(pieces[15], 0, sizes[15]);
    for (int64_t j = 0; j < job->shapes; j++)
        work->planes[j + 1] = work->planes[j] + planes_of(job, j);
    for (int64_t k = 0; job->weights && k < lines; k++)
        for (int64_t j = 0; j < job->shapes; j++)
            for (int e = 0; e < TABLE; e++)
                work->tables[(k * job->shapes + j) * TABLE + e] =
                    pair_at(job->weights + k * job->reach + job->stride + job->offsets[j] + e);
    return memory;
}

/* Where the rows of a block lie, and what belongs to them; padding, which repeats the last row,
   counts nothing. */
static void gather(const Job *job, Scratch *work, int64_t first, int64_t count, int64_t whole,
                   Kind kind)
{
    const Terms *t = &job->terms;
    int64_t length = work->length, outputs = t->outputs, start = job->start + first;
    const double *numbers = t->targets;
    const int64_t *classes = t->targets;
#define EACH(place, value)                                                                        \
    if (job->index)                                                                               \
        for (int64_t i = 0; i < count; i++) {                                                     \
            int64_t row = job->index[start + i];                                                  \
            place = value;                                                                        \
        }                                                                                         \
    else                                                                                          \
        for (int64_t i = 0; i < count; i++) {                                                     \
            int64_t row = start + i;                                                              \
            place = value;                                                                        \
        }
    EACH(work->at[i], job->rows + row * job->stride)
    for (int64_t i = count; i < whole + AHEAD; i++)
        work->at[i] = job->rows + number_at(job, first + i) * job->stride;
    for (int64_t i = 0; job->shapes && i < whole; i += LANES) {
        if (!job->index && start % LANES == 0) {
            work->cells[i / LANES] = cells_at(job, start + i);
            continue;
        }
        uint16_t *to = work->picked + i * job->planes;
        work->cells[i / LANES] = to;
        for (int64_t lane = 0; lane < LANES; lane++) {
            int64_t row = number_at(job, first + i + lane);
            const uint16_t *from = cells_at(job, row) + row % LANES;
            for (int64_t j = 0; j < job->planes; j++)
                to[j * LANES + lane] = from[j * LANES];
        }
    }
    for (int64_t i = 0; job->shapes && i < 2 * SIDE; i++)
        work->cells[whole / LANES + i] = work->cells[whole / LANES - 1];
    if (kind == SCORES)
        return;
    EACH(work->peaks[i], job->peaks[row])
    for (int64_t i = count; i < whole; i++)
        work->peaks[i] = 0;
    if (kind == SUMS)
        return;
    int here = !job->index && count == whole; /* as they are needed */
    work->inverse = here ? t->inverse + start : work->inverse_room;
    work->targets = here && t->loss != SOFTMAX && outputs == 1 ? numbers + start : work->target_room;
    if (!here) {
        EACH(work->inverse_room[i], t->inverse[row])
        for (int64_t i = count; i < whole; i++)
            work->inverse_room[i] = 0.0;
    }
    if (work->targets != work->target_room)
        return;
    if (t->loss == SOFTMAX) {
        EACH(work->target_room[i], (double)classes[row])
    } else
        for (int64_t k = 0; k < outputs; k++)
            EACH(work->target_room[k * length + i], numbers[row * outputs + k])
    for (int64_t k = 0; k < (t->loss == SOFTMAX ? 1 : outputs); k++)
        for (int64_t i = count; i < whole; i++)
            work->target_room[k * length + i] = 0.0;
#undef EACH
}

/* Cut a block where products of features and parts might add up to 2**31 otherwise. */
static void cut(Scratch *work, int64_t count)
{
    int64_t chunks = 0, total = 0;
    work->cuts[0] = 0;
    for (int64_t i = 0; i < count; i += 2) {
        int64_t both = (int64_t)work->most[i] + work->most[i + 1];
        if (total + both > INT32_MAX && i) {
            work->cuts[++chunks] = i;
            total = 0;
        }
        total += both;
    }
    work->cuts[++chunks] = count;
    work->chunks = chunks;
}

static void run(const Loops *loops, const Job *job, Scratch *work, Kind kind, int32_t *scores)
{
    for (int64_t first = 0; first < job->count; first += work->length) {
        int64_t left = job->count - first, count = left < work->length ? left : work->length;
        int64_t whole = padded(count);
        gather(job, work, first, count, whole, kind);
        if (kind != SUMS)
            loops->scores(job, work, whole);
        if (kind != SUMS && job->shapes)
            loops->shape_scores(job, work, whole);
        if (kind == SCORES) {
            for (int64_t k = 0; k < job->lines; k++)
                memcpy(scores + k * job->count + first, work->raw + k * work->length,
                       sizeof(*scores) * (size_t)count);
            continue;
        }
        void (*parts)(const Job *, Scratch *, int64_t, int64_t) = loops->multipliers;
        if (kind == STEP && job->terms.many > 1)
            parts = loops->people;
        (kind == STEP ? parts : loops->given)(job, work, first, whole);
        cut(work, whole);
        loops->sums(job, work, whole);
        if (job->shapes)
            loops->shape_sums(job, work, whole);
    }
    if (kind != SCORES)
        loops->conclude(job, work);
}

#ifndef NO_PYTHON
/* --- Arguments ------------------------------------------------------------------------------------ */

enum { MOST_BUFFERS = 14 }; /* of any call */
typedef struct {
    Py_buffer views[MOST_BUFFERS];
    int count;
} Buffers;

static void release(Buffers *held)
{
    while (held->count)
        PyBuffer_Release(&held->views[--held->count]);
}

/* No numbers at all are aligned wherever they are not, as NumPy has it. */
static int aligned(const Py_buffer *view)
{
    return !view->len || (uintptr_t)view->buf % (size_t)view->itemsize == 0;
}

/* A C-contiguous array of numbers: h int16, H uint16, i int32, I uint32, q int64, d double. */
static Py_buffer *array(Buffers *held, PyObject *given, const char *name, char kind, int ndim,
                        int writable)
{
    Py_buffer *view = &held->views[held->count];
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(given, view, flags) < 0)
        return NULL;
    held->count++;
    char found = view->format && view->format[0] && !view->format[1] ? view->format[0] : '?';
    if (found == 'l' && view->itemsize == 8)
        found = 'q';
    if (found != kind || view->ndim != ndim) {
        PyErr_Format(PyExc_TypeError, "%s must be a %d-dimensional array of kind %c, not %d of %s",
                     name, ndim, kind, view->ndim, view->format ? view->format : "bytes");
        return NULL;
    }
    if (!aligned(view)) {
        PyErr_Format(PyExc_ValueError, "%s is not aligned", name);
        return NULL;
    }
    return view;
}

static int refuse(const char *why)
{
    PyErr_SetString(PyExc_ValueError, why);
    return 0;
}

static const Loops *chosen(Py_ssize_t level)
{
    const Loops *loops = loops_of(level);
    if (!loops)
        refuse("this processor has no instructions of that level");
    return loops;
}

/* Cells of shapes (n / LANES, planes, LANES) beside the rows; where their weights begin, and the last ones end;
   what the two weights of a cell add up to; and what scores begin with (or None, for sums). */
static int take_shapes(Buffers *held, Job *job, PyObject *cells, PyObject *offsets, int64_t one,
                       PyObject *base)
{
    Py_buffer *table = array(held, cells, "cells", 'H', 3, 0), *view;
    if (!table || !(view = array(held, offsets, "offsets", 'q', 1, 0)))
        return 0;
    job->cells = table->buf;
    job->offsets = view->buf;
    job->shapes = view->shape[0] - 1;
    job->one = one;
    int fits = table->shape[0] == (job->n + LANES - 1) / LANES && table->shape[2] == LANES && one > 0 &&
               one <= 1 << 14 && !(one & (one - 1)) && job->shapes >= 0 && job->shapes < 1 << 20 &&
               job->offsets[0] == 0;
    while (fits && one >> job->bits > 1)
        job->bits++;
    for (int64_t j = 0; fits && j < job->shapes; j++) {
        fits = job->offsets[j] < job->offsets[j + 1] && job->offsets[j + 1] < 1 << 23;
        job->planes += fits ? planes_of(job, j) : 0;
    }
    if (!fits || table->shape[1] != job->planes)
        return refuse("cells, offsets and one do not suit the rows");
    job->reach += (job->offsets[job->shapes] + SPARE + 15) & ~(int64_t)15;
    if (base == Py_None)
        return 1;
    if (!(view = array(held, base, "base", 'i', 1, 0)))
        return 0;
    job->base = view->buf;
    job->bases = view->shape[0];
    return 1;
}

/* Rows (n, stride), or a tuple of them and their shapes, and which of them: from `start` to `stop`,
   or of an index. */
static int take_rows(Buffers *held, Job *job, PyObject *rows, PyObject *index, Py_ssize_t start,
                     Py_ssize_t stop)
{
    PyObject *cells = NULL, *offsets, *base;
    Py_ssize_t one;
    if (PyTuple_Check(rows) && !PyArg_ParseTuple(rows, "OOOnO", &rows, &cells, &offsets, &one, &base))
        return 0;
    Py_buffer *view = array(held, rows, "rows", 'h', 2, 0);
    if (!view)
        return 0;
    job->rows = view->buf;
    job->n = view->shape[0];
    job->stride = job->reach = view->shape[1];
    if (job->stride % 16 || !job->stride || job->stride > 1 << 23)
        return refuse("rows must have a multiple of 16 columns, at most 2**23");
    if (cells && !take_shapes(held, job, cells, offsets, one, base))
        return 0;
    int64_t most = job->n;
    if (index != Py_None) {
        if (!(view = array(held, index, "index", 'q', 1, 0)))
            return 0;
        job->index = view->buf;
        most = view->shape[0];
    }
    if (start < 0 || start > stop || stop > most)
        return refuse("start and stop must lie within the rows, or their index");
    job->start = start;
    job->count = stop - start;
    for (int64_t i = 0; job->index && i < job->count; i++)
        if (job->index[start + i] < 0 || job->index[start + i] >= job->n)
            return refuse("an index is no row");
    return 1;
}

static int take_weights(Buffers *held, Job *job, PyObject *given)
{
    Py_buffer *view = array(held, given, "weights", 'h', 2, 0);
    if (!view)
        return 0;
    job->weights = view->buf;
    job->lines = view->shape[0];
    return (view->shape[1] == job->reach && (!job->cells || (job->base && job->bases == job->lines))) ||
           refuse("weights must have as many columns as rows and shapes, and base as many lines");
}

static int take_peaks(Buffers *held, Job *job, PyObject *given)
{
    Py_buffer *view = array(held, given, "peaks", 'H', 1, 0);
    if (!view)
        return 0;
    job->peaks = view->buf;
    return view->shape[0] == job->n || refuse("there must be a peak for every row");
}

static int take_onto(Buffers *held, Job *job, PyObject *given)
{
    Py_buffer *view = array(held, given, "onto", 'q', 2, 1);
    if (!view)
        return 0;
    job->onto = view->buf;
    return (view->shape[0] == job->lines && view->shape[1] == job->reach) ||
           refuse("onto must have a line for every line of weights, as wide as rows");
}

static PyObject *done(Buffers *held, const Loops *loops, Job *job, Kind kind, int32_t *scores)
{
    Scratch work;
    void *memory = NULL;
    int found = 1;
    if (job->lines && job->count) {
        if (job->lines > 1 << 24)
            found = refuse("there are too many lines");
        else if (!(memory = scratch_for(job, &work))) {
            PyErr_NoMemory();
            found = 0;
        }
    }
    if (memory) {
        Py_BEGIN_ALLOW_THREADS
        run(loops, job, &work, kind, scores);
        Py_END_ALLOW_THREADS
        free(memory);
    }
    release(held);
    if (!found)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *failed(Buffers *held)
{
    release(held);
    return NULL;
}

static PyObject *refused(Buffers *held, const char *why)
{
    refuse(why);
    return failed(held);
}

PyDoc_STRVAR(scores_doc,
             "scores(level, rows, index, start, stop, weights, out)\n--\n\n"
             "Rows times lines of weights (K, stride): 32-bit integers (K, count).");

static PyObject *py_scores(PyObject *module, PyObject *args)
{
    Py_ssize_t level, start, stop;
    PyObject *rows, *index, *weights, *out;
    Buffers held = {.count = 0};
    Job job = {0};
    const Loops *loops;
    Py_buffer *view;
    if (!PyArg_ParseTuple(args, "nOOnnOO", &level, &rows, &index, &start, &stop, &weights, &out))
        return NULL;
    if (!(loops = chosen(level)) || !take_rows(&held, &job, rows, index, start, stop) ||
        !take_weights(&held, &job, weights) || !(view = array(&held, out, "out", 'i', 2, 1)))
        return failed(&held);
    if (view->shape[0] != job.lines || view->shape[1] != job.count)
        return refused(&held, "out must have a line for every line of weights, and a place for every row");
    return done(&held, loops, &job, SCORES, view->buf);
}

PyDoc_STRVAR(sums_doc,
             "sums(level, rows, index, start, stop, peaks, multipliers, onto)\n--\n\n"
             "Add rows times multipliers (K, count), integers below 2**47, to sums (K, stride).");

static PyObject *py_sums(PyObject *module, PyObject *args)
{
    Py_ssize_t level, start, stop;
    PyObject *rows, *index, *peaks, *given, *onto;
    Buffers held = {.count = 0};
    Job job = {0};
    const Loops *loops;
    Py_buffer *view;
    if (!PyArg_ParseTuple(args, "nOOnnOOO", &level, &rows, &index, &start, &stop, &peaks, &given,
                          &onto))
        return NULL;
    if (!(loops = chosen(level)) || !take_rows(&held, &job, rows, index, start, stop) ||
        !take_peaks(&held, &job, peaks) ||
        !(view = array(&held, given, "multipliers", 'd', 2, 0)))
        return failed(&held);
    job.given = view->buf;
    job.lines = view->shape[0];
    if (view->shape[1] != job.count)
        return refused(&held, "there must be a multiplier for every row");
    for (int64_t i = 0; i < job.lines * job.count; i++)
        if (!(fabs(job.given[i]) < 0x1p47))
            return refused(&held, "a multiplier is 2**47 or more, or not a number");
    if (!take_onto(&held, &job, onto))
        return failed(&held);
    return done(&held, loops, &job, SUMS, NULL);
}

PyDoc_STRVAR(step_doc,
             "step(level, loss, rows, index, start, stop, peaks, weights, unit, targets, inverse,\n"
             "     ceiling, multiplier, allowance, shrink, separate, onto, many=1, gram=None,\n"
             "     person=0, loose=1.0, spread=0.0)\n--\n\n"
             "Scores, residuals, clipping and rounding, and sums that are added to `onto`. With\n"
             "`many`, rows are those of people in tiles: inner products (pairs, people) from `person` on.");

static PyObject *py_step(PyObject *module, PyObject *args)
{
    Py_ssize_t level, start, stop;
    PyObject *rows, *index, *peaks, *weights, *unit, *targets, *inverse, *ceiling, *multiplier, *onto;
    PyObject *gram = NULL;
    Py_ssize_t many = 1, person = 0;
    Buffers held = {.count = 0};
    Job job = {0};
    Terms *t = &job.terms;
    const Loops *loops;
    Py_buffer *view;
    if (!PyArg_ParseTuple(args, "niOOnnOOOOOOOddpO|nOndd", &level, &t->loss, &rows, &index, &start,
                          &stop, &peaks, &weights, &unit, &targets, &inverse, &ceiling, &multiplier,
                          &t->allowance, &t->shrink, &t->separate, &onto, &many, &gram, &person,
                          &t->loose, &t->spread))
        return NULL;
    t->many = many;
    t->person = person;
    if (!(loops = chosen(level)) || !take_rows(&held, &job, rows, index, start, stop) ||
        !take_peaks(&held, &job, peaks) || !take_weights(&held, &job, weights) ||
        !take_onto(&held, &job, onto) || !(view = array(&held, unit, "unit", 'd', 1, 0)))
        return failed(&held);
    t->unit = view->buf;
    int fits = view->shape[0] == job.lines;
    if (!(view = array(&held, ceiling, "ceiling", 'd', 1, 0)))
        return failed(&held);
    t->ceiling = view->buf;
    t->settings = view->shape[0];
    if (!(view = array(&held, multiplier, "multiplier", 'd', 1, 0)))
        return failed(&held);
    t->multiplier = view->buf;
    fits &= view->shape[0] == t->settings && t->settings > 0 && job.lines % t->settings == 0;
    if (!fits)
        return refused(&held, "unit, ceiling and multiplier do not suit the weights");
    t->outputs = job.lines / t->settings;
    if (!(view = array(&held, inverse, "inverse", 'd', 1, 0)))
        return failed(&held);
    t->inverse = view->buf;
    fits = view->shape[0] == job.n && t->loss >= LOGISTIC && t->loss <= SQUARED;
    int classes = t->loss == SOFTMAX;
    if (!(view = array(&held, targets, "targets", classes ? 'q' : 'd', classes ? 1 : 2, 0)))
        return failed(&held);
    t->targets = view->buf;
    fits &= view->shape[0] == job.n && (classes || view->shape[1] == t->outputs);
    if (!fits || !(t->allowance > 0))
        return refused(&held, "loss, targets, norms or allowance do not suit the rows");
    double loose = 1.0;
    if (many != 1) {
        if (!gram || !(view = array(&held, gram, "gram", 'd', 2, 0)))
            return failed(&held);
        t->gram = view->buf;
        t->people = view->shape[1];
        loose = t->loose;
        fits = many > 1 && many <= 512 && view->shape[0] == many * (many - 1) / 2 && person >= 0 &&
               job.count % (LANES * many) == 0 && person <= t->people &&
               job.count / many <= t->people - person && loose >= 1.0 && t->spread >= 0.0;
        if (!fits)
            return refused(&held, "rows of people must come in whole tiles, with inner products");
    }
    /* So that multipliers stay below 2**47, whatever the rows. */
    for (int64_t s = 0; s < t->settings; s++)
        if (!(t->ceiling[s] * loose < 0x1p47) || !(t->shrink <= 1.0))
            return refused(&held, "a ceiling is 2**47 or more");
    return done(&held, loops, &job, STEP, NULL);
}

PyDoc_STRVAR(round_doc,
             "rounded(level, values, shift, per_unit, constant, out, squares, peaks)\n--\n\n"
             "Rows of numbers, or a sequence of columns, less a shift and in units, clamped and\n"
             "rounded to integers beside a constant (or None), with their squared norms and largest\n"
             "magnitudes. False, and nothing to rely on, if a number is not finite.");

enum { TILE = 128 }; /* rows that are put together from columns at once */

static int round_some(const Loops *loops, const void *from, int single, const double *shift,
                      int64_t each, double per_unit, int64_t count, int16_t *to)
{
    return single ? loops->round_singles(from, shift, each, per_unit, count, to)
                  : loops->round_doubles(from, shift, each, per_unit, count, to);
}

static PyObject *py_rounded(PyObject *module, PyObject *args)
{
    Py_ssize_t level;
    PyObject *values, *shift, *constant, *out, *squares, *peaks, *columns = NULL;
    double per_unit;
    Buffers held = {.count = 0};
    const Loops *loops;
    Py_buffer *table, *moved, *square, *peak, *view, *views = NULL;
    if (!PyArg_ParseTuple(args, "nOOdOOOO", &level, &values, &shift, &per_unit, &constant, &out,
                          &squares, &peaks))
        return NULL;
    if (!(loops = chosen(level)) || !(table = array(&held, out, "out", 'h', 2, 1)) ||
        !(moved = array(&held, shift, "shift", 'd', 1, 0)) ||
        !(square = array(&held, squares, "squares", 'd', 1, 1)) ||
        !(peak = array(&held, peaks, "peaks", 'H', 1, 1)))
        return failed(&held);
    int64_t n = table->shape[0], stride = table->shape[1], d = moved->shape[0], got = 0, single = 0;
    int fine = 1, wrong = 0;
    long last = constant == Py_None ? 0 : PyLong_AsLong(constant);
    if (last == -1 && PyErr_Occurred())
        return failed(&held);
    int64_t width = d + (constant != Py_None);
    if (square->shape[0] != n || peak->shape[0] != n || width > stride || last < -32767 ||
        last > 32767)
        return refused(&held, "out, shift, squares and peaks do not suit each other");
    const char *rows = NULL;
    if (PyObject_CheckBuffer(values)) {
        view = &held.views[held.count];
        if (PyObject_GetBuffer(values, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
            return failed(&held);
        held.count++;
        single = view->itemsize == 4;
        fine = view->ndim == 2 && view->shape[0] == n && view->shape[1] == d && view->format &&
               !strcmp(view->format, single ? "f" : "d") &&
               aligned(view);
        rows = view->buf;
    } else {
        if (!(columns = PySequence_Tuple(values)))
            return failed(&held);
        fine = PyTuple_Size(columns) == d && (views = calloc((size_t)d + 1, sizeof *views));
        for (; fine && got < d; got++) {
            view = &views[got];
            PyObject *column = PyTuple_GetItem(columns, got);
            if (PyObject_GetBuffer(column, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
                break;
            single = view->itemsize == 4;
            fine = view->ndim == 1 && view->shape[0] == n && view->format &&
                   !strcmp(view->format, single ? "f" : "d") &&
                   view->itemsize == views[0].itemsize &&
                   aligned(view);
        }
    }
    if (!fine && !PyErr_Occurred())
        refuse("values must be aligned float32 or float64, as many rows and columns as out and shift");
    if (!PyErr_Occurred()) {
        int16_t *to = table->buf;
        const double *by = moved->buf;
        int64_t size = single ? 4 : 8;
        Py_BEGIN_ALLOW_THREADS
        for (int64_t first = 0; first < n; first += TILE) {
            int64_t count = n - first < TILE ? n - first : TILE;
            int16_t *block = to + first * stride, line[TILE];
            for (int64_t j = 0; !rows && j < d; j++) {
                const char *from = (const char *)views[j].buf + first * size;
                wrong |= round_some(loops, from, (int)single, by + j, 0, per_unit, count, line);
                for (int64_t i = 0; i < count; i++)
                    block[i * stride + j] = line[i];
            }
            for (int64_t i = 0; i < count; i++) {
                int16_t *row = block + i * stride;
                if (rows)
                    wrong |= round_some(loops, rows + (first + i) * d * size, (int)single, by, 1,
                                        per_unit, d, row);
                if (width > d)
                    row[d] = (int16_t)last;
                memset(row + width, 0, sizeof(*row) * (size_t)(stride - width));
                loops->measure(row, stride, (double *)square->buf + first + i,
                               (uint16_t *)peak->buf + first + i);
            }
        }
        Py_END_ALLOW_THREADS
    }
    while (got)
        PyBuffer_Release(&views[--got]);
    free(views);
    Py_XDECREF(columns);
    release(&held);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(!wrong);
}

PyDoc_STRVAR(levels_doc, "levels()\n--\n\nLevels of instructions that this processor has, by name.");

static PyObject *py_levels(PyObject *module, PyObject *args)
{
    const char *names[] = {"portable", "avx2", "avx512"};
    PyObject *found = PyDict_New();
    for (int level = 0; found && level < LEVELS; level++) {
        if (!loops_of(level))
            continue;
        PyObject *number = PyLong_FromLong(level);
        if (!number || PyDict_SetItemString(found, names[level], number) < 0)
            Py_CLEAR(found);
        Py_XDECREF(number);
    }
    return found;
}

PyDoc_STRVAR(tiles_doc,
             "tiles(classes, places, last, chosen, gram, counts)\n--\n\n"
             "Where the rows of some people lie, in tiles of their own, and their inner products: two\n"
             "byte arrays, of an index and of numbers (parts, those of class after class), each (pairs,\n"
             "people); and in `counts` how many people of each class. Classes are (many, start, people):\n"
             "the rows of each of them, and where their tiles begin; `gram` has them (parts, those of\n"
             "class after class), each (people, pairs); a place is 2**40 times a class and a number\n"
             "there, or -1. The last tile of a class is filled up with the row `last`.");

enum { KINDS = 512, NUMBER = 40 }; /* classes, and rows of a person; bits of a number in a class */

/* Of a class: its people, and where those who were chosen go. */
typedef struct {
    int64_t many, start, people, pairs, gram; /* of which the last is where inner products begin */
    int64_t count, next;
} Class;

/* The first row of a person. */
INLINE int64_t first_of(const Class *c, int64_t who)
{
    int64_t lane = who & (LANES - 1);
    return c->start + (who - lane) * c->many + lane;
}

static PyObject *py_tiles(PyObject *module, PyObject *args)
{
    Py_ssize_t last;
    PyObject *kinds, *where, *some, *pairs, *many, *result = NULL;
    Buffers held = {.count = 0};
    Py_buffer *table, *places, *chosen, *gram, *counts;
    if (!PyArg_ParseTuple(args, "OOnOOO", &kinds, &where, &last, &some, &pairs, &many))
        return NULL;
    if (!(table = array(&held, kinds, "classes", 'q', 2, 0)) ||
        !(places = array(&held, where, "places", 'q', 1, 0)) ||
        !(chosen = array(&held, some, "chosen", 'q', 1, 0)) ||
        !(gram = array(&held, pairs, "gram", 'd', 2, 0)) ||
        !(counts = array(&held, many, "counts", 'q', 1, 1)))
        return failed(&held);
    const int64_t *given = table->buf, *place = places->buf, *people = chosen->buf;
    const int64_t number = table->shape[0], count = chosen->shape[0], known = places->shape[0];
    const int64_t parts = gram->shape[0], width = gram->shape[1];
    const double *inner = gram->buf;
    Class classes[KINDS];
    int64_t begins = 0, rows = 0, products = 0;
    int fits = number <= KINDS && table->shape[1] == 3 && counts->shape[0] == number && last >= 0 &&
               parts < 1 << 8 && count < INT64_C(1) << 31;
    for (int64_t k = 0; fits && k < number; k++, given += 3) {
        Class *c = classes + k;
        *c = (Class){.many = given[0], .start = given[1], .people = given[2], .gram = begins};
        fits = c->many > 0 && c->many <= KINDS && c->start >= 0 && c->start < INT64_C(1) << 47 &&
               c->people >= 0 && c->people < INT64_C(1) << 32;
        c->pairs = fits ? c->many * (c->many - 1) / 2 : 0;
        begins += c->pairs * c->people;
        fits &= begins <= width;
    }
    int64_t *at = malloc(sizeof(*at) * (size_t)(2 * count + 1)), *sorted = at + count;
    if (!at) {
        PyErr_NoMemory();
        return failed(&held);
    }
    fits = fits && begins == width;
    for (int64_t i = 0; fits && i < count; i++) {
        fits = people[i] >= 0 && people[i] < known;
        if (!fits || (at[i] = place[people[i]]) < 0)
            continue;
        int64_t k = at[i] >> NUMBER, who = at[i] & ((INT64_C(1) << NUMBER) - 1);
        fits = k < number && who < classes[k].people;
        if (fits)
            classes[k].count++;
    }
    if (!fits) {
        free(at);
        return refused(&held, "people, their places and inner products do not suit each other");
    }
    for (int64_t k = 0, next = 0; k < number; k++) {
        Class *c = classes + k;
        ((int64_t *)counts->buf)[k] = c->count;
        c->next = next;
        next += c->count;
        rows += c->many * padded(c->count);
        products += c->pairs * padded(c->count);
    }
    for (int64_t i = 0; i < count; i++) {
        if (at[i] < 0)
            continue;
        Class *c = classes + (at[i] >> NUMBER);
        int64_t who = at[i] & ((INT64_C(1) << NUMBER) - 1);
        const double *from = inner + c->gram + who * c->pairs;
        sorted[c->next++] = who;
        __builtin_prefetch(from); /* met soon */
        __builtin_prefetch(from + c->pairs);
    }
    PyObject *index = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)sizeof(int64_t) * rows);
    PyObject *found = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)sizeof(double) * parts * products);
    if (index && found) {
        int64_t *to = (int64_t *)(void *)PyByteArray_AsString(index);
        double *line = (double *)(void *)PyByteArray_AsString(found);
        for (const Class *c = classes; c < classes + number; c++) {
            const int64_t *who = sorted + c->next - c->count, lanes = padded(c->count);
            for (int64_t i = 0; i < lanes; i += LANES, to += c->many * LANES) {
                for (int64_t lane = 0; lane < LANES; lane++)
                    to[lane] = first_of(c, who[i + lane < c->count ? i + lane : i]);
                for (int64_t j = 1; j < c->many; j++)
                    for (int64_t lane = 0; lane < LANES; lane++)
                        to[j * LANES + lane] = to[lane] + j * LANES;
            }
            for (int64_t lane = c->count % LANES; lane % LANES; lane++)
                for (int64_t j = 1; j <= c->many; j++)
                    to[lane - j * LANES] = last;
            for (int64_t i = 0; i < lanes; i += LANES)
                for (int64_t part = 0; part < parts; part++) {
                    double *onto = line + part * products + i;
                    const double *from[LANES];
                    for (int64_t lane = 0; lane < LANES; lane++)
                        from[lane] = inner + part * width + c->gram +
                                     who[i + lane < c->count ? i + lane : 0] * c->pairs;
                    for (int64_t pair = 0; pair < c->pairs; pair++, onto += lanes)
                        for (int64_t lane = 0; lane < LANES; lane++)
                            onto[lane] = from[lane][pair];
                }
            line += c->pairs * lanes;
        }
        result = PyTuple_Pack(2, index, found);
    }
    Py_XDECREF(index);
    Py_XDECREF(found);
    free(at);
    release(&held);
    return result;
}

static PyMethodDef functions[] = {{"scores", py_scores, METH_VARARGS, scores_doc},
                                  {"sums", py_sums, METH_VARARGS, sums_doc},
                                  {"step", py_step, METH_VARARGS, step_doc},
                                  {"rounded", py_rounded, METH_VARARGS, round_doc},
                                  {"tiles", py_tiles, METH_VARARGS, tiles_doc},
                                  {"levels", py_levels, METH_NOARGS, levels_doc},
                                  {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        .m_name = "native",
                                        .m_doc = "Loops over rows of 16-bit integers.",
                                        .m_methods = functions};

PyMODINIT_FUNC PyInit_native(void) { return PyModuleDef_Init(&definition); }
#endif
