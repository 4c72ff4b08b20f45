/* Passes over numbers that NumPy would make in several: squared norms of rows, factors, and noise.

   Every operation is correctly rounded and in the order of NumPy's, so results are the same to the
   bit (tacit.mechanisms.additive compares them once). That takes strict IEEE arithmetic: no
   contraction, no -ffast-math. Buffers are checked on entry; then the interpreter is let go. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__GNUC__) || FLT_EVAL_METHOD != 0 || defined(__FAST_MATH__)
#error "needs IEEE arithmetic in double precision"
#endif

enum { TOGETHER = 8, ABREAST = 4, SHORT = 128, NEAR = 64, BUFFERS = 18 }; /* NEAR: rows in the nearest cache */
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#if defined(__x86_64__)
#include <immintrin.h>
#define FAST __attribute__((target("avx512f")))
#endif

typedef double eight __attribute__((vector_size(64)));

INLINE eight eight_at(const double *x)
{
    eight found;
    memcpy(&found, x, sizeof found);
    return found;
}

/* The squares of up to 128 numbers of each of some rows, added up as NumPy adds: eight sums side by
   side. Several rows together take turns, so that none waits for its last addition. */
INLINE void pieces_of(const double *x, int64_t apart, int64_t n, const int rows, double *totals)
{
    eight s[ABREAST] = {0};
    int64_t i = 0;
    for (; i + TOGETHER <= n; i += TOGETHER)
        UNROLL for (int r = 0; r < rows; r++)
            s[r] += eight_at(x + r * apart + i) * eight_at(x + r * apart + i);
    UNROLL for (int r = 0; r < rows; r++, x += apart) {
        eight t = s[r];
        double total = ((t[0] + t[1]) + (t[2] + t[3])) + ((t[4] + t[5]) + (t[6] + t[7]));
        for (int64_t j = i; j < n; j++)
            total += x[j] * x[j];
        totals[r] = total;
    }
}

/* Of any number of them: halves of what is longer. */
static double squares(const double *x, int64_t n)
{
    double total;
    if (n <= SHORT) {
        pieces_of(x, 0, n, 1, &total);
        return total;
    }
    int64_t half = n / 2 - n / 2 % TOGETHER;
    return squares(x, half) + squares(x + half, n - half);
}

#if defined(__x86_64__)
/* Products of eight columns from `i` on with up to 24 from `j` on, of whole numbers whose sums stay
   below 2**53: exact in whatever order. Those above the diagonal are added. */
INLINE FAST void tile(const double *x, int64_t apart, int64_t rows, int64_t d, int64_t i, int64_t j,
                      int wide, double *onto)
{
    __m512d sums[8][3];
    __mmask8 in[3];
    UNROLL for (int v = 0; v < wide; v++) {
        int64_t left = d - j - 8 * v;
        in[v] = left < 8 ? (__mmask8)((1 << left) - 1) : 0xff;
        UNROLL for (int t = 0; t < 8; t++)
            sums[t][v] = _mm512_setzero_pd();
    }
    int64_t last = d - 1 - i;
    for (int64_t r = 0; r < rows; r++, x += apart) {
        __m512d a[3];
        UNROLL for (int v = 0; v < wide; v++)
            a[v] = _mm512_maskz_loadu_pd(in[v], x + j + 8 * v);
        UNROLL for (int t = 0; t < 8; t++) {
            __m512d b = _mm512_set1_pd(x[i + (t < last ? t : last)]);
            UNROLL for (int v = 0; v < wide; v++)
                sums[t][v] = _mm512_fmadd_pd(a[v], b, sums[t][v]);
        }
    }
    UNROLL for (int t = 0; t < 8; t++)
        UNROLL for (int v = 0; v < wide; v++) {
            int64_t before = i + t - j - 8 * v; /* below the diagonal */
            __mmask8 keep = before <= 0 ? in[v] : before < 8 ? in[v] & (__mmask8)(0xff << before) : 0;
            double *to = onto + (i + t) * d + j + 8 * v;
            if (t <= last && keep)
                _mm512_mask_storeu_pd(to, keep, _mm512_add_pd(sums[t][v], _mm512_maskz_loadu_pd(keep, to)));
        }
}

static FAST void moment(const double *x, int64_t apart, int64_t rows, int64_t d, double *onto)
{
    for (int64_t i = 0; i < d; i += 8)
        for (int64_t j = i; j < d; j += 24)
            switch (d - j > 16 ? 3 : d - j > 8 ? 2 : 1) {
            case 1: tile(x, apart, rows, d, i, j, 1, onto); break;
            case 2: tile(x, apart, rows, d, i, j, 2, onto); break;
            default: tile(x, apart, rows, d, i, j, 3, onto);
            }
}

static int has_moment(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f");
}
#else
static void moment(const double *x, int64_t apart, int64_t rows, int64_t d, double *onto) {}
static int has_moment(void) { return 0; }
#endif

#include "noise.h"

/* --- Arguments -------------------------------------------------------------------------------- */

typedef struct {
    Py_buffer views[BUFFERS];
    int count;
} Buffers;

static PyObject *release(Buffers *held, PyObject *found)
{
    while (held->count)
        PyBuffer_Release(&held->views[--held->count]);
    return found;
}

/* An aligned, C-contiguous array of numbers of these kinds (one letter each); 0 for any dimensions
   but none. For NumPy, and so here, no numbers at all are aligned wherever they are not. */
