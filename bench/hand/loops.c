// loops.c: what `make bench` holds generated kernels against: the same work as a careful person
// writes it for one machine and one problem. No part of the bench program: it is compiled when the
// bench runs, behind the rows of math.def, by the compiler and with the options that kernels get, so
// that the two differ in nothing but their text. Sums run in lanes, which is how a loop of floats
// vectorizes without -ffast-math.
//
// N rows, C columns
enum { LANES = 32, STRIP = 512 };

static float fold_sum(float *restrict lane)
{
    for (int n = LANES / 2; n > 0; n /= 2)
        for (int j = 0; j < n; j++) lane[j] += lane[j + n];
    return lane[0];
}

static float sum_of(const float *restrict x, long long n)
{
    float     lane[LANES] = { 0 };
    long long i           = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += x[i + j];
    for (int j = 0; i + j < n; j++) lane[j] += x[i + j];
    return fold_sum(lane);
}

static float max_of(const float *restrict x, long long n)
{
    float     lane[LANES], m;
    long long i = 0;
    for (int j = 0; j < LANES; j++) lane[j] = x[0];
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    m = lane[0];
    for (int j = 1; j < LANES; j++) m = lane[j] > m ? lane[j] : m;
    for (; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}

// y = exp(x - m); the sum of y. By strips, which are summed while they are near.
static float exp_of(float *restrict y, const float *restrict x, float m, long long n)
{
    float sum = 0;
    for (long long at = 0; at < n; at += STRIP) {
        long long strip = n - at < STRIP ? n - at : STRIP;
        for (long long j = 0; j < strip; j++) y[at + j] = m_exp_f(x[at + j] - m);
        sum += sum_of(y + at, strip);
    }
    return sum;
}

static void scale(float *restrict y, float by, long long n)
{
    for (long long j = 0; j < n; j++) y[j] *= by;
}

// ---- the loops

static void chain(float *restrict y, const float *restrict x, long long n)
{
    for (long long i = 0; i < n; i++) {
        float v = x[i] * 1.5f + 0.25f;
        v       = (v > 0 ? v : 0) * 0.5f;
        y[i]    = (v * v - 0.125f) * 0.75f + 1;
    }
}

// Eight maps in a row, x to y; the rows have one element.
void hand_chain(const hand_job *h, long long from, long long to)
{
    chain(h->y + from, h->x + from, to - from);
}

// x to y.
void hand_softmax(const hand_job *h, long long from, long long to)
{
    for (long long r = from; r < to; r++) {
        const float *x = h->x + r * h->C;
        float       *y = h->y + r * h->C;
        scale(y, 1 / exp_of(y, x, max_of(x, h->C), h->C), h->C);
    }
}

// x and target to dx, the gradient of the mean loss, and the sum of the rows' losses.
void hand_cross_entropy(const hand_job *h, long long from, long long to)
{
    double loss = 0;
    float  one  = 1 / (float)h->N;
    for (long long r = from; r < to; r++) {
        const float *x   = h->x + r * h->C;
        float       *dx  = h->dx + r * h->C;
        float        m   = max_of(x, h->C);
        float        sum = exp_of(dx, x, m, h->C);
        loss += m_log_f(sum) + m - x[h->target[r]];
        scale(dx, one / sum, h->C);
        dx[h->target[r]] -= one;
    }
    *h->loss = loss;
}

static float squares_of(const float *restrict x, float mean, long long n)
{
    float     lane[LANES] = { 0 };
    long long i           = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += (x[i + j] - mean) * (x[i + j] - mean);
    for (int j = 0; i + j < n; j++) lane[j] += (x[i + j] - mean) * (x[i + j] - mean);
    return fold_sum(lane);
}

// What a row of layer_norm needs beside its arrays.
typedef struct {
    float mean, rstd;  // of x
    float g, gh;       // means of gy w, and of that times the normalized x
} norm_row;

static void norm_sums(norm_row *n, const float *restrict x, const float *restrict gy,
                      const float *restrict w, long long C)
{
    float     g[LANES] = { 0 }, gh[LANES] = { 0 };
    float     mean = n->mean, rstd = n->rstd;
    long long i = 0;
    for (; i + LANES <= C; i += LANES)
        for (int j = 0; j < LANES; j++) {
            float gw = gy[i + j] * w[i + j];
            g[j] += gw;
            gh[j] += gw * ((x[i + j] - mean) * rstd);
        }
    for (; i < C; i++) {
        float gw = gy[i] * w[i];
        g[0] += gw;
        gh[0] += gw * ((x[i] - mean) * rstd);
    }
    n->g  = fold_sum(g) / (float)C;
    n->gh = fold_sum(gh) / (float)C;
}

static void norm_store(const norm_row n, float *restrict y, float *restrict dx, float *restrict dw,
                       float *restrict db, const float *restrict x, const float *restrict gy,
                       const float *restrict w, const float *restrict b, long long C)
{
    for (long long i = 0; i < C; i++) {
        float hat = (x[i] - n.mean) * n.rstd;
        y[i]      = hat * w[i] + b[i];
        dx[i]     = (gy[i] * w[i] - n.g - hat * n.gh) * n.rstd;
        dw[i] += gy[i] * hat;
        db[i] += gy[i];
    }
}

// x, gy, w and b to y, dx, dw and db.
void hand_layer_norm(const hand_job *h, long long from, long long to)
{
    long long C = h->C;
    for (long long i = 0; i < C; i++) h->dw[i] = h->db[i] = 0;
    for (long long r = from; r < to; r++) {
        const float *x = h->x + r * C, *gy = h->gy + r * C;
        norm_row     n = { .mean = sum_of(x, C) / (float)C };
        n.rstd         = 1 / m_sqrt_f(squares_of(x, n.mean, C) / (float)C + 1e-5f);
        norm_sums(&n, x, gy, h->w, C);
        norm_store(n, h->y + r * C, h->dx + r * C, h->dw, h->db, x, gy, h->w, h->b, C);
    }
}
