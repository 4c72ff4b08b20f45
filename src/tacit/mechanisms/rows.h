/* Rows through several steps in one pass: shortened or brought to a norm, moved and divided, cut to
   whole numbers; kept, or added up on the way, themselves or their products.

   Written once and compiled for what processors have. Every operation is correctly rounded, and
   squares are added as `squares` adds them, so that the steps find what NumPy does, one after the
   other (tacit.mechanisms.additive). Rows that need a closer look are left to it: those whose
   squares overflow or vanish, and those with gaps where a norm is taken. */

enum { NORMALIZE, SHORTEN, AFFINE, WHOLE };
enum { KEEP, SUM, PRODUCTS };
enum { STEPS = 8, BLOCK = 16 }; /* steps at most; rows that are in the nearest cache */

#define EVERY(what) \
    _Pragma("GCC ivdep") for (int64_t j = 0; j < whole; j++) { what; } /* in whole vectors */

typedef struct {
    int kind;
    double radius, by;          /* of NORMALIZE and SHORTEN; of WHOLE, the largest number */
    const double *mean, *scale; /* of AFFINE; NULL to divide by nothing */
    int near;                   /* of AFFINE: whether no difference leaves the floats */
} Step;

/* The largest number of either sign where it is beyond; what is no number stays so. */
INLINE double within(double x)
{
    x = x > DBL_MAX ? DBL_MAX : x;
    return x < -DBL_MAX ? -DBL_MAX : x;
}

/* Towards zero, and 0 beyond the largest; ``quick`` where there is an instruction for it. */
INLINE double truncated(double x, double most, const int quick)
{
    double size = __builtin_fabs(x), whole = (size + 0x1.8p52) - 0x1.8p52;
    if (quick)
        return size <= most ? __builtin_trunc(x) : 0.0;
    whole -= whole > size ? 1.0 : 0.0;
    return __builtin_copysign(whole <= most ? whole : 0.0, x);
}

/* What rows of a block are multiplied by; 0 if one has to be looked at. */
INLINE int factors(const Step *step, const double *x, int64_t rows, int64_t d, int64_t apart, double *own)
{
    double totals[BLOCK], norms[BLOCK];
    int ordinary = 1;
    int64_t done = 0;
    for (; d <= SHORT && done + ABREAST <= rows; done += ABREAST)
        pieces_of(x + done * apart, apart, d, ABREAST, totals + done);
    for (; done < rows; done++)
        totals[done] = squares(x + done * apart, d);
    for (; done < BLOCK; done++)
        totals[done] = 1.0;
    for (int r = 0; r < BLOCK; r++)
        norms[r] = __builtin_sqrt(totals[r]);
    for (int r = 0; r < BLOCK; r++) {
        own[r] = step->radius / norms[r];
        if (step->kind == SHORTEN && norms[r] <= step->radius)
            own[r] = 1.0;
        ordinary &= totals[r] > 0x1p-750 && totals[r] < 0x1p750;
    }
    for (int64_t r = 0; !ordinary && r < rows; r++) {
        if (totals[r] > 0x1p-750 && totals[r] < 0x1p750)
            continue;
        for (int64_t j = 0; j < d; j++)
            if (x[r * apart + j] != 0.0)
                return 0;
        own[r] = step->kind == NORMALIZE ? 0.0 : 1.0;
    }
    return 1;
}

/* Rows of a block through one step, in whole vectors: what is beyond d does not count. Rows lie
   `apart` and come to lie `beside` each other. 0 if one has to be looked at. */
INLINE int take_step(const Step *step, const double *x, int64_t apart, double *to, int64_t beside,
                     int64_t rows, int64_t d, const int quick)
{
    const int64_t whole = (d + TOGETHER - 1) & ~(int64_t)(TOGETHER - 1);
    const double *mean = step->mean, *scale = step->scale, most = step->radius, by = step->by;
    double own[BLOCK];
    if (step->kind < AFFINE && !factors(step, x, rows, d, apart, own))
        return 0;
    for (int64_t r = 0; r < rows; r++, x += apart, to += beside)
        if (step->kind < AFFINE)
            EVERY(to[j] = x[j] * own[r] * by)
        else if (step->kind == WHOLE)
            EVERY(to[j] = truncated(x[j], most, quick))
        else if (step->near)
            EVERY(to[j] = x[j] - mean[j])
        else if (scale)
            EVERY(to[j] = within(within(x[j] - mean[j]) / scale[j]))
        else
            EVERY(to[j] = within(x[j] - mean[j]))
    return 1;
}

