/* The loops of native.c, which includes this file once for every level of instructions.

   Rows are 16-bit integers, a multiple of 16 of them, the last ones zero. A vector VEC holds COLS
   of them, and MADD multiplies two vectors and adds neighbours into 32-bit sums. Everything else
   here is the same at every level; so are the results, to the bit. Nothing is read or written
   beyond what native.c has checked. */

#if LEVEL == 2 /* AVX-512 with VNNI */
#define N(name) name##_avx512
#define COLS 32
#define VL 8   /* numbers of 64 bits in a vector */
#define FEW 5  /* lines of weights that four rows meet at once */
#define MANY 12 /* lines of multipliers that two rows meet at once */
#define BINS 12 /* weights of a shape whose sums stay in registers */
#define VEC __m512i
#define SUM __m512i
#define NONE() _mm512_setzero_si512()
#define LOAD(p) _mm512_loadu_si512(p)
#define SOME(p, half) (half ? _mm512_maskz_loadu_epi16(0xffff, p) : LOAD(p)) /* 16 numbers, or 32 */
#define MADD(sum, a, b) dpwssd(sum, a, b)
#define LOW(a, b) _mm512_unpacklo_epi16(a, b)
#define HIGH(a, b) _mm512_unpackhi_epi16(a, b)
#define SIZE(a) _mm512_abs_epi16(a)
#define LEAST(a, b) _mm512_min_epu16(a, b)
#define LESS(a, b) _mm512_subs_epu16(a, b)
#define CELLS(at) _mm256_loadu_si256((const __m256i *)(const void *)(at))
#define TILES(at, p) _mm512_inserti64x4(_mm512_castsi256_si512(CELLS((at)[0] + (p))), CELLS((at)[1] + (p)), 1)
#define ONTO(sum, a, b) sum = dpwssd(sum, a, b)
#define TURNED(a) _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), a)
#define UPPER(a, b) _mm512_max_epu16(a, b)
#define PAIR(p) _mm512_set1_epi32(pair_at(p))
#define FOLD(s) _mm256_add_epi32(_mm512_castsi512_si256(s), _mm512_extracti64x4_epi64(s, 1))
#define TOTAL(s) _mm512_reduce_add_epi64(s)
#define VMAX(a, b) ((N(VD))_mm512_max_pd((__m512d)(a), (__m512d)(b)))
#define VMIN(a, b) ((N(VD))_mm512_min_pd((__m512d)(a), (__m512d)(b)))
#define VSQRT(a) ((N(VD))_mm512_sqrt_pd((__m512d)(a)))
#define ABOVE(a, b) ((int)_mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_GT_OQ))
#elif LEVEL == 1 /* AVX2 */
#define N(name) name##_avx2
#define COLS 16
#define VL 4
#define FEW 2
#define MANY 4
#define BINS 4
#define VEC __m256i
#define SUM __m256i
#define NONE() _mm256_setzero_si256()
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define SOME(p, half) LOAD(p)
#define MADD(sum, a, b) _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
#define LOW(a, b) _mm256_unpacklo_epi16(a, b)
#define HIGH(a, b) _mm256_unpackhi_epi16(a, b)
#define SIZE(a) _mm256_abs_epi16(a)
#define LEAST(a, b) _mm256_min_epu16(a, b)
#define LESS(a, b) _mm256_subs_epu16(a, b)
#define TILES(at, p) LOAD((at)[0] + (p))
#define ONTO(sum, a, b) sum = maddwd(sum, a, b)
#define TURNED(a) _mm256_permute4x64_epi64(a, 0xd8)
#define UPPER(a, b) _mm256_max_epu16(a, b)
#define PAIR(p) _mm256_set1_epi32(pair_at(p))
#define FOLD(s) (s)
#define TOTAL(s) (((s)[0] + (s)[1]) + ((s)[2] + (s)[3]))
#define VMAX(a, b) ((N(VD))_mm256_max_pd((__m256d)(a), (__m256d)(b)))
#define VMIN(a, b) ((N(VD))_mm256_min_pd((__m256d)(a), (__m256d)(b)))
#define VSQRT(a) ((N(VD))_mm256_sqrt_pd((__m256d)(a)))
#define ABOVE(a, b) _mm256_movemask_pd((__m256d)((a) > (b)))
#else /* any processor */
#define N(name) name##_portable
#define COLS 8
#define VL 2
#define FEW 2
#define MANY 4
#define BINS 6
#define VEC shorts
#define SUM words
#define NONE() ((words){0})
#define LOAD(p) load_shorts(p)
#define SOME(p, half) LOAD(p)
#define MADD(sum, a, b) madd(sum, a, b)
#define LOW(a, b) beside(a, b, 0)
#define HIGH(a, b) beside(a, b, 4)
#define SIZE(a) (((a) ^ ((a) >> 15)) - ((a) >> 15))
#define UPPER(a, b) larger(a, b)
#define PAIR(p) ((shorts){(p)[0], (p)[1], (p)[0], (p)[1], (p)[0], (p)[1], (p)[0], (p)[1]})
#define VMAX(a, b) N(choose)((a) > (b), a, b)
#define VMIN(a, b) N(choose)((a) < (b), a, b)
#define VSQRT(a) ((N(VD)){sqrt((a)[0]), sqrt((a)[1])})
#define ABOVE(a, b) (((a)[0] > (b)[0]) | ((a)[1] > (b)[1]) << 1)
#endif

