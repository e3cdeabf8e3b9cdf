// 01_tensor.c: making tensors, computing with them, looking at them.
#include <stdio.h>
#include <tenon.h>

int main(void)
{
    // A context is one device with everything made on it. NULL takes the fastest device present.
    tn_ctx *cx = tn_open(NULL);
    if (!cx) {
        fprintf(stderr, "%s\n", tn_error_text(NULL));
        return 1;
    }

    // Tensors have a dtype and a shape. tn_from copies the data it is given.
    tn_tensor *a = tn_from(cx, TN_F32, TN_SHAPE(2, 3), (float[]){ 1, 2, 3, 4, 5, 6 });
    tn_tensor *b = tn_arange(cx, TN_F32, 0, 3, 1);

    // Shapes broadcast as in NumPy: b (3,) meets every row of a (2, 3). Nothing is computed yet:
    // the call checks its arguments and records what is wanted. Reading computes it.
    tn_tensor *c = tn_add(tn_mul_s(a, 10), b);
    printf("10 a + b:\n");
    tn_print(c, stdout);

    // Reductions drop an axis, or keep it with size 1 so that the result still broadcasts.
    tn_tensor *share = tn_div(a, tn_sum_keep(a, 1));
    printf("\nshare of each row's sum:\n");
    tn_print(share, stdout);

    // Views share the memory of their base: writing through one is seen in the other.
    tn_tensor *column = tn_select(c, 1, 0);
    tn_fill_(column, -1);
    printf("\nafter writing to the first column:\n");
    tn_print(c, stdout);

    printf("\na @ a.T:\n");
    tn_print(tn_matmul(a, tn_transpose(a, 0, 1)), stdout);

    // One number, or all of them, as C sees them.
    float all[6];
    printf("\nmean %g, largest at %lld\n", tn_item(tn_mean_all(a)),
           (long long)tn_item_i64(tn_argmax_all(a)));
    if (tn_read(c, TN_F32, all, 6) == TN_OK) printf("last element %g\n", all[5]);

    // A scope owns the tensors made in it. tn_keep lets one out, by one level.
    tn_scope  *s = tn_begin(cx);
    tn_tensor *t = tn_exp(a);
    tn_tensor *y = tn_keep(tn_sum_all(t));
    tn_end(s);  // t is gone, y is not
    printf("sum of exp %.3f\n", tn_item(y));

    // An error is a value: NULL goes in, NULL comes out, and the first message stays with the
    // context. The handler is turned off here; by default the message is printed once.
    tn_on_error(cx, NULL, NULL);
    tn_tensor *wrong = tn_relu(tn_matmul(a, a));
    printf("\n%s: %s\n", wrong ? "?" : tn_status_name(tn_error(cx)), tn_error_text(cx));
    tn_error_clear(cx);

    tn_close(cx);  // and with it every tensor
    return 0;
}