/* A block after the other. Vectors reach beyond a row into the next one, which comes after it; there
   is none behind the last, unless as many as `behind` are. */
INLINE int all_steps(const Step *steps, int count, const double *x, int64_t n, int64_t behind, int64_t d,
                     double *room, double *to, int64_t beside, const int quick)
{
    int64_t wide = (d + TOGETHER - 1) & ~(int64_t)(TOGETHER - 1), block = (1 << 11) / wide, rows;
    block = block < 1 ? 1 : block > BLOCK ? BLOCK : block;
    for (int64_t i = 0; i < n; i += rows, x += rows * d, to += rows * beside) {
        rows = n - i < block ? n - i : block;
        int last = n + behind - i - rows < TOGETHER;
        rows = last ? 1 : rows;
        const double *from = x;
        int64_t apart = d;
        if (last)
            from = memcpy(room, x, sizeof(*x) * (size_t)d);
        for (int s = 0; s < count; s++) {
            int out = s == count - 1 && !last;
            for (int64_t j = rows * d * s / count; j < rows * d * (s + 1) / count; j += TOGETHER)
                __builtin_prefetch(x + rows * d + j); /* the next block, while this one is at work */
            if (!take_step(steps + s, from, apart, out ? to : room, out ? beside : wide, rows, d, quick))
                return 0;
            from = room;
            apart = wide;
        }
        if (last)
            memcpy(to, room, sizeof(*x) * (size_t)d);
    }
    return 1;
}

/* Rows through steps, if any, and then kept in `to`, or added up: there is room for NEAR of them then,
   and a vector. */
INLINE int pass(const Step *steps, int count, const double *x, int64_t n, int64_t d, double *room,
                double *to, double *sums, int how, const int quick)
{
    const int64_t wide = (d + TOGETHER - 1) & ~(int64_t)(TOGETHER - 1), beside = how == KEEP ? d : wide;
    const int64_t most = how == PRODUCTS ? NEAR : BLOCK, apart = count ? beside : d;
    for (int64_t first = 0, rows; first < n; first += rows, x += rows * d, to += how == KEEP ? rows * d : 0) {
        rows = n - first < most ? n - first : most;
        if (count && !all_steps(steps, count, x, rows, n - first - rows, d, room, to, beside, quick))
            return 0;
        const double *found = count ? to : x;
        for (int64_t j = 0; !count && j < rows * d; j += TOGETHER)
            __builtin_prefetch(x + rows * d + j);
        if (how == PRODUCTS)
            moment(found, apart, rows, d, sums);
        for (int64_t j = 0; how == SUM && j + TOGETHER <= d; j += TOGETHER) {
            eight total = eight_at(sums + j);
            for (int64_t r = 0; r < rows; r++)
                total += eight_at(found + r * apart + j);
            memcpy(sums + j, &total, sizeof total);
        }
        for (int64_t j = d - d % TOGETHER; how == SUM && j < d; j++)
            for (int64_t r = 0; r < rows; r++)
                sums[j] += found[r * apart + j];
    }
    return 1;
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512dq,prefer-vector-width=512"))) static int pass_avx512(
    const Step *steps, int count, const double *x, int64_t n, int64_t d, double *room, double *to,
    double *sums, int how)
{
    return pass(steps, count, x, n, d, room, to, sums, how, 1);
}
__attribute__((target("avx2"))) static int pass_avx2(
    const Step *steps, int count, const double *x, int64_t n, int64_t d, double *room, double *to,
    double *sums, int how)
{
    return pass(steps, count, x, n, d, room, to, sums, how, 1);
}
#endif

static int one_pass(const Step *steps, int count, const double *x, int64_t n, int64_t d, double *room,
                    double *to, double *sums, int how)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        return pass_avx512(steps, count, x, n, d, room, to, sums, how);
    if (__builtin_cpu_supports("avx2"))
        return pass_avx2(steps, count, x, n, d, room, to, sums, how);
#endif
    return pass(steps, count, x, n, d, room, to, sums, how, 0);
}

/* The vectors of a step, held in the buffers; 0 and an error if they do not suit. */
static int read_step(PyObject *given, int64_t d, Step *step, Buffers *held)
{
    PyObject *vectors[2];
    const double **places[2] = {&step->mean, &step->scale};
    if (!PyArg_ParseTuple(given, "iddOO", &step->kind, &step->radius, &step->by, vectors, vectors + 1))
        return 0;
    for (int v = 0; v < 2; v++) {
        *places[v] = NULL;
        if (vectors[v] == Py_None)
            continue;
        Py_buffer *view = array(held, vectors[v], 1, 0);
        if (!view)
            return 0;
        if (view->shape[0] != d)
            step->kind = -1;
        *places[v] = view->buf;
    }
    if (step->kind < NORMALIZE || step->kind > WHOLE || (step->kind == AFFINE && !step->mean)) {
        PyErr_SetString(PyExc_ValueError, "a step must be of a known kind, and suit the rows");
        return 0;
    }
    return 1;
}

