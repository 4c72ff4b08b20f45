/* Rows through several steps in one pass: shortened or brought to a norm, moved and divided, cut to
   whole numbers.

   Written once and compiled for what processors have. Every operation is correctly rounded, and
   squares are added as `squares` adds them, so that the steps find what NumPy does, one after the
   other (tacit.mechanisms.additive). Rows that need a closer look are left to it: those whose
   squares overflow or vanish, and those with gaps where a norm is taken. */

enum { NORMALIZE, SHORTEN, AFFINE, WHOLE };
enum { STEPS = 8, BLOCK = 16 }; /* steps at most; rows that are in the nearest cache */

#define EVERY(what) \
    _Pragma("GCC ivdep") for (int64_t j = 0; j < whole; j++) { what; } /* in whole vectors */

typedef struct {
    int kind;
    double radius, by;          /* of NORMALIZE and SHORTEN; of WHOLE, the largest number */
    const double *mean, *scale; /* of AFFINE; NULL to divide by nothing */
} Step;

/* The largest number of either sign where it is beyond; what is no number stays so. */
INLINE double within(double x)
{
    x = x > DBL_MAX ? DBL_MAX : x;
    return x < -DBL_MAX ? -DBL_MAX : x;
}

/* Towards zero, and 0 beyond the largest. */
INLINE double truncated(double x, double most)
{
    double size = __builtin_fabs(x), whole = (size + 0x1.8p52) - 0x1.8p52;
    whole -= whole > size ? 1.0 : 0.0;
    return __builtin_copysign(whole <= most ? whole : 0.0, x);
}

/* What rows of a block are multiplied by; 0 if one has to be looked at. */
INLINE int factors(const Step *step, const double *x, int64_t rows, int64_t d, int64_t apart, double *own)
{
    double totals[BLOCK], norms[BLOCK];
    int ordinary = 1;
    for (int64_t r = 0; r < rows; r++)
        totals[r] = d > SHORT ? squares(x + r * apart, d) : piece_of(x + r * apart, d);
    for (int64_t r = rows; r < BLOCK; r++)
        totals[r] = 1.0;
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
                     int64_t rows, int64_t d)
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
            EVERY(to[j] = truncated(x[j], most))
        else if (scale)
            EVERY(to[j] = within(within(x[j] - mean[j]) / scale[j]))
        else
            EVERY(to[j] = within(x[j] - mean[j]))
    return 1;
}

/* A block after the other. Vectors reach beyond a row into the next one, which comes after it; there
   is none behind the last. */
INLINE int all_steps(const Step *steps, int count, const double *x, int64_t n, int64_t d, double *room,
                     double *to)
{
    int64_t wide = (d + TOGETHER - 1) & ~(int64_t)(TOGETHER - 1), block = (1 << 11) / wide, rows;
    block = block < 1 ? 1 : block > BLOCK ? BLOCK : block;
    for (int64_t i = 0; i < n; i += rows, x += rows * d, to += rows * d) {
        rows = n - i < block ? n - i : block;
        int last = n - i - rows < TOGETHER;
        rows = last ? 1 : rows;
        const double *from = x;
        int64_t apart = d;
        if (last)
            from = memcpy(room, x, sizeof(*x) * (size_t)d);
        for (int s = 0; s < count; s++) {
            int out = s == count - 1 && !last;
            if (!take_step(steps + s, from, apart, out ? to : room, out ? d : wide, rows, d))
                return 0;
            from = room;
            apart = wide;
        }
        if (last)
            memcpy(to, room, sizeof(*x) * (size_t)d);
    }
    return 1;
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512dq,prefer-vector-width=512"))) static int steps_avx512(
    const Step *steps, int count, const double *x, int64_t n, int64_t d, double *room, double *to)
{
    return all_steps(steps, count, x, n, d, room, to);
}
__attribute__((target("avx2"))) static int steps_avx2(
    const Step *steps, int count, const double *x, int64_t n, int64_t d, double *room, double *to)
{
    return all_steps(steps, count, x, n, d, room, to);
}
#endif

static int take_steps(const Step *steps, int count, const double *x, int64_t n, int64_t d, double *room,
                      double *to)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        return steps_avx512(steps, count, x, n, d, room, to);
    if (__builtin_cpu_supports("avx2"))
        return steps_avx2(steps, count, x, n, d, room, to);
#endif
    return all_steps(steps, count, x, n, d, room, to);
}

PyDoc_STRVAR(through_doc,
             "through(rows, steps, out)\n--\n\n"
             "Rows (n, d) through steps, each a kind, two numbers, and two vectors or None. False if a\n"
             "row has to be looked at; then nothing in out counts.");

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

static PyObject *py_through(PyObject *module, PyObject *args)
{
    PyObject *given, *kinds, *out;
    Buffers held = {.count = 0};
    Py_buffer *rows, *onto;
    Step steps[STEPS];
    int count = 0, found = 0;
    if (!PyArg_ParseTuple(args, "OO!O", &given, &PyTuple_Type, &kinds, &out))
        return NULL;
    if (!(rows = array(&held, given, 2, 0)) || !(onto = array(&held, out, 2, 1)))
        return release(&held, NULL);
    int64_t n = rows->shape[0], d = rows->shape[1];
    if (onto->shape[0] != n || onto->shape[1] != d || PyTuple_Size(kinds) > STEPS || !PyTuple_Size(kinds)) {
        PyErr_Format(PyExc_ValueError, "out must suit the rows, and steps must be 1 to %d", STEPS);
        return release(&held, NULL);
    }
    for (; count < PyTuple_Size(kinds); count++)
        if (!read_step(PyTuple_GetItem(kinds, count), d, steps + count, &held))
            return release(&held, NULL);
    int64_t wide = (d + TOGETHER - 1) & ~(int64_t)(TOGETHER - 1);
    char *memory = calloc((size_t)(wide * (BLOCK + 2 * count) + TOGETHER), sizeof(double));
    double *room = (double *)(memory + (64 - (uintptr_t)memory % 64)), *next = room + wide * BLOCK;
    if (!memory)
        return release(&held, PyErr_NoMemory());
    for (int s = 0; s < count; s++)
        for (int v = 0; v < 2; v++) {
            const double **place = v ? &steps[s].scale : &steps[s].mean;
            if (*place)
                *place = memcpy(next, *place, sizeof(*next) * (size_t)d);
            for (int64_t j = d; v && j < wide; j++)
                next[j] = 1.0; /* not to divide by zero */
            next += wide;
        }
    Py_BEGIN_ALLOW_THREADS
    found = take_steps(steps, count, rows->buf, n, d, room, onto->buf);
    Py_END_ALLOW_THREADS
    free(memory);
    return release(&held, PyBool_FromLong(found));
}
