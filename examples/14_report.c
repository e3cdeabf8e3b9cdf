// 14_report.c: show a run to people: a page with curves and samples, report.html, and what
// TensorBoard shows, in events/.
//
//     14_report [steps]
#include <stdio.h>
#include <stdlib.h>
#include <tenon.h>

enum { SHOWN = 12, CLASSES = 10, TESTED = 500 };

// Adds what the network says of some images: the first ones as samples, all of them to the
// confusion matrix.
static void show_test(tn_report *report, tn_layer *net, tn_data *test)
{
    int64_t guess[TESTED], truth[TESTED], counts[CLASSES * CLASSES] = { 0 };
    tn_layer_train(net, false);
    tn_batch b = tn_next(test, TESTED);
    tn_read(tn_argmax(tn_forward(net, b.x), 1), TN_I64, guess, TESTED);
    tn_read(b.y, TN_I64, truth, TESTED);
    for (int i = 0; i < TESTED; i++) {
        char is[8], said[8];
        counts[truth[i] * CLASSES + guess[i]]++;
        snprintf(is, sizeof is, "%d", (int)truth[i]);
        snprintf(said, sizeof said, "%d", (int)guess[i]);
        if (i < SHOWN)
            tn_report_sample(report, tn_select(b.x, 0, i),
                             (tn_report_sample_opts){ .truth = is, .prediction = said });
    }
    tn_report_confusion(report, CLASSES, counts, NULL);
}

int main(int argc, char **argv)
{
    int     steps = argc > 1 ? atoi(argv[1]) : 400;
    tn_ctx *cx    = tn_open(NULL);
    if (!cx) {
        fprintf(stderr, "%s\n", tn_error_text(NULL));
        return 1;
    }
    tn_data  *data = tn_digits(cx, (tn_digits_opts){ .count = 20000 });
    tn_data  *test = tn_digits(cx, (tn_digits_opts){ .count = 2000, .test = true });
    tn_layer *net  = tn_nn_seq(cx, tn_nn_flatten(cx), tn_nn_linear(cx, 784, 128),
                               tn_nn_act(cx, tn_relu), tn_nn_linear(cx, 128, CLASSES));
    tn_optim *opt  = tn_adamw(net, (tn_adamw_opts){ .lr = 1e-3f });

    tn_report      *report = tn_report_open(cx, "an MLP on digits");
    tn_tensorboard *board  = tn_tensorboard_open(cx, "events", (tn_tensorboard_opts){ 0 });
    tn_report_setting(report, "lr", "1e-3");
    tn_optim_grad_norm(opt);  // from now on, updates keep the norm of their gradients
    for (int step = 1; step <= steps; step++) {
        tn_scope  *s    = tn_begin(cx);
        tn_batch   b    = tn_next(data, 64);
        tn_tensor *loss = tn_cross_entropy(tn_forward(net, b.x), b.y);
        tn_step(opt, loss);
        tn_report_scalar(report, "loss", step, tn_item(loss));
        tn_report_scalar(report, "grad_norm", step, tn_item(tn_optim_grad_norm(opt)));
        tn_tensorboard_scalar(board, "train/loss", step, tn_item(loss));
        if (step % 100 == 0)
            tn_tensorboard_histogram(board, "weights/1", step, tn_layer_find(net, "1.weight"));
        tn_end(s);
    }
    show_test(report, net, test);
    tn_report_figure(report, "steps", steps);
    tn_report_write(report, "report.html");
    printf("report.html is a page of %d steps; tensorboard --logdir events shows them, too\n",
           steps);

    int failed = tn_error(cx) != TN_OK;
    tn_close(cx);
    return failed;
}
