// The kernels of attention, as text. XT is the dtype of the elements, YT that of the mask.
//
// A group of 64 serves one query, or one key. Its items first make the weights of 64 keys (queries)
// side by side, in local memory, and then each its own elements of the result, 8 at a time, from
// those in order. The scores of a query are not kept: softmax is corrected as the largest so far
// grows, and the gradient computes them again.
#include "device/simt/group_text.h"

#define T(...) #__VA_ARGS__ "\n"

// clang-format off

const char *const tni_text_attention[] = {
    "#define NEVER (-m_float_bits(0x7f800000u))\n",
    // Strides of (B, T or S, H, D or E), of the mask (B, H, T, S). to: where the result begins;
    // masked: 1 by bools, 2 by numbers.
    T(typedef struct { m_long at; m_long step[4]; } strides;
      typedef struct { strides q; strides k; strides v; strides m; strides g; m_long H; m_long T;
                       m_long S; m_long D; m_long E; m_long to; m_long to_k; m_long to_v;
                       int masked; int causal; } looks;
      M_FN m_long row_at(const strides *s, m_long b, m_long row, m_long h) {
          return s->at + b * s->step[0] + row * s->step[1] + h * s->step[2];
      }
      M_FN x_sum dot_of(GLOBAL const x_kept *a, m_long a_at, m_long a_step, GLOBAL const x_kept *b,
                        m_long b_at, m_long b_step, m_long n) {
          x_sum sum = 0;
          for (m_long d = 0; d < n; d++)
              sum = x_fma((x_sum)x_get(a[a_at + d * a_step]), (x_sum)x_get(b[b_at + d * b_step]),
                          sum);
          return sum;
      }),
    // The score of key j for query i, -inf where it is not seen.
    T(M_FN x_sum score(GLOBAL const x_kept *q, GLOBAL const x_kept *k, GLOBAL const y_kept *m,
                       const looks *o, x_sum scale, m_long b, m_long h, m_long i, m_long j) {
          if (j >= o->S || i >= o->T || (o->causal && j > i)) return NEVER;
          x_sum s = scale * dot_of(q, row_at(&o->q, b, i, h), o->q.step[3],
                                   k, row_at(&o->k, b, j, h), o->k.step[3], o->D);
          if (!o->masked) return s;
          y_type by = y_get(m[row_at(&o->m, b, h, i) + j * o->m.step[3]]);
          return o->masked == 2 ? s + (x_sum)by : by != 0 ? s : NEVER;
      }
      // What the gradient g of the result says of the weight of key j for query i.
      M_FN x_sum weight_grad(GLOBAL const x_kept *v, GLOBAL const x_kept *g, const looks *o,
                             m_long b, m_long h, m_long i, m_long j) {
          if (j >= o->S || i >= o->T) return 0;
          return dot_of(g, row_at(&o->g, b, i, h), o->g.step[3],
                        v, row_at(&o->v, b, j, h), o->v.step[3], o->E);
      }
      M_FN x_sum largest(LOCAL_PTR const x_sum *p, x_sum most) {
          for (int c = 0; c < 64; c++) most = p[c] > most || p[c] != p[c] ? p[c] : most;
          return most;
      }
      M_FN x_sum base_of(x_sum most) { return most == NEVER ? 0 : most; }),
    T(KERNEL(64) attention(GLOBAL const x_kept *q, GLOBAL const x_kept *k, GLOBAL const x_kept *v,
                           GLOBAL const y_kept *m, GLOBAL x_kept *y, GIVEN looks o, x_sum scale) {
          LOCAL x_sum p[64];
          LOCAL x_sum w[64];
          int lid = LOCAL_ID;
          m_long row = GROUP_ID;
          m_long h = row % o.H;
          m_long i = row / o.H % o.T;
          m_long b = row / o.H / o.T;
          m_long n = o.causal ? least(o.S, i + 1) : o.S;
          for (m_long first = 0; first < o.E; first += 512) {
              x_sum acc[8];
              x_sum most = NEVER;
              x_sum sum = 0;
              for (int r = 0; r < 8; r++) acc[r] = 0;
              for (m_long j = 0; j < n; j += 64) {
                  p[lid] = score(q, k, m, &o, scale, b, h, i, j + lid);
                  BARRIER();
                  x_sum top = largest(p, most);
                  x_sum keep = exp(most - base_of(top));
                  w[lid] = exp(p[lid] - base_of(top));
                  BARRIER();
                  int count = (int)least(n - j, 64);
                  most = top;
                  sum *= keep;
                  for (int c = 0; c < count; c++) sum += w[c];
                  for (int r = 0; r < 8; r++) {
                      m_long e = first + lid + r * 64;
                      if (e >= o.E) break;
                      x_sum a = acc[r] * keep;
                      m_long at = row_at(&o.v, b, j, h) + e * o.v.step[3];
                      for (int c = 0; c < count; c++)
                          a = x_fma(w[c], (x_sum)x_get(v[at + c * o.v.step[1]]), a);
                      acc[r] = a;
                  }
              }
              for (int r = 0; r < 8; r++) {
                  m_long e = first + lid + r * 64;
                  if (e < o.E) y[o.to + row * o.E + e] = x_put(sum == 0 ? 0 : acc[r] / sum);
              }
          }
      }),
    // The gradients of queries; kept: for each the largest score, one over the sum, and the mean
    // gradient of its weights.
    T(KERNEL(64) attention_rows(GLOBAL const x_kept *q, GLOBAL const x_kept *k,
                                GLOBAL const x_kept *v, GLOBAL const y_kept *m,
                                GLOBAL const x_kept *g, GLOBAL x_kept *y, GLOBAL x_sum *kept,
                                m_long at_kept, GIVEN looks o, x_sum scale) {
          LOCAL x_sum p[64];
          LOCAL x_sum w[64];
          LOCAL x_sum t[64];
          int lid = LOCAL_ID;
          m_long row = GROUP_ID;
          m_long h = row % o.H;
          m_long i = row / o.H % o.T;
          m_long b = row / o.H / o.T;
          m_long n = o.causal ? least(o.S, i + 1) : o.S;
          x_sum most = NEVER;
          x_sum sum = 0;
          x_sum mean = 0;
          for (m_long j = 0; j < n; j += 64) {
              p[lid] = score(q, k, m, &o, scale, b, h, i, j + lid);
              BARRIER();
              x_sum top = largest(p, most);
              x_sum keep = exp(most - base_of(top));
              w[lid] = exp(p[lid] - base_of(top));
              t[lid] = w[lid] * weight_grad(v, g, &o, b, h, i, j + lid);
              BARRIER();
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
          for (m_long first = 0; first < o.D; first += 512) {
              x_sum acc[8];
              for (int r = 0; r < 8; r++) acc[r] = 0;
              for (m_long j = 0; j < n; j += 64) {
                  BARRIER();
                  x_sum s = score(q, k, m, &o, scale, b, h, i, j + lid);
                  t[lid] = exp(s - base_of(most)) * share * scale *
                           (weight_grad(v, g, &o, b, h, i, j + lid) - mean);
                  BARRIER();
                  for (int r = 0; r < 8; r++) {
                      m_long d = first + lid + r * 64;
                      if (d >= o.D) break;
                      m_long at = row_at(&o.k, b, j, h) + d * o.k.step[3];
                      for (int c = 0; c < 64 && j + c < n; c++)
                          acc[r] = x_fma(t[c], (x_sum)x_get(k[at + c * o.k.step[1]]), acc[r]);
                  }
              }
              for (int r = 0; r < 8; r++) {
                  m_long d = first + lid + r * 64;
                  if (d < o.D) y[o.to + row * o.D + d] = x_put(acc[r]);
              }
          }
      }),
    // Those of keys and values. Queries before the key do not see it where that counts.
    T(KERNEL(64) attention_keys(GLOBAL const x_kept *q, GLOBAL const x_kept *k,
                                GLOBAL const x_kept *v, GLOBAL const y_kept *m,
                                GLOBAL const x_kept *g, GLOBAL x_kept *y, GLOBAL const x_sum *kept,
                                m_long at_kept, GIVEN looks o, x_sum scale) {
          LOCAL x_sum w[64];
          LOCAL x_sum t[64];
          int lid = LOCAL_ID;
          m_long row = GROUP_ID;
          m_long h = row % o.H;
          m_long j = row / o.H % o.S;
          m_long b = row / o.H / o.S;
          for (m_long first = 0; first < (o.D > o.E ? o.D : o.E); first += 512) {
              x_sum acc_k[8];
              x_sum acc_v[8];
              for (int r = 0; r < 8; r++) acc_k[r] = acc_v[r] = 0;
              for (m_long i = o.causal ? j / 64 * 64 : 0; i < o.T; i += 64) {
                  BARRIER();
                  w[lid] = t[lid] = 0;
                  if (i + lid < o.T) {
                      m_long at = at_kept + ((b * o.T + i + lid) * o.H + h) * 3;
                      x_sum s = score(q, k, m, &o, scale, b, h, i + lid, j);
                      w[lid] = exp(s - kept[at]) * kept[at + 1];
                      t[lid] = w[lid] * scale *
                               (weight_grad(v, g, &o, b, h, i + lid, j) - kept[at + 2]);
                  }
                  BARRIER();
                  for (int r = 0; r < 8; r++) {
                      m_long d = first + lid + r * 64;
                      m_long at_q = row_at(&o.q, b, i, h) + d * o.q.step[3];
                      m_long at_g = row_at(&o.g, b, i, h) + d * o.g.step[3];
                      for (int c = 0; c < 64 && i + c < o.T; c++) {
                          if (d < o.D)
                              acc_k[r] = x_fma(t[c], (x_sum)x_get(q[at_q + c * o.q.step[1]]),
                                               acc_k[r]);
                          if (d < o.E)
                              acc_v[r] = x_fma(w[c], (x_sum)x_get(g[at_g + c * o.g.step[1]]),
                                               acc_v[r]);
                      }
                  }
              }
              for (int r = 0; r < 8; r++) {
                  m_long d = first + lid + r * 64;
                  if (d < o.D) y[o.to_k + row * o.D + d] = x_put(acc_k[r]);
                  if (d < o.E) y[o.to_v + row * o.E + d] = x_put(acc_v[r]);
              }
          }
      }),
    NULL,
};