/* Rows, steps and what becomes of them: kept in an array like the rows, or added to another. */
static PyObject *through_steps(PyObject *args, int keeps)
{
    PyObject *given, *kinds, *out;
    Buffers held = {.count = 0};
    Py_buffer *rows, *onto;
    Step steps[STEPS];
    int count = 0, found = 0;
    if (!PyArg_ParseTuple(args, "OO!O", &given, &PyTuple_Type, &kinds, &out))
        return NULL;
    if (!(rows = array(&held, given, 2, 0)) || !(onto = array(&held, out, keeps ? 2 : 0, 1)))
        return release(&held, NULL);
    int64_t n = rows->shape[0], d = rows->shape[1];
    int how = keeps ? KEEP : onto->ndim == 1 ? SUM : PRODUCTS;
    if (onto->ndim > 2 || onto->shape[onto->ndim - 1] != d || (how && onto->shape[0] != d) ||
        (!how && onto->shape[0] != n) || PyTuple_Size(kinds) > STEPS || (keeps && !PyTuple_Size(kinds))) {
        PyErr_Format(PyExc_ValueError, "out must suit the rows, and steps must be 1 to %d", STEPS);
        return release(&held, NULL);
    }
    for (; count < PyTuple_Size(kinds); count++)
        if (!read_step(PyTuple_GetItem(kinds, count), d, steps + count, &held))
            return release(&held, NULL);
    if (how == PRODUCTS && !has_moment())
        return release(&held, PyBool_FromLong(0));
    int64_t wide = (d + TOGETHER - 1) & ~(int64_t)(TOGETHER - 1), size = how == PRODUCTS ? d * d : how ? d : 0;
    int64_t needed = wide * (BLOCK + 2 * count) + (keeps ? 0 : wide * NEAR + TOGETHER) + size;
    char *memory = calloc((size_t)(needed + TOGETHER), sizeof(double));
    double *room = (double *)(memory + (64 - (uintptr_t)memory % 64)), *next = room + wide * BLOCK;
    if (!memory)
        return release(&held, PyErr_NoMemory());
    for (int s = 0; s < count; s++) {
        steps[s].near = s && steps[s - 1].kind < AFFINE && !steps[s].scale && steps[s].mean &&
                        steps[s - 1].radius * steps[s - 1].by < 0x1p1000;
        for (int64_t j = 0; steps[s].near && j < d; j++)
            steps[s].near = __builtin_fabs(steps[s].mean[j]) < 0x1p1000;
        for (int v = 0; v < 2; v++) {
            const double **place = v ? &steps[s].scale : &steps[s].mean;
            if (*place)
                *place = memcpy(next, *place, sizeof(*next) * (size_t)d);
            for (int64_t j = d; v && j < wide; j++)
                next[j] = 1.0; /* not to divide by zero */
            next += wide;
        }
    }
    double *to = keeps ? onto->buf : next, *sums = next + wide * NEAR + TOGETHER;
    Py_BEGIN_ALLOW_THREADS
    found = one_pass(steps, count, rows->buf, n, d, room, to, sums, how);
    for (int64_t i = 0; found && i < size; i++)
        ((double *)onto->buf)[i] += sums[i];
    Py_END_ALLOW_THREADS
    free(memory);
    return release(&held, PyBool_FromLong(found));
}

PyDoc_STRVAR(through_doc,
             "through(rows, steps, out)\n--\n\n"
             "Rows (n, d) through steps, each a kind, two numbers, and two vectors or None. False if a\n"
             "row has to be looked at; then nothing in out counts.");

static PyObject *py_through(PyObject *module, PyObject *args) { return through_steps(args, 1); }

PyDoc_STRVAR(added_doc,
             "added(rows, steps, onto)\n--\n\n"
             "Rows (n, d) through steps, if any, to whole numbers that are added to sums (d,); or to those of\n"
             "the products of all columns, in the upper triangle of a matrix (d, d), on a processor for that.\n"
             "Sums stay below 2**53. False if nothing was added.");

static PyObject *py_added(PyObject *module, PyObject *args) { return through_steps(args, 0); }