static Py_buffer *numbers(Buffers *held, PyObject *given, const char *kinds, int size, int ndim,
                          int writable)
{
    Py_buffer *view = &held->views[held->count];
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(given, view, flags) < 0)
        return NULL;
    held->count++;
    const char *kind = view->format;
    if ((ndim ? view->ndim == ndim : view->ndim > 0) && view->itemsize == size && kind && kind[0] && !kind[1] &&
        strchr(kinds, kind[0]) && (!view->len || (uintptr_t)view->buf % size == 0))
        return view;
    PyErr_Format(PyExc_ValueError, "needs an aligned array of kind '%s' in %d dimensions", kinds,
                 ndim);
    return NULL;
}

static Py_buffer *array(Buffers *held, PyObject *given, int ndim, int writable)
{
    return numbers(held, given, "d", sizeof(double), ndim, writable);
}

PyDoc_STRVAR(squares_doc, "squares(rows, out)\n--\n\nThe squared norm of every row (n, d).");

static PyObject *py_squares(PyObject *module, PyObject *args)
{
    PyObject *given, *out;
    Buffers held = {.count = 0};
    Py_buffer *rows, *onto;
    if (!PyArg_ParseTuple(args, "OO", &given, &out))
        return NULL;
    if (!(rows = array(&held, given, 2, 0)) || !(onto = array(&held, out, 1, 1)))
        return release(&held, NULL);
    int64_t n = rows->shape[0], d = rows->shape[1];
    if (onto->shape[0] != n) {
        PyErr_SetString(PyExc_ValueError, "out must have a place for every row");
        return release(&held, NULL);
    }
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < n; i++)
        ((double *)onto->buf)[i] = squares((const double *)rows->buf + i * d, d);
    Py_END_ALLOW_THREADS
    Py_INCREF(Py_None);
    return release(&held, Py_None);
}

#include "rows.h"

PyDoc_STRVAR(levels_doc, "levels()\n--\n\nHow many kinds of loops for noise this processor can run.");

static PyObject *py_levels(PyObject *module, PyObject *none) { return PyLong_FromLong(levels()); }

PyDoc_STRVAR(draws_doc,
             "draws(level, words, columns, shift, half, near, margin, out)\n--\n\n"
             "Draws of the discrete Gaussian from attempts, two words each, until `out` is full, no attempt\n"
             "is left, or one is not settled. How many attempts are settled, and how many draws they gave.");

static PyObject *py_draws(PyObject *module, PyObject *args)
{
    PyObject *given, *table, *out;
    Gaussian g;
    int level, near;
    Buffers held = {.count = 0};
    Py_buffer *words, *columns, *onto;
    if (!PyArg_ParseTuple(args, "iOOififO", &level, &given, &table, &g.shift, &g.half, &near, &g.margin,
                          &out))
        return NULL;
    if (!(words = numbers(&held, given, "LQ", 8, 1, 0)) ||
        !(columns = numbers(&held, table, "i", 4, 2, 0)) ||
        !(onto = numbers(&held, out, "lq", 8, 1, 1)))
        return release(&held, NULL);
    if (columns->shape[0] != COLUMNS || columns->shape[1] != 2 || g.shift < 0 || g.shift > 53 ||
        level < 0 || level >= levels()) {
        PyErr_SetString(PyExc_ValueError, "columns, shift or level must be others");
        return release(&held, NULL);
    }
    int64_t used = 0, found;
    g.columns = columns->buf;
    g.near = near;
    Py_BEGIN_ALLOW_THREADS
    found = AT_LEVEL(draws)(words->buf, words->shape[0] / 2, &g, onto->buf, onto->shape[0], &used);
    Py_END_ALLOW_THREADS
    return release(&held, Py_BuildValue("LL", (long long)used, (long long)found));
}

PyDoc_STRVAR(normals_doc,
             "normals(level, words, out)\n--\n\n"
             "As many normals as words, right in single precision; an even number.");

static PyObject *py_normals(PyObject *module, PyObject *args)
{
    PyObject *given, *out;
    int level;
    Buffers held = {.count = 0};
    Py_buffer *words, *onto;
    if (!PyArg_ParseTuple(args, "iOO", &level, &given, &out))
        return NULL;
    if (!(words = numbers(&held, given, "LQ", 8, 1, 0)) || !(onto = array(&held, out, 1, 1)))
        return release(&held, NULL);
    int64_t n = words->shape[0] / 2;
    if (words->shape[0] != 2 * n || onto->shape[0] != 2 * n || level < 0 || level >= levels()) {
        PyErr_SetString(PyExc_ValueError, "out must have a place for every word, and be even");
        return release(&held, NULL);
    }
    const uint64_t *first = words->buf;
    double *one = onto->buf;
    Py_BEGIN_ALLOW_THREADS
    AT_LEVEL(pairs)(first, first + n, n, one, one + n);
    Py_END_ALLOW_THREADS
    Py_INCREF(Py_None);
    return release(&held, Py_None);
}

static PyMethodDef functions[] = {{"squares", py_squares, METH_VARARGS, squares_doc},
                                  {"through", py_through, METH_VARARGS, through_doc},
                                  {"added", py_added, METH_VARARGS, added_doc},
                                  {"levels", py_levels, METH_NOARGS, levels_doc},
                                  {"draws", py_draws, METH_VARARGS, draws_doc},
                                  {"normals", py_normals, METH_VARARGS, normals_doc},
                                  {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        .m_name = "native",
                                        .m_doc = "Passes over rows of numbers.",
                                        .m_methods = functions};

PyMODINIT_FUNC PyInit_native(void) { return PyModuleDef_Init(&definition); }