typedef double N(VD) __attribute__((vector_size(8 * VL)));
typedef int64_t N(VQ) __attribute__((vector_size(8 * VL)));
typedef int32_t N(VI) __attribute__((vector_size(4 * VL)));
typedef int16_t N(VH) __attribute__((vector_size(2 * VL)));
typedef uint16_t N(VS) __attribute__((vector_size(2 * COLS)));
typedef int64_t N(VX) __attribute__((vector_size(2 * COLS)));
typedef uint64_t N(VY) __attribute__((vector_size(2 * COLS)));
typedef uint32_t N(VW) __attribute__((vector_size(2 * COLS)));
#define VD N(VD)
#define VQ N(VQ)
#define VI N(VI)
#define VH N(VH)
#define VS N(VS)
#define VW N(VW)
#define VX N(VX)
#define VY N(VY)

INLINE VD N(choose)(VQ which, VD a, VD b) { return (VD)((which & (VQ)a) | (~which & (VQ)b)); }

INLINE VD N(all)(double value) { return value - (VD){0}; }

INLINE VD N(get)(const double *from)
{
    VD found;
    memcpy(&found, from, sizeof found);
    return found;
}

/* The nearest integer, ties to even, of numbers below 2**51 in magnitude. */
INLINE VD N(rint)(VD x) { return (x + N(all)(ROUND)) - N(all)(ROUND); }

/* e**x for x <= 0: operation for operation tacit.losses.elementary.exp, of several vectors side by
   side, since each operation waits for the one before it. */
INLINE void N(exp)(VD *x, int many)
{
    VD shifted[SIDE], r[SIDE];
#define EACH(what) UNROLL for (int t = 0; t < many; t++) { what; }
    EACH(r[t] = VMAX(x[t], N(all)(LOWEST)))
    EACH(shifted[t] = r[t] * LOG2E + N(all)(ROUND)) /* its lowest bits are those of the integer k */
    EACH(r[t] -= (shifted[t] - N(all)(ROUND)) * LN2_HIGH)
    EACH(r[t] -= (shifted[t] - N(all)(ROUND)) * LN2_LOW)
    EACH(r[t] *= 0x1p-4; x[t] = N(all)(EXP[0]))
    UNROLL for (int i = 1; i < 8; i++)
        EACH(x[t] = x[t] * r[t] + EXP[i])
    UNROLL for (int i = 0; i < 4; i++)
        EACH(x[t] *= x[t])
    EACH(x[t] *= (VD)(((VQ)shifted[t] + 1023) << 52))
}

/* --- Scores ---------------------------------------------------------------------------------- */

INLINE void N(meet)(SUM (*sums)[FEW], const int16_t *const *x, const int16_t *w, int64_t reach,
                    int64_t j, int lines, int half)
{
    VEC a[4];
    UNROLL for (int r = 0; r < 4; r++)
        a[r] = SOME(x[r] + j, half);
    UNROLL for (int l = 0; l < lines; l++) {
        VEC b = SOME(w + l * reach + j, half);
        UNROLL for (int r = 0; r < 4; r++)
            sums[r][l] = MADD(sums[r][l], a[r], b);
    }
}

/* Four rows times some lines of weights; `soon` are rows that will be read next, or NULL. */
INLINE void N(dots)(const int16_t *const *x, const int16_t *w, int64_t stride, int64_t reach,
                    int lines, int32_t *out, int64_t length, const int16_t *const *soon)
{
    SUM sums[4][FEW];
    UNROLL for (int r = 0; r < 4; r++)
        UNROLL for (int l = 0; l < lines; l++)
            sums[r][l] = NONE();
    int64_t j = 0;
    for (; j + COLS <= stride; j += COLS) {
        if (soon)
            UNROLL for (int r = 0; r < 4; r++)
                __builtin_prefetch(soon[r] + j);
        N(meet)(sums, x, w, reach, j, lines, 0);
    }
    if (j < stride)
        N(meet)(sums, x, w, reach, j, lines, 1);
    UNROLL for (int l = 0; l < lines; l++) {
#if LEVEL
        __m256i ab = _mm256_hadd_epi32(FOLD(sums[0][l]), FOLD(sums[1][l]));
        __m256i cd = _mm256_hadd_epi32(FOLD(sums[2][l]), FOLD(sums[3][l]));
        __m256i abcd = _mm256_hadd_epi32(ab, cd);
        __m128i four = _mm_add_epi32(_mm256_castsi256_si128(abcd), _mm256_extracti128_si256(abcd, 1));
        _mm_storeu_si128((__m128i *)(out + l * length), four);
#else
        UNROLL for (int r = 0; r < 4; r++) {
            SUM s = sums[r][l];
            out[l * length + r] = (int32_t)(s[0] + s[1] + s[2] + s[3]);
        }
#endif
    }
}

static void N(scores)(const Job *job, Scratch *work, int64_t count)
{
    int64_t lines = job->lines, stride = job->stride, reach = job->reach, length = work->length;
    for (int64_t from = 0; from < count; from += LANES) /* rows that stay in the nearest cache */
        for (int64_t k = 0; k < lines; k += FEW) {
            int some = (int)(lines - k < FEW ? lines - k : FEW);
            for (int64_t i = from; i < from + LANES; i += 4) {
                const int16_t *const *x = work->at + i, *const *next = x + AHEAD;
                const int16_t *w = job->weights + k * reach;
                const int16_t *const *soon = k ? NULL : next;
                int32_t *out = work->raw + k * length + i;
                switch (some) {
                case 1: N(dots)(x, w, stride, reach, 1, out, length, soon); break;
#if FEW > 2
                case 2: N(dots)(x, w, stride, reach, 2, out, length, soon); break;
                case 3: N(dots)(x, w, stride, reach, 3, out, length, soon); break;
                case 4: N(dots)(x, w, stride, reach, 4, out, length, soon); break;
#endif
                default: N(dots)(x, w, stride, reach, FEW, out, length, soon);
                }
            }
        }
}

