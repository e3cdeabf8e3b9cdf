// The kernels of attention, as text; cl_text.c says what is compiled before it. XT is the dtype of the
// elements, YT that of the mask.
//
// A group of 64 serves one query, or one key. Its items first make the weights of 64 keys (queries)
// side by side, in local memory, and then each its own elements of the result, 8 at a time, from
// those in order. The scores of a query are not kept: softmax is corrected as the largest so far
// grows, and the gradient computes them again.
#include "device/opencl/opencl.h"

#define CL(...) #__VA_ARGS__ "\n"

// clang-format off

const char *const tni_cl_text_attention[] = {
    "#define x_put(v) CAT(put_, XT)((x_sum)(v))\n",
    // Strides of (B, T or S, H, D or E), of the mask (B, H, T, S). to: where the result begins;
    // masked: 1 by bools, 2 by numbers.
    CL(typedef struct { long at; long step[4]; } strides;
       typedef struct { strides q; strides k; strides v; strides m; strides g; long H; long T; long S;
                        long D; long E; long to; long to_k; long to_v; int masked; int causal; } looks;
       M_FN long row_at(const strides *s, long b, long row, long h) {
           return s->at + b * s->step[0] + row * s->step[1] + h * s->step[2];
       }
       M_FN x_sum dot_of(global const x_kept *a, long a_at, long a_step, global const x_kept *b,
                         long b_at, long b_step, long n) {
           x_sum sum = 0;
           for (long d = 0; d < n; d++)
               sum += (x_sum)x_get(a[a_at + d * a_step]) * (x_sum)x_get(b[b_at + d * b_step]);
           return sum;
       }),
    // The score of key j for query i, -inf where it is not seen.
    CL(M_FN x_sum score(global const x_kept *q, global const x_kept *k, global const y_kept *m,
                        const looks *o, x_sum scale, long b, long h, long i, long j) {
           if (j >= o->S || i >= o->T || (o->causal && j > i)) return -INFINITY;
           x_sum s = scale * dot_of(q, row_at(&o->q, b, i, h), o->q.step[3],
                                    k, row_at(&o->k, b, j, h), o->k.step[3], o->D);
           if (!o->masked) return s;
           y_type by = y_get(m[row_at(&o->m, b, h, i) + j * o->m.step[3]]);
           return o->masked == 2 ? s + (x_sum)by : by != 0 ? s : -INFINITY;
       }
       // What the gradient g of the result says of the weight of key j for query i.
       M_FN x_sum weight_grad(global const x_kept *v, global const x_kept *g, const looks *o, long b,
                              long h, long i, long j) {
           if (j >= o->S || i >= o->T) return 0;
           return dot_of(g, row_at(&o->g, b, i, h), o->g.step[3],
                         v, row_at(&o->v, b, j, h), o->v.step[3], o->E);
       }
       M_FN x_sum largest(local const x_sum *p, x_sum most) {
           for (int c = 0; c < 64; c++) most = p[c] > most || p[c] != p[c] ? p[c] : most;
           return most;
       }
       M_FN x_sum base_of(x_sum most) { return most == -INFINITY ? 0 : most; }),
    CL(kernel __attribute__((reqd_work_group_size(64, 1, 1)))
       void attention(global const x_kept *q, global const x_kept *k, global const x_kept *v,
                      global const y_kept *m, global x_kept *y, looks o, x_sum scale) {
           local x_sum p[64];
           local x_sum w[64];
           int lid = get_local_id(0);
           long row = get_group_id(0);
           long h = row % o.H;
           long i = row / o.H % o.T;
           long b = row / o.H / o.T;
           long n = o.causal ? min(o.S, i + 1) : o.S;
           for (long first = 0; first < o.E; first += 512) {
               x_sum acc[8];
               x_sum most = -INFINITY;
               x_sum sum = 0;
               for (int r = 0; r < 8; r++) acc[r] = 0;
               for (long j = 0; j < n; j += 64) {
                   p[lid] = score(q, k, m, &o, scale, b, h, i, j + lid);
                   barrier(CLK_LOCAL_MEM_FENCE);
                   x_sum top = largest(p, most);
                   x_sum keep = exp(most - base_of(top));
                   w[lid] = exp(p[lid] - base_of(top));
                   barrier(CLK_LOCAL_MEM_FENCE);
                   int count = (int)min(n - j, 64L);
                   most = top;
                   sum *= keep;
                   for (int c = 0; c < count; c++) sum += w[c];
                   for (int r = 0; r < 8; r++) {
                       long e = first + lid + r * 64;
                       if (e >= o.E) break;
                       x_sum a = acc[r] * keep;
                       long at = row_at(&o.v, b, j, h) + e * o.v.step[3];
                       for (int c = 0; c < count; c++)
                           a += w[c] * (x_sum)x_get(v[at + c * o.v.step[1]]);
                       acc[r] = a;
                   }
               }
               for (int r = 0; r < 8; r++) {
                   long e = first + lid + r * 64;
                   if (e < o.E) y[o.to + row * o.E + e] = x_put(sum == 0 ? 0 : acc[r] / sum);
               }
           }
       }),
    // The gradients of queries; kept: for each the largest score, one over the sum, and the mean
    // gradient of its weights.
    CL(kernel __attribute__((reqd_work_group_size(64, 1, 1)))
       void attention_rows(global const x_kept *q, global const x_kept *k, global const x_kept *v,
                           global const y_kept *m, global const x_kept *g, global x_kept *y,
                           global x_sum *kept, long at_kept, looks o, x_sum scale) {
           local x_sum p[64];
           local x_sum w[64];
           local x_sum t[64];
           int lid = get_local_id(0);
           long row = get_group_id(0);
           long h = row % o.H;
           long i = row / o.H % o.T;
           long b = row / o.H / o.T;
           long n = o.causal ? min(o.S, i + 1) : o.S;
           x_sum most = -INFINITY;
           x_sum sum = 0;
           x_sum mean = 0;
           for (long j = 0; j < n; j += 64) {
               p[lid] = score(q, k, m, &o, scale, b, h, i, j + lid);
               barrier(CLK_LOCAL_MEM_FENCE);
               x_sum top = largest(p, most);
               x_sum keep = exp(most - base_of(top));
               w[lid] = exp(p[lid] - base_of(top));
               t[lid] = w[lid] * weight_grad(v, g, &o, b, h, i, j + lid);
               barrier(CLK_LOCAL_MEM_FENCE);
               most = top;
               sum *= keep;
               mean *= keep;
               for (int c = 0; c < 64 && j + c < n; c++) {
                   sum += w[c];
                   mean += t[c];
               }
           }
           x_sum share = sum == 0 ? 0 : 1 / sum;
           mean *= share;
           if (lid == 0) {
               kept[at_kept + row * 3] = base_of(most);
               kept[at_kept + row * 3 + 1] = share;
               kept[at_kept + row * 3 + 2] = mean;
           }
           for (long first = 0; first < o.D; first += 512) {
               x_sum acc[8];
               for (int r = 0; r < 8; r++) acc[r] = 0;
               for (long j = 0; j < n; j += 64) {
                   barrier(CLK_LOCAL_MEM_FENCE);
                   x_sum s = score(q, k, m, &o, scale, b, h, i, j + lid);
                   t[lid] = exp(s - base_of(most)) * share * scale *
                            (weight_grad(v, g, &o, b, h, i, j + lid) - mean);
                   barrier(CLK_LOCAL_MEM_FENCE);
                   for (int r = 0; r < 8; r++) {
                       long d = first + lid + r * 64;
                       if (d >= o.D) break;
                       long at = row_at(&o.k, b, j, h) + d * o.k.step[3];
                       for (int c = 0; c < 64 && j + c < n; c++)
                           acc[r] += t[c] * (x_sum)x_get(k[at + c * o.k.step[1]]);
                   }
               }
               for (int r = 0; r < 8; r++) {
                   long d = first + lid + r * 64;
                   if (d < o.D) y[o.to + row * o.D + d] = x_put(acc[r]);
               }
           }
       }),
    // Those of keys and values. Queries before the key do not see it where that counts.
    CL(kernel __attribute__((reqd_work_group_size(64, 1, 1)))
       void attention_keys(global const x_kept *q, global const x_kept *k, global const x_kept *v,
                           global const y_kept *m, global const x_kept *g, global x_kept *y,
                           global const x_sum *kept, long at_kept, looks o, x_sum scale) {
           local x_sum w[64];
           local x_sum t[64];
           int lid = get_local_id(0);
           long row = get_group_id(0);
           long h = row % o.H;
           long j = row / o.H % o.S;
           long b = row / o.H / o.S;
           for (long first = 0; first < max(o.D, o.E); first += 512) {
               x_sum acc_k[8];
               x_sum acc_v[8];
               for (int r = 0; r < 8; r++) acc_k[r] = acc_v[r] = 0;
               for (long i = o.causal ? j / 64 * 64 : 0; i < o.T; i += 64) {
                   barrier(CLK_LOCAL_MEM_FENCE);
                   w[lid] = t[lid] = 0;
                   if (i + lid < o.T) {
                       long at = at_kept + ((b * o.T + i + lid) * o.H + h) * 3;
                       x_sum s = score(q, k, m, &o, scale, b, h, i + lid, j);
                       w[lid] = exp(s - kept[at]) * kept[at + 1];
                       t[lid] = w[lid] * scale *
                                (weight_grad(v, g, &o, b, h, i + lid, j) - kept[at + 2]);
                   }
                   barrier(CLK_LOCAL_MEM_FENCE);
                   for (int r = 0; r < 8; r++) {
                       long d = first + lid + r * 64;
                       long at_q = row_at(&o.q, b, i, h) + d * o.q.step[3];
                       long at_g = row_at(&o.g, b, i, h) + d * o.g.step[3];
                       for (int c = 0; c < 64 && i + c < o.T; c++) {
                           if (d < o.D)
                               acc_k[r] += t[c] * (x_sum)x_get(q[at_q + c * o.q.step[1]]);
                           if (d < o.E)
                               acc_v[r] += w[c] * (x_sum)x_get(g[at_g + c * o.g.step[1]]);
                       }
                   }
               }
               for (int r = 0; r < 8; r++) {
                   long d = first + lid + r * 64;
                   if (d < o.D) y[o.to_k + row * o.D + d] = x_put(acc_k[r]);
                   if (d < o.E) y[o.to_v + row * o.E + d] = x_put(acc_v[r]);
               }
           }
       }),
    NULL,
};
