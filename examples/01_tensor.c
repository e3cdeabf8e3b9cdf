// 01_tensor.c: make tensors, compute with them, print them.
#include <stdio.h>
#include <tenon.h>

int main(void)
{
    // A context is one device and everything made on it. NULL selects the fastest device present.
    tn_ctx *cx = tn_open(NULL);
    if (!cx) {
        fprintf(stderr, "%s\n", tn_error_text(NULL));
        return 1;
    }

    // A tensor has a dtype and a shape. tn_from copies the data.
    tn_tensor *a = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ 1, 2, 3, 4, 5, 6 });
    tn_tensor *b = tn_arange(cx, TN_F32, 0, 3, 1);

    // Shapes broadcast as in NumPy: b (3,) is added to every row of a (2, 3). Nothing is computed
    // yet: a call checks its arguments and records a node. Printing or reading a value computes it.
    tn_tensor *c = tn_add(tn_mul_s(a, 10), b);
    printf("10 a + b:\n");
    tn_print(c, stdout);

    // Reductions drop an axis, or keep it with size 1 so that the result still broadcasts.
    tn_tensor *share = tn_div(a, tn_sum_keep(a, 1));
    printf("\nshare of each row's sum:\n");
    tn_print(share, stdout);

    // A view shares the memory of its base: a write to one is visible in the other.
    tn_tensor *column = tn_select(c, 1, 0);
    tn_fill_(column, -1);
    printf("\nafter writing to the first column:\n");
    tn_print(c, stdout);

    printf("\na @ a.T:\n");
    tn_print(tn_matmul(a, tn_transpose(a, 0, 1)), stdout);

    // Read one number, or all of them, into C variables.
    float all[6];
    printf("\nmean %g, largest at %lld\n", tn_item(tn_mean_all(a)),
           (long long)tn_item_i64(tn_argmax_all(a)));
    if (tn_read(c, TN_F32, all, 6) == TN_OK) printf("last element %g\n", all[5]);

    // A scope owns the tensors made in it. tn_keep moves one to the next outer scope.
    tn_scope  *s = tn_begin(cx);
    tn_tensor *t = tn_exp(a);
    tn_tensor *y = tn_keep(tn_sum_all(t));
    tn_end(s);  // frees t, but not y
    printf("sum of exp %.3f\n", tn_item(y));

    // Errors are values: an op returns NULL if it fails or if an argument is NULL, and the context
    // keeps the first message. By default it is also printed once; this turns the printing off.
    tn_on_error(cx, NULL, NULL);
    tn_tensor *wrong = tn_relu(tn_matmul(a, a));
    printf("\n%s: %s\n", wrong ? "?" : tn_status_name(tn_error(cx)), tn_error_text(cx));
    tn_error_clear(cx);

    tn_close(cx);  // frees every tensor too
    return 0;
}