/* --- Multipliers ------------------------------------------------------------------------------ */

/* Integers z = 2**13 h + l, of VL rows from `i` on, as 16-bit h and l; where they do not fit, the
   row is added to the sums at once, and its parts are 0. `most` takes in the magnitudes. */
INLINE void N(split)(const Job *job, Scratch *work, int64_t first, int64_t i, int64_t line, VD z,
                     VD *most)
{
    VD h = N(rint)(z * 0x1p-13), size = VMAX(h, -h);
    int far = ABOVE(size, N(all)(32767.0));
    if (far) {
        for (int lane = 0; lane < VL; lane++)
            if (far >> lane & 1) {
                add_alone(job, first + i + lane, line, z[lane]);
                z[lane] = h[lane] = 0.0;
            }
        size = VMAX(h, -h);
    }
    VD l = z - h * 0x1p13;
    *most = VMAX(*most, VMAX(size, VMAX(l, -l)));
    VH upper = __builtin_convertvector(__builtin_convertvector(h, VI), VH);
    VH lower = __builtin_convertvector(__builtin_convertvector(l, VI), VH);
    int16_t *to = work->parts + 2 * line * work->length + i;
    memcpy(to, &upper, sizeof upper);
    memcpy(to + work->length, &lower, sizeof lower);
}

/* What one product of a feature and a part may be, of VL rows: below 2**15 times 2**15. */
INLINE void N(bound)(Scratch *work, int64_t i, VD most)
{
    VI peaks, size = __builtin_convertvector(most, VI);
    memcpy(work->sizes + i, &size, sizeof size);
    memcpy(&peaks, work->peaks + i, sizeof peaks);
    size *= peaks;
    memcpy(work->most + i, &size, sizeof size);
}

/* Residuals of VL rows, clipped and rounded as tacit.engine.quantization.Clipping.apply does. */
INLINE void N(clip)(const Job *job, Scratch *work, int64_t first, int64_t i, int64_t s, VD *r,
                    VD *most)
{
    const Terms *t = &job->terms;
    VD limit = N(all)(t->ceiling[s]) * N(get)(work->inverse + i) - t->allowance;
    limit = VMAX(limit, N(all)(0.0)) * t->shrink;
    VD factor = N(all)(t->multiplier[s]);
    if (!t->separate) {
        VD total = r[0] * r[0];
        for (int64_t k = 1; k < t->outputs; k++)
            total += r[k] * r[k];
        factor = VMIN(limit / VMAX(VSQRT(total), N(all)(TINY)), factor);
    }
    for (int64_t k = 0; k < t->outputs; k++) {
        VD z = r[k] * factor;
        if (t->separate)
            z = VMIN(VMAX(z, -limit), limit);
        N(split)(job, work, first, i, s * t->outputs + k, N(rint)(z), most);
    }
}

INLINE VD N(score)(const Job *job, const Scratch *work, int64_t line, int64_t i)
{
    VI raw;
    memcpy(&raw, work->raw + line * work->length + i, sizeof raw);
    return __builtin_convertvector(raw, VD) * job->terms.unit[line];
}

/* Logistic residuals of so many vectors of rows, of one line. */
INLINE void N(logistic)(const Job *job, const Scratch *work, int64_t i, int64_t line, int64_t k, int many,
                        VD *r)
{
    VD u[SIDE], y[SIDE];
    EACH(y[t] = N(get)(work->targets + k * work->length + i + t * VL))
    EACH(u[t] = -(N(score)(job, work, line, i + t * VL) * y[t]))
    EACH(r[t] = VMIN(u[t], -u[t]))
    N(exp)(r, many);
    EACH(VD top = N(choose)(u[t] < N(all)(0.0), r[t], N(all)(1.0)); r[t] = -(top / (r[t] + 1.0)) * y[t])
}

/* Residuals of VL rows, of one setting. */
INLINE void N(residual)(const Job *job, const Scratch *work, int64_t i, int64_t s, VD *r)
{
    int64_t outputs = job->terms.outputs, length = work->length;
    for (int64_t k = 0; k < outputs; k++)
        if (job->terms.loss == LOGISTIC)
            N(logistic)(job, work, i, s * outputs + k, k, 1, r + k);
        else
            r[k] = N(score)(job, work, s * outputs + k, i);
    if (job->terms.loss == SOFTMAX) {
        VD top = r[0];
        for (int64_t k = 1; k < outputs; k++)
            top = VMAX(top, r[k]);
        int64_t k = 0;
        for (; k < outputs; k++)
            r[k] -= top;
        for (k = 0; k + SIDE <= outputs; k += SIDE)
            N(exp)(r + k, SIDE);
        for (; k < outputs; k++)
            N(exp)(r + k, 1);
        VD total = r[0];
        for (k = 1; k < outputs; k++)
            total += r[k];
        VD each = 1.0 / total, own = N(get)(work->targets + i);
        for (int64_t k = 0; k < outputs; k++)
            r[k] = r[k] * each - (VD)((own == N(all)((double)k)) & (VQ)N(all)(1.0));
    } else if (job->terms.loss == SQUARED) {
        for (int64_t k = 0; k < outputs; k++)
            r[k] -= N(get)(work->targets + k * length + i);
    }
}

