/* The loops for any processor, compiled for another one and run in an emulator: `make neon`.

   Prints a checksum of scores, sums and rounded rows of pseudo-random operands; the same program,
   compiled for the machine at hand, must print the same. Python's interface is left out. */

#define NO_PYTHON
#include "../../src/tacit/engine/kernels/native.c"
#include <stdio.h>

static uint64_t state = 1;

static int64_t number(int64_t most) /* from -most to most */
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 20) % (uint64_t)(2 * most + 1)) - most;
}

static uint64_t mixed(uint64_t sum, const void *from, size_t bytes)
{
    for (const unsigned char *at = from; bytes; bytes--, at++)
        sum = (sum ^ *at) * 1099511628211u;
    return sum;
}

static uint64_t tried(const Loops *loops, int64_t n, int64_t stride, int64_t lines, int64_t shapes,
                      int loss)
{
    int64_t ends[63] = {0}, tiles = (n + LANES - 1) / LANES;
    for (int64_t j = 0; j < shapes; j++)
        ends[j + 1] = ends[j] + 2 + j * 7 % 60;
    int64_t reach = stride + (shapes ? (ends[shapes] + SPARE + 15) & ~(int64_t)15 : 0);
    int16_t *rows = calloc((size_t)(n * stride), 2), *weights = calloc((size_t)(lines * reach), 2);
    uint16_t *peaks = calloc((size_t)n, 2);
    Job job = {.rows = rows, .n = n, .stride = stride, .count = n, .peaks = peaks, .weights = weights,
               .lines = lines, .reach = reach, .shapes = shapes, .one = 4096, .bits = 12, .offsets = ends};
    for (int64_t j = 0; j < shapes; j++)
        job.planes += planes_of(&job, j);
    uint16_t *cells = calloc((size_t)(tiles * job.planes * LANES + 1), 2);
    int32_t *scores = calloc((size_t)(lines * n), 4), base[63] = {0};
    double *inverse = calloc((size_t)n, 8), *targets = calloc((size_t)(n * lines), 8), unit[63];
    double ceiling = 0x1p39, multiplier = 0x1p24;
    int64_t *classes = calloc((size_t)n, 8);
    uint64_t *onto = calloc((size_t)(lines * reach), 8), sum = 14695981039346656037u;
    for (int64_t i = 0; i < n * stride; i++)
        rows[i] = (int16_t)number(i % 3 ? 900 : 9);
    for (int64_t i = 0; i < lines * reach; i++)
        weights[i] = (int16_t)number(1500);
    for (int64_t i = 0; i < n; i++) {
        peaks[i] = 4096;
        inverse[i] = 1.0 / (double)(1 + (number(9000) & 0xffff));
        classes[i] = (number(1 << 20) & 0xffff) % lines;
        for (int64_t k = 0; k < lines; k++)
            targets[i * lines + k] = number(1 << 20) > 0 ? 1.0 : -1.0;
    }
    for (int64_t t = 0, p = 0; t < tiles; t++)
        for (int64_t j = 0; j < shapes; p += planes_of(&job, j++))
            for (int64_t lane = 0; lane < LANES; lane++) {
                int64_t width = ends[j + 1] - ends[j] - 1, planes = planes_of(&job, j);
                int64_t place = (number(1 << 28) & INT32_MAX) % (width * 4096 + 1), each = (width + planes - 1) / planes;
                for (int64_t q = 0; q < planes && width <= WIDE; q++) {
                    int64_t most = each * 4096, left = place - q * most;
                    cells[(p + q) * LANES + lane] = (uint16_t)(left < 0 ? 0 : left < most ? left : most);
                }
                if (width > WIDE) {
                    cells[p * LANES + lane] = (uint16_t)(place >> 12);
                    cells[(p + 1) * LANES + lane] = (uint16_t)(place & 4095);
                }
            }
    for (int64_t k = 0; k < lines; k++) {
        unit[k] = 0x1p-20;
        base[k] = (int32_t)number(1 << 30);
    }
    job.onto = onto;
    if (shapes) {
        job.cells = cells;
        job.base = base;
    }
    job.terms = (Terms){.loss = loss, .separate = lines == 1, .settings = 1, .outputs = lines,
                        .unit = unit, .ceiling = &ceiling, .multiplier = &multiplier, .allowance = 0.5,
                        .shrink = 1.0, .inverse = inverse, .targets = loss == SOFTMAX ? (void *)classes : targets};
    Scratch work;
    for (int kind = SCORES; kind <= STEP; kind += 2) {
        void *memory = scratch_for(&job, &work);
        run(loops, &job, &work, (Kind)kind, scores);
        free(memory);
    }
    sum = mixed(mixed(sum, scores, (size_t)(lines * n) * 4), onto, (size_t)(lines * reach) * 8);
    double shift[2] = {0.25, -3.0}, square, many[40];
    for (int i = 0; i < 40; i++)
        many[i] = (double)number(1 << 20) / 77.0;
    loops->round_doubles(many, shift, 0, 3.0, 37, rows);
    loops->measure(rows, 16, &square, peaks);
    sum = mixed(mixed(sum, rows, 37 * 2), &square, 8);
    void *all[] = {rows, weights, peaks, cells, scores, inverse, targets, classes, onto};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return sum;
}

int main(void)
{
    for (int level = 0; level < LEVELS; level++) {
        const Loops *loops = loops_of(level);
        uint64_t sum = 0;
        state = 1;
        for (int loss = LOGISTIC; loops && loss <= SQUARED; loss++)
            for (int64_t lines = 1; lines < 12; lines += 5)
                for (int64_t shapes = 0; shapes < 22; shapes += 7)
                    sum = sum * 31 + tried(loops, 333, 48, lines, shapes, loss);
        if (loops)
            printf("%016llx\n", (unsigned long long)sum);
    }
    return 0;
}
