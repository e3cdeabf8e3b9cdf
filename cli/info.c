// info.c: `tenon info FILE`, the tensors and metadata of a safetensors or npy file, or of a folder
// with a model.
#include "cli.h"

#include <string.h>

enum { SHOWN = 100, WIDEST = 60 };  // bytes shown of a metadata value; width of the column of names

static void write_shape(const tn_file_desc *d, char *to, size_t size)
{
    size_t n = (size_t)snprintf(to, size, "(");
    for (int i = 0; i < d->rank && n < size; i++)
        n += (size_t)snprintf(to + n, size - n, i ? ", %lld" : "%lld", (long long)d->size[i]);
    if (n < size) snprintf(to + n, size - n, d->rank == 1 ? ",)" : ")");
}

static int name_width(const tn_file *f)
{
    int widest = 6;
    for (int i = 0; i < tn_file_count(f); i++) {
        int n = (int)strlen(cli_shown(tn_file_name(f, i)));
        if (n > widest) widest = n;
    }
    return widest < WIDEST ? widest : WIDEST;
}

// Prints a table of tensors, and their total.
static void print_tensors(const tn_file *f)
{
    int     wide = name_width(f), tensors = tn_file_count(f);
    int64_t bytes = 0, elements = 0;
    char    shape[256], size[32];
    printf("%-*s  %-6s  %-20s  %10s\n", wide, "tensor", "dtype", "shape", "size");
    for (int i = 0; i < tensors; i++) {
        tn_file_desc d     = tn_file_info(f, i);
        int64_t      count = 1;
        for (int k = 0; k < d.rank; k++) count *= d.size[k];
        write_shape(&d, shape, sizeof shape);
        cli_write_bytes(size, sizeof size, d.bytes);
        printf("%-*s  %-6s  %-20s  %10s\n", wide, cli_shown(tn_file_name(f, i)), cli_shown(d.dtype),
               shape, size);
        bytes += d.bytes;
        elements += count;
    }
    cli_write_bytes(size, sizeof size, bytes);
    printf("%d tensor%s, %lld number%s, %s\n", tensors, cli_s(tensors), (long long)elements,
           cli_s(elements), size);
}

// Prints the metadata, each value cut to SHOWN bytes.
static void print_metadata(const tn_file *f)
{
    const char *key;
    for (int i = 0; (key = tn_file_meta_key(f, i)) != NULL; i++) {
        char        text[SHOWN + 1];
        const char *value = tn_file_meta(f, key);
        size_t      taken = tn_escape(text, sizeof text, value);
        if (i == 0) puts("\nmetadata");
        printf("  %-14s  %s%s\n", cli_shown(key), text, value[taken] ? "..." : "");
    }
}

int cli_info(int argc, char **argv)
{
    if (argc != 3 || argv[2][0] == '-') {
        fputs("tenon info: one FILE is needed", stderr);
        if (argc > 3) fprintf(stderr, ", and \"%s\" is one word too many", cli_shown(argv[3]));
        fputs("; see tenon help info\n", stderr);
        return 2;
    }
    tn_ctx *cx = cli_open(&(cli_settings){ .device = "cpu" });
    if (!cx) return 1;
    bool     folder = cli_is_folder(argv[2]);
    tn_file *f      = folder ? cli_folder_weights(cx, argv[2]) : tn_file_open(cx, argv[2]);
    tn_file *facts  = f && folder ? cli_folder_config(cx, argv[2]) : f;
    int      status = facts ? 0 : cli_fail_of(cx);
    if (facts) {
        print_tensors(f);
        print_metadata(facts);
    }
    tn_close(cx);
    return status;
}