/* From scores to parts of multipliers, for all rows of a block. */
static void N(multipliers)(const Job *job, Scratch *work, int64_t first, int64_t count)
{
    VD *r = (VD *)work->residuals;
    int lines = (int)job->lines, simple = job->terms.loss == LOGISTIC && lines == 1;
    for (int64_t i = 0; simple && i < count; i += SIDE * VL) {
        VD side[SIDE];
        N(logistic)(job, work, i, 0, 0, SIDE, side);
        for (int t = 0; t < SIDE; t++) {
            fetch(job, first + work->length + i + t * VL, VL);
            VD most = N(all)(0.0);
            N(clip)(job, work, first, i + t * VL, 0, side + t, &most);
            N(bound)(work, i + t * VL, most);
        }
    }
    for (int64_t i = 0; !simple && i < count; i += VL) {
        fetch(job, first + work->length + i, VL);
        VD most = N(all)(0.0);
        for (int64_t s = 0; s < job->terms.settings; s++) {
            N(residual)(job, work, i, s, r);
            N(clip)(job, work, first, i, s, r, &most);
        }
        N(bound)(work, i, most);
    }
}

/* Of VL people of m rows, residuals (m, outputs), shortened to what a row may count for and then
   together, operation for operation as tacit.engine.people.PersonClipping.apply does. They begin
   at row i of the block; those of one person lie LANES apart. `gram` has their inner products. */
INLINE void N(clip_people)(const Job *job, Scratch *work, int64_t first, int64_t i, int64_t s, int64_t m,
                           VD *r, VD *most, const double *gram)
{
    const Terms *t = &job->terms;
    int64_t outputs = t->outputs, lines = t->separate ? outputs : 1, width = t->separate ? 1 : outputs;
    VD none = N(all)(0.0), ceiling = N(all)(t->ceiling[s]), multiplier = N(all)(t->multiplier[s]);
    VD reach = N(all)(t->loose * t->ceiling[s]), norms = none;
    for (int64_t j = 0; j < m; j++) {
        VD inverse = N(get)(work->inverse + i + j * LANES);
        VD norm = N(choose)(inverse > none, 1.0 / inverse, none);
        norms = j ? norms + norm : norm;
    }
    VD lost = t->allowance * norms;
    VD room = N(choose)(lost <= ceiling / 2.0, ceiling - lost, none) * t->shrink;
    for (int64_t line = 0; line < lines; line++) {
        VD total = none, square = none, *w = r + line;
        for (int64_t j = 0; j < m; j++) {
            VD *own = w + j * outputs, inverse = N(get)(work->inverse + i + j * LANES), size;
            VD norm = N(choose)(inverse > none, 1.0 / inverse, none);
            VD limit = reach * inverse * t->shrink;
            if (t->separate) {
                own[0] = VMIN(VMAX(own[0] * multiplier, -limit), limit);
                size = VMAX(own[0], -own[0]) * norm;
            } else {
                VD length = own[0] * own[0];
                for (int64_t k = 1; k < outputs; k++)
                    length += own[k] * own[k];
                length = VSQRT(length);
                VD factor = VMIN(limit / VMAX(length, N(all)(TINY)), multiplier);
                for (int64_t k = 0; k < outputs; k++)
                    own[k] *= factor;
                size = length * factor * norm;
            }
            total = j ? total + size : size;
            square = j ? square + size * size : size * size;
        }
        const double *inner = gram;
        for (int64_t a = 0; a < m - 1; a++) {
            VD along = none;
            for (int64_t b = a + 1; b < m; b++, inner += t->people) {
                VD *one = w + a * outputs, *other = w + b * outputs, product = one[0] * other[0];
                for (int64_t k = 1; k < width; k++)
                    product += one[k] * other[k];
                along += N(get)(inner) * product;
            }
            square += 2.0 * along;
        }
        VD bound = VSQRT(VMAX(square, none) + t->spread * (total * total));
        VD scale = VMIN(room / VMAX(bound, N(all)(TINY)), N(all)(1.0));
        for (int64_t j = 0; j < m; j++)
            for (int64_t k = 0; k < width; k++) {
                VD z = N(rint)(w[j * outputs + k] * scale);
                N(split)(job, work, first, i + j * LANES, s * outputs + line + k, z, most + j);
            }
    }
}

/* The same as `multipliers` for rows of people, in whole tiles. */
static void N(people)(const Job *job, Scratch *work, int64_t first, int64_t count)
{
    const Terms *t = &job->terms;
    int64_t m = t->many, tile = LANES * m;
    VD *r = (VD *)work->residuals, *most = (VD *)work->tops;
    for (int64_t at = 0; at < count; at += tile)
        for (int64_t v = 0; v < LANES; v += VL) {
            const double *gram = t->gram + t->person + (first + at) / m + v;
            for (int64_t j = 0; j < m; j++) {
                most[j] = N(all)(0.0);
                fetch(job, first + work->length + at + j * LANES + v, VL);
            }
            for (int64_t s = 0; s < t->settings; s++) {
                for (int64_t j = 0; j < m; j++)
                    N(residual)(job, work, at + j * LANES + v, s, r + j * t->outputs);
                N(clip_people)(job, work, first, at + v, s, m, r, most, gram);
            }
            for (int64_t j = 0; j < m; j++)
                N(bound)(work, at + j * LANES + v, most[j]);
        }
}

/* Multipliers that are given, in parts. */
static void N(given)(const Job *job, Scratch *work, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i += VL) {
        VD most = N(all)(0.0);
        for (int64_t k = 0; k < job->lines; k++) {
            VD z = N(all)(0.0);
            const double *from = job->given + k * job->count + first + i;
            if (first + i + VL <= job->count)
                z = N(get)(from);
            else
                for (int lane = 0; first + i + lane < job->count; lane++)
                    z[lane] = from[lane];
            N(split)(job, work, first, i, k, z, &most);
        }
        N(bound)(work, i, most);
    }
}

