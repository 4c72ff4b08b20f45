/* Attempts of the discrete Gaussian (tacit.mechanisms.discrete_gaussian says which), and normals.

   The decisions are those of the long numbers wherever leading bits and single precision settle
   them; at an attempt that they leave open the loop stops, and the caller decides. So integers are
   the same whatever the processor and the compiler make of the arithmetic below. */

enum { TILE = 256, COLUMNS = 512, F_BITS = 27, V_BITS = 28, SINGLE = 24 };
enum { DROPPED, KEPT, OPEN };

typedef struct {
    const int32_t *columns; /* leading bits of the threshold, and the alias, of each column */
    int shift;              /* log2 of M */
    float half;             /* M²/2σ², at most 1/512 */
    int32_t near;           /* how near to the threshold an attempt is open, */
    float margin;           /* and to the probability, in units of 2^-28 */
} Gaussian;

/* exp(-4z) for z from 0 to 0.51, in single precision. Seven terms of the series around 1/4 err by
   2^-26 in relative terms, and roundings by less than 2^-22; two squarings make four times that:
   less than 2^-20 in all, where a margin of 2^-17 is left. */
INLINE float exp_minus_four(float z)
{
    float w = 0.25f - z, e = 1.0f / 720;
    e = e * w + 1.0f / 120;
    e = e * w + 1.0f / 24;
    e = e * w + 1.0f / 6;
    e = e * w + 0.5f;
    e = e * w + 1.0f;
    e = e * w + 1.0f;
    e *= 0.77880078307f; /* exp(-1/4) */
    e *= e;
    return e * e;
}

/* What becomes of n attempts, two words each. Of y, the 24 leading bits count: less than 2^-22 in
   the exponent. */
INLINE void judge(const uint64_t *restrict words, int n, const Gaussian *restrict g,
                  int64_t *restrict x, int32_t *restrict fate)
{
    int32_t column[TILE], leading[TILE], alias[TILE], f[TILE], v[TILE], t[TILE];
    int64_t y[TILE];
    const int32_t *restrict columns = g->columns, near = g->near;
    const int shift = g->shift, cut = shift > SINGLE ? shift - SINGLE : 0;
    const int64_t mask = ((int64_t)1 << shift) - 1;
    const float unit = 1.0f / (float)((int64_t)1 << (shift - cut)), quarter = g->half / 4;
    const float margin = g->margin;
    const int32_t certain = !shift; /* y = 0 */
    for (int j = 0; j < n; j++) {
        uint64_t first = words[2 * j];
        column[j] = (int32_t)(first >> (F_BITS + V_BITS));
        f[j] = (int32_t)(first >> V_BITS & ((1 << F_BITS) - 1));
        v[j] = (int32_t)(first & ((1 << V_BITS) - 1));
        y[j] = (int64_t)words[2 * j + 1] & mask;
        t[j] = (int32_t)(y[j] >> cut);
    }
    for (int j = 0; j < n; j++) {
        leading[j] = columns[2 * column[j]];
        alias[j] = columns[2 * column[j] + 1];
    }
    for (int j = 0; j < n; j++) { /* without branches */
        int32_t room = leading[j] - f[j], below = -(room > 0);
        int32_t k = alias[j] ^ ((alias[j] ^ column[j]) & below);
        float part = (float)t[j] * unit;
        float p = exp_minus_four(part * (part + (float)(2 * k)) * quarter);
        float over = p * (float)(1 << V_BITS) - (float)v[j];
        int32_t sure = (over > margin) | certain, perhaps = (over > -margin) | certain;
        int32_t open = -((room <= near) & (-room <= near));
        fate[j] = (OPEN & open) | ((2 * perhaps - sure) & ~open); /* KEPT if sure, OPEN if perhaps */
        column[j] = k;
    }
    for (int j = 0; j < n; j++) {
        int64_t sign = (int64_t)words[2 * j + 1] >> 63, whole = (int64_t)column[j] << shift | y[j];
        x[j] = (whole ^ sign) - sign;
        fate[j] = fate[j] == KEPT && !whole && sign ? DROPPED : fate[j]; /* minus zero */
    }
}

/* Draws from attempts, until there are enough, or no attempts, or one is open. How many draws; the
   attempts that are settled are counted in `used`. */