/* --- Sums ------------------------------------------------------------------------------------- */

INLINE void N(take_in)(int64_t *onto, SUM upper, SUM lower)
{
#if LEVEL == 2
    for (int half = 0; half < 2; half++, onto += 8) {
        __m256i u = half ? _mm512_extracti64x4_epi64(upper, 1) : _mm512_castsi512_si256(upper);
        __m256i l = half ? _mm512_extracti64x4_epi64(lower, 1) : _mm512_castsi512_si256(lower);
        __m512i both = _mm512_add_epi64(_mm512_slli_epi64(_mm512_cvtepi32_epi64(u), LIMB),
                                        _mm512_cvtepi32_epi64(l));
        _mm512_storeu_si512(onto, _mm512_add_epi64(_mm512_loadu_si512(onto), both));
    }
#elif LEVEL == 1
    for (int half = 0; half < 2; half++, onto += 4) {
        __m128i u = half ? _mm256_extracti128_si256(upper, 1) : _mm256_castsi256_si128(upper);
        __m128i l = half ? _mm256_extracti128_si256(lower, 1) : _mm256_castsi256_si128(lower);
        __m256i both = _mm256_add_epi64(_mm256_slli_epi64(_mm256_cvtepi32_epi64(u), LIMB),
                                        _mm256_cvtepi32_epi64(l));
        _mm256_storeu_si256((__m256i *)onto, _mm256_add_epi64(LOAD(onto), both));
    }
#else
    for (int e = 0; e < 4; e++)
        onto[e] += (int64_t)(int32_t)upper[e] * (1 << LIMB) + (int32_t)lower[e];
#endif
}

/* Add pairs of rows, times some lines of multipliers, to sums of COLS columns. Pairs come
   interleaved from `pairs`, or, if that is NULL, from the rows themselves. */
INLINE void N(tile)(const VEC *pairs, const int16_t *const *x, int64_t j, int half, int64_t steps,
                    const int16_t *z, int64_t length, int lines, int64_t *onto, int64_t wide)
{
    SUM sums[MANY][2];
    UNROLL16 for (int l = 0; l < lines; l++)
        sums[l][0] = sums[l][1] = NONE();
    for (int64_t step = 0; step < steps; step++) {
        VEC low, high;
        if (pairs) {
            low = pairs[2 * step];
            high = pairs[2 * step + 1];
        } else {
            VEC a = SOME(x[2 * step] + j, half), b = SOME(x[2 * step + 1] + j, half);
            low = LOW(a, b);
            high = HIGH(a, b);
        }
        UNROLL16 for (int l = 0; l < lines; l++) {
            VEC by = PAIR(z + l * length + 2 * step);
            sums[l][0] = MADD(sums[l][0], low, by);
            sums[l][1] = MADD(sums[l][1], high, by);
        }
    }
    UNROLL16 for (int l = 0; l < lines; l += 2)
        UNROLL for (int h = 0; h < 2; h++)
            N(take_in)(onto + l / 2 * wide + h * COLS / 2, sums[l][h], sums[l + 1][h]);
}

/* Rows of a block times the parts of their multipliers, added to work->sums. */
static void N(sums)(const Job *job, Scratch *work, int64_t count)
{
    int64_t parts = 2 * job->lines, length = work->length, stride = job->stride;
    int few = parts <= 4;
    VEC *pairs = (VEC *)work->pairs;
    int64_t size = 1;
    for (int64_t i = 0; !few && i < count; i++)
        size = size < work->sizes[i] ? work->sizes[i] : size;
    for (int64_t j = 0; j < stride; j += COLS) {
        int half = j + COLS > stride;
        VEC top = {0};
        if (!few)
            for (int64_t i = 0; i < count; i += 2) {
                VEC a = SOME(work->at[i] + j, half), b = SOME(work->at[i + 1] + j, half);
                pairs[i] = LOW(a, b);
                pairs[i + 1] = HIGH(a, b);
                top = UPPER(top, UPPER(SIZE(a), SIZE(b)));
            }
        if (!few) { /* these columns may be smaller than others: fewer cuts */
            uint16_t tops[COLS];
            int64_t peak = 1;
            memcpy(tops, &top, sizeof tops);
            for (int t = 0; t < COLS; t++)
                peak = peak < tops[t] ? tops[t] : peak;
            int64_t rows = (INT32_MAX / (peak * size)) & ~(int64_t)1, chunks = 0;
            for (int64_t i = rows; i < count; i += rows)
                work->cuts[++chunks] = i;
            work->cuts[++chunks] = count;
            work->chunks = chunks;
        }
        for (int64_t k = 0; k < parts; k += few ? parts : MANY) {
            int64_t *onto = work->sums + k / 2 * work->wide + j;
            for (int64_t c = 0; c < work->chunks; c++) {
                int64_t from = work->cuts[c], steps = (work->cuts[c + 1] - from) / 2;
                const int16_t *z = work->parts + k * length + from;
                const int16_t *const *x = work->at + from;
                if (few && parts == 2 && half)
                    N(tile)(NULL, x, j, 1, steps, z, length, 2, onto, work->wide);
                else if (few && parts == 2)
                    N(tile)(NULL, x, j, 0, steps, z, length, 2, onto, work->wide);
                else if (few)
                    N(tile)(NULL, x, j, half, steps, z, length, 4, onto, work->wide);
                else if (parts - k >= MANY)
                    N(tile)(pairs + from, NULL, 0, 0, steps, z, length, MANY, onto, work->wide);
                else { /* the rest, by fours and twos */
                    int64_t l = 0;
                    for (; l + 4 <= parts - k; l += 4)
                        N(tile)(pairs + from, NULL, 0, 0, steps, z + l * length, length, 4,
                                onto + l / 2 * work->wide, work->wide);
                    if (l < parts - k)
                        N(tile)(pairs + from, NULL, 0, 0, steps, z + l * length, length, 2,
                                onto + l / 2 * work->wide, work->wide);
                }
            }
        }
    }
}

/* Sums in the order in which columns were interleaved, added to those of the caller. */
static void N(conclude)(const Job *job, Scratch *work)
{
    for (int64_t k = 0; k < job->lines; k++)
        for (int64_t j = 0; j < job->stride; j += 4) { /* columns j to j + 3 stay together */
            int64_t in = j % COLS, half = in / 4 % 2;
            const int64_t *from = work->sums + k * work->wide + j - in + half * (COLS / 2) + in / 8 * 4;
            for (int t = 0; t < 4; t++)
                job->onto[k * job->reach + j + t] += (uint64_t)from[t];
        }
}

/* --- Shapes ----------------------------------------------------------------------------------- */

/* Both weights of every cell of a shape, added to the scores of a line. */
static void N(look_up)(const Job *job, const Scratch *work, int64_t j, int64_t k, int64_t count)
{
    const int16_t *w = job->weights + k * job->reach + job->stride + job->offsets[j];
    int64_t p = work->planes[j], planes = work->planes[j + 1] - p;
    uint32_t *raw = (uint32_t *)work->raw + k * work->length, places[LANES];
    for (int64_t i = 0; i < count; i += LANES) {
        places_of(job, j, planes, work->cells[i / LANES] + p * LANES, places);
        for (int64_t lane = 0; lane < LANES; lane++) {
            uint32_t upper;
            const int16_t *two = w + weight_at(job, j, places[lane], &upper);
            raw[i + lane] += ((uint32_t)job->one - upper) * (uint32_t)two[0] + upper * (uint32_t)two[1];
        }
    }
}

#if LEVEL
/* Pairs of neighbouring weights, out of a table of up to TABLE, for a vector of places. */
INLINE VEC N(pairs_of)(const int32_t *table, VEC at, int64_t width)
{
#if LEVEL == 2
    if (width > 16)
        return _mm512_permutex2var_epi32(LOAD(table), at, LOAD(table + 16));
    return _mm512_permutexvar_epi32(at, LOAD(table));
#else
#define EIGHT(from) ((__m256)_mm256_permutevar8x32_epi32(LOAD(from), at))
#define WHERE(bit) ((__m256)_mm256_slli_epi32(at, 31 - bit))
    __m256 found = EIGHT(table);
    if (width > 8)
        found = _mm256_blendv_ps(found, EIGHT(table + 8), WHERE(3));
    if (width > 16) {
        __m256 above = _mm256_blendv_ps(EIGHT(table + 16), EIGHT(table + 24), WHERE(3));
        found = _mm256_blendv_ps(found, above, WHERE(4));
    }
    return (VEC)found;
#undef EIGHT
#undef WHERE
#endif
}

/* The same for the cells of SIDE * COLS rows in a shape, and some lines: a cell becomes its two numbers
   side by side, and its weight's place twice. */
INLINE void N(permute)(const Job *job, const Scratch *work, const uint16_t *const *cells, int64_t j,
                       const int32_t *table, int lines, int64_t width, SUM (*sums)[FEW])
{
    const VS one = (uint16_t)job->one - (VS){0};
    UNROLL for (int t = 0; t < SIDE; t++, cells += COLS / LANES) {
        int64_t p = work->planes[j] * LANES;
        VS place = (VS)TURNED(TILES(cells, p)), at = place >> job->bits;
        while ((p += LANES) < work->planes[j + 1] * LANES) {
            VS more = (VS)TURNED(TILES(cells, p));
            at += more >> job->bits;
            place |= more; /* of which one at most has a fraction */
        }
        VS upper = place & (one - 1);
        VEC lower = (VEC)(one - upper);
        VEC both[2] = {LOW(lower, (VEC)upper), HIGH(lower, (VEC)upper)};
        VEC where[2] = {LOW((VEC)at, (VEC)at), HIGH((VEC)at, (VEC)at)};
        UNROLL for (int l = 0; l < lines; l++)
            UNROLL for (int v = 0; v < 2; v++) {
                VEC pairs = N(pairs_of)(table + l * job->shapes * TABLE, where[v], width);
                ONTO(sums[2 * t + v][l], both[v], pairs);
            }
    }
}

/* Of all shapes whose pairs of weights fit a table; `some` halves of vectors of rows are there. */
INLINE void N(tables)(const Job *job, const Scratch *work, int64_t i, int64_t k, int lines, int some)
{
    const int32_t *table = work->tables + k * job->shapes * TABLE;
    const uint16_t *const *cells = work->cells + i / LANES;
    SUM sums[2 * SIDE][FEW];
    UNROLL for (int v = 0; v < 2 * SIDE; v++)
        UNROLL for (int l = 0; l < lines; l++)
            sums[v][l] = NONE();
    for (int64_t j = 0; j < job->shapes; j++, table += TABLE) {
        int64_t width = job->offsets[j + 1] - job->offsets[j];
        UNROLL for (int t = 0; t < SIDE * COLS / LANES; t++)
            __builtin_prefetch(cells[t] + (work->planes[j] + SOON * job->planes) * LANES);
        if (width <= 8)
            N(permute)(job, work, cells, j, table, lines, 8, sums);
        else if (width <= 16)
            N(permute)(job, work, cells, j, table, lines, 16, sums);
        else if (width <= TABLE)
            N(permute)(job, work, cells, j, table, lines, TABLE, sums);
    }
    UNROLL for (int l = 0; l < lines; l++)
        for (int v = 0; v < some; v++) {
            VW *to = (VW *)(void *)(work->raw + (k + l) * work->length + i + v * COLS / 2), sum;
            memcpy(&sum, to, sizeof sum);
            sum += (VW)sums[v][l];
            memcpy(to, &sum, sizeof sum);
        }
}
#endif