INLINE int64_t draws(const uint64_t *words, int64_t n, const Gaussian *g, int64_t *out,
                     int64_t wanted, int64_t *used)
{
    int64_t x[TILE], found = 0;
    int32_t fate[TILE];
    for (int64_t i = 0; i < n; i += TILE) {
        int some = n - i < TILE ? (int)(n - i) : TILE, open = 0;
        judge(words + 2 * i, some, g, x, fate);
        for (int j = 0; j < some; j++)
            open |= fate[j] == OPEN;
        if (!open && wanted - found >= some) {
            for (int j = 0; j < some; j++) {
                out[found] = x[j]; /* in the last place there is, at worst, and overwritten */
                found += fate[j] == KEPT;
            }
            continue;
        }
        for (int j = 0; j < some; j++) {
            if (found == wanted || fate[j] == OPEN) {
                *used = i + j;
                return found;
            }
            if (fate[j] == KEPT)
                out[found++] = x[j];
        }
    }
    *used = n;
    return found;
}

/* Natural logarithm of a number in (0, 1), to some 2^-28 in relative terms: 2 artanh(s) of
   s = (m - 1)/(m + 1), with m from √½ to √2. */
INLINE double logarithm(double u)
{
    union { double number; int64_t bits; } m = {u};
    int64_t exponent = (m.bits - 0x3FE6A09E667F3BCDll) >> 52;
    m.bits -= exponent * ((int64_t)1 << 52);
    double s = (m.number - 1.0) / (m.number + 1.0), q = s * s;
    double sum = 1.0 / 11;
    sum = sum * q + 1.0 / 9;
    sum = sum * q + 1.0 / 7;
    sum = sum * q + 1.0 / 5;
    sum = sum * q + 1.0 / 3;
    return 2.0 * s * (1.0 + sum * q) + (double)(int32_t)exponent * 0.69314718055994531;
}

/* Two normals from two words each (Box & Muller 1958), right in single precision: the radius of
   53 bits of the first, and the angle of 24 bits of the second. */
INLINE void pairs(const uint64_t *first, const uint64_t *second, int64_t n, double *one,
                  double *other)
{
    for (int64_t j = 0; j < n; j++) {
        double u = ((double)(int64_t)(first[j] >> 11) + 0.5) * 0x1p-53;
        float radius = (float)__builtin_sqrt(-2.0 * logarithm(u));
        /* A turn is four quarters, and an angle w of at most an eighth beside one of them. */
        int32_t angle = (int32_t)(second[j] >> 40), quarter = (angle + (1 << 21)) >> 22;
        float w = (float)(angle - (quarter << 22)) * (float)(6.283185307179586 * 0x1p-24);
        float q = w * w;
        float sine = q * (1.0f / 120 + q * (-1.0f / 5040 + q * (1.0f / 362880)));
        float cosine = q * (1.0f / 24 + q * (-1.0f / 720 + q * (1.0f / 40320)));
        sine = w + w * q * (-1.0f / 6 + sine);
        cosine = 1.0f + q * (-0.5f + cosine);
        float across = quarter & 1 ? sine : cosine, up = quarter & 1 ? cosine : sine;
        across = (quarter + 1) & 2 ? -across : across;
        up = quarter & 2 ? -up : up;
        one[j] = (double)(radius * across);
        other[j] = (double)(radius * up);
    }
}

/* The same for processors of several kinds; `level` says which, from the plainest on. */
#define AT_ALL_LEVELS(TARGET, NAME)                                                                        \
    TARGET static int64_t draws_##NAME(const uint64_t *words, int64_t n, const Gaussian *g,        \
                                       int64_t *out, int64_t wanted, int64_t *used)                \
    {                                                                                              \
        return draws(words, n, g, out, wanted, used);                                              \
    }                                                                                              \
    TARGET static void pairs_##NAME(const uint64_t *first, const uint64_t *second, int64_t n,      \
                                    double *one, double *other)                                    \
    {                                                                                              \
        pairs(first, second, n, one, other);                                                       \
    }

AT_ALL_LEVELS(, plain)
#if defined(__x86_64__)
AT_ALL_LEVELS(__attribute__((target("avx2"))), avx2)
AT_ALL_LEVELS(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512"))), avx512)
#define AT_LEVEL(NAME) (level == 2 ? NAME##_avx512 : level == 1 ? NAME##_avx2 : NAME##_plain)

static int levels(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2"))
        return 1;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
               ? 3
               : 2;
}
#else
#define AT_LEVEL(NAME) NAME##_plain
static int levels(void) { return 1; }
#endif