static void N(shape_scores)(const Job *job, Scratch *work, int64_t count)
{
    int64_t length = work->length, lines = job->lines;
    for (int64_t k = 0; k < lines; k++)
        for (int64_t i = 0; i < count; i++)
            work->raw[k * length + i] = (int32_t)((uint32_t)work->raw[k * length + i] + (uint32_t)job->base[k]);
#if LEVEL
    for (int64_t i = 0; i < count; i += SIDE * COLS) {
        int64_t k = 0, left = (count - i) / (COLS / 2);
        int some = left < 2 * SIDE ? (int)left : 2 * SIDE;
        for (; k + FEW <= lines; k += FEW)
            N(tables)(job, work, i, k, FEW, some);
        for (; k < lines; k++)
            N(tables)(job, work, i, k, 1, some);
    }
#endif
    for (int64_t j = 0; j < job->shapes; j++)
        for (int64_t k = 0; k < lines; k++) {
#if LEVEL
            if (job->offsets[j + 1] - job->offsets[j] <= TABLE)
                continue;
#endif
            N(look_up)(job, work, j, k, count);
        }
}

#if LEVEL
/* Of `bins` neighbouring weights of a shape: what COLS rows have beyond each of them, at most `one`,
   times the parts of some lines of multipliers, so many times as 32-bit sums allow. A row meets a
   weight with what it has beyond the one before, less what it has beyond that weight. */
INLINE void N(spread)(const Job *job, const uint16_t *const *cells, int64_t p, int64_t first, int bins,
                      const int16_t *z, int64_t length, int lines, int64_t steps, int64_t count,
                      uint64_t *onto)
{
    const VEC one = (VEC)((uint16_t)job->one - (VS){0}), from = (VEC)((uint16_t)(first * job->one) - (VS){0});
    for (int64_t i = 0; i < count;) {
        int64_t stop = i + COLS * steps < count ? i + COLS * steps : count;
        SUM sums[BINS][2];
        UNROLL16 for (int b = 0; b < bins * lines; b++)
            sums[b][0] = sums[b][1] = NONE();
        for (; i < stop; i += COLS) {
            VEC place = LESS(TILES(cells + i / LANES, p), from), h[4], s[4];
            UNROLL for (int l = 0; l < lines; l++) {
                h[l] = SOME(z + 2 * l * length + i, i + COLS > count);
                s[l] = SOME(z + (2 * l + 1) * length + i, i + COLS > count);
            }
            UNROLL16 for (int b = 0; b < bins; b++) {
                VEC x = LEAST(place, one);
                place = LESS(place, one);
                UNROLL for (int l = 0; l < lines; l++) {
                    ONTO(sums[l * bins + b][0], x, h[l]);
                    ONTO(sums[l * bins + b][1], x, s[l]);
                }
            }
        }
        UNROLL16 for (int b = 0; b < bins * lines; b++) {
            VX h = (VX)((VY)sums[b][0] << 32) >> 32, s = (VX)((VY)sums[b][1] << 32) >> 32;
            h += (VX)sums[b][0] >> 32; /* in 64 bits, from 32 below and above */
            s += (VX)sums[b][1] >> 32;
            VX both = h * (1 << LIMB) + s;
            sums[b][0] = (SUM)both;
        }
        UNROLL16 for (int b = 0; b < bins * lines; b++) {
            uint64_t total = (uint64_t)TOTAL(sums[b][0]), *two = onto + b / bins * job->reach + b % bins;
            two[1] += total;
            two[0] -= total;
        }
    }
}
#endif

/* Cells of a block times the parts of their multipliers. */
static void N(shape_sums)(const Job *job, Scratch *work, int64_t count)
{
    int64_t length = work->length, lines = job->lines;
    const uint16_t *const *cells = work->cells;
    uint32_t places[LANES];
#if LEVEL
    int64_t most = 1;
    for (int64_t i = 0; i < count; i++)
        most = most < work->most[i] ? work->most[i] : most;
    int64_t steps = INT32_MAX / most / 2; /* of COLS rows, two of which meet in a sum */
    steps = steps < 1 ? 1 : steps;
#endif
    for (int64_t j = 0; j < job->shapes; j++) {
        int64_t width = job->offsets[j + 1] - job->offsets[j], k = 0, p = work->planes[j];
        int64_t planes = work->planes[j + 1] - p;
        uint64_t *sums = job->onto + job->stride + job->offsets[j];
#if LEVEL
        int64_t each = (width - 1 + planes - 1) / planes; /* weights of a plane */
#define SPREAD(bins, some) N(spread)(job, cells, q * LANES, first, bins, z, length, some, steps, count, onto)
        for (int some = 1; width - 1 <= WIDE && k < lines; k += some) {
            const int16_t *z = work->parts + 2 * k * length;
            uint64_t *onto = sums + k * job->reach;
            some = LEVEL == 2 && lines - k >= 4 ? 4 : 1;
            for (int64_t q = p, left = width - 1; q < p + planes; q++)
                for (int64_t first = 0, bins; first < each && left > 0; first += bins, left -= bins, onto += bins) {
                    int64_t here = each - first < left ? each - first : left;
#if LEVEL == 2
                    bins = some == 4 || here <= 3 ? 3 : here <= 6 ? 6 : 12;
                    if (bins == 12)
                        SPREAD(12, 1);
                    else if (bins == 6)
                        SPREAD(6, 1);
                    else if (some == 4)
                        SPREAD(3, 4);
#else
                    bins = here == 4 || here > 6 ? 4 : 3;
                    if (bins == 4)
                        SPREAD(4, 1);
#endif
                    else
                        SPREAD(3, 1);
                    bins = bins < here ? bins : here;
                }
        }
#undef SPREAD
#endif
        /* of every weight, those z of the cells that meet it, and z times their fractions */
        for (; k < lines; k++) {
            const int16_t *h = work->parts + 2 * k * length, *s = h + length;
            uint64_t *bins = memset(work->bins, 0, sizeof(*bins) * (size_t)(2 * width)), *onto = sums + k * job->reach;
            for (int64_t i = 0; i < count; i++) {
                uint32_t upper;
                if (i % LANES == 0)
                    places_of(job, j, planes, cells[i / LANES] + p * LANES, places);
                uint64_t by = (uint64_t)((int64_t)h[i] * (1 << LIMB) + s[i]);
                uint64_t *two = bins + 2 * weight_at(job, j, places[i % LANES], &upper);
                two[0] += by;
                two[1] += by * upper;
            }
            for (int64_t e = 0; e < width; e++) {
                onto[e] += (uint64_t)job->one * bins[2 * e] - bins[2 * e + 1];
                onto[e + 1] += bins[2 * e + 1];
            }
        }
        for (k = 0; k < lines; k++) /* of a gap */
            sums[k * job->reach] = 0;
    }
}

/* --- Rounding --------------------------------------------------------------------------------- */

/* As tacit.engine.quantization.Scale.integers: VL numbers less a shift, clamped, to the nearest
   integer. Where they are not finite, `wrong` is not zero. */
INLINE void N(round)(VD x, VD shift, double per_unit, int16_t *to, VD *wrong)
{
    x -= shift;
    *wrong = (VD)((VQ)*wrong | (VQ)(x - x)); /* a quiet NaN, or zero */
    x = VMAX(VMIN(x * per_unit, N(all)(32767.0)), N(all)(-32767.0));
    VH found = __builtin_convertvector(__builtin_convertvector(N(rint)(x), VI), VH);
    memcpy(to, &found, sizeof found);
}

/* `count` numbers: whole vectors, the last of which begins early enough. `each` is 0 for one shift. */
#define ROUNDED(name, kind)                                                                       \
    static int N(name)(const kind *from, const double *shift, int64_t each, double per_unit,      \
                       int64_t count, int16_t *to)                                                \
    {                                                                                             \
        VD wrong = N(all)(0.0);                                                                   \
        typedef kind VK __attribute__((vector_size(sizeof(kind) * VL)));                          \
        for (int64_t j = 0; j < count; j += VL) {                                                 \
            int64_t at = j + VL <= count ? j : count < VL ? j : count - VL;                       \
            VK some = {0};                                                                        \
            VD by = N(all)(*shift);                                                               \
            int16_t found[VL];                                                                    \
            int64_t many = count - at < VL ? count - at : VL;                                     \
            if (many == VL) {                                                                     \
                memcpy(&some, from + at, sizeof some);                                            \
                if (each)                                                                         \
                    by = N(get)(shift + at);                                                      \
                N(round)(__builtin_convertvector(some, VD), by, per_unit, to + at, &wrong);       \
                continue;                                                                         \
            }                                                                                     \
            for (int64_t t = 0; t < many; t++) {                                                  \
                some[t] = from[at + t];                                                           \
                by[t] = shift[(at + t) * each];                                                   \
            }                                                                                     \
            N(round)(__builtin_convertvector(some, VD), by, per_unit, found, &wrong);             \
            memcpy(to + at, found, sizeof(*to) * (size_t)many);                                   \
        }                                                                                         \
        for (int t = 0; t < VL; t++)                                                              \
            if (wrong[t] != wrong[t])                                                             \
                return 1;                                                                         \
        return 0;                                                                                 \
    }
ROUNDED(round_doubles, double)
ROUNDED(round_singles, float)
#undef ROUNDED

static void N(measure)(const int16_t *row, int64_t stride, double *square, uint16_t *peak)
{
    int64_t total = 0;
    int most = 0;
    for (int64_t j = 0; j < stride; j++) {
        int x = row[j], size = x < 0 ? -x : x;
        total += (int64_t)(x * x);
        most = most > size ? most : size;
    }
    *square = (double)total;
    *peak = (uint16_t)most;
}

static const Loops N(loops) = {N(scores), N(multipliers), N(people), N(given),         N(sums),
                               N(conclude), N(shape_scores), N(shape_sums),
                               N(round_doubles), N(round_singles), N(measure)};

#undef N
#undef COLS
#undef VL
#undef FEW
#undef MANY
#undef BINS
#undef VEC
#undef SUM
#undef NONE
#undef LOAD
#undef SOME
#undef MADD
#undef LOW
#undef HIGH
#undef SIZE
#undef LEAST
#undef LESS
#undef CELLS
#undef TILES
#undef TURNED
#undef ONTO
#undef UPPER
#undef PAIR
#undef FOLD
#undef TOTAL
#undef VMAX
#undef VMIN
#undef VSQRT
#undef ABOVE
#undef VD
#undef VQ
#undef VI
#undef VH
#undef VS
#undef VW
#undef VX
#undef VY
#undef EACH
