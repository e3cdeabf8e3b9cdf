// CSV: its cells, the names in it, its columns, and their description as JSON.
#ifndef TNI_DATA_CSV_H
#define TNI_DATA_CSV_H

#include "data/dataset.h"

// What memory a file of nothing but columns or categories can ask for is bounded by these.
enum {
    TNI_CSV_COLUMNS         = 1 << 16,
    TNI_CSV_CATEGORIES      = 1000,  // of a column
    TNI_CSV_INTEGER_CLASSES = 20,  // different whole numbers of a target that are taken for classes
    TNI_CSV_NAMES           = 1 << 17,  // of columns and categories, all together
    TNI_CSV_NAME_BYTES      = 1 << 20,  // of all of them
    TNI_CSV_NAME            = 1024      // bytes of one
};

// ---- cells (csv_cells.c)

// A cell, in place: the text between its quotes, or between the blanks around it.
typedef struct {
    const char *text;
    size_t      length;
    bool        doubled;  // quotes inside stand for one each
    bool        last;     // of its row
    int64_t     line;     // where it begins, counted in lines of the file from 1
} tni_csv_cell;

// Walks a text cell by cell. It follows RFC 4180, and takes lines that end with CR alone, blanks
// around cells, and quotes in the middle of a cell that does not begin with one.
typedef struct {
    const char *at, *end;
    char        separator;
    int64_t     line;  // of at
    const char *why;   // of an error, a phrase; line is where
} tni_csv_reader;

// Moves to the next row, past empty lines; false at the end.
bool tni_csv_row(tni_csv_reader *r);
// The next cell of the row; false on an error.
bool tni_csv_next(tni_csv_reader *r, tni_csv_cell *c);
// The separator that a text's first line has most of: a comma, semicolon or tab; 0: none of them.
char tni_csv_separator(const char *text, const char *end);
// The cell's text with single quotes for doubled ones: its length, at most capacity of it in dst.
size_t tni_csv_text(const tni_csv_cell *c, char *dst, size_t capacity);

typedef enum {
    TNI_CSV_EMPTY,
    TNI_CSV_NUMBER,
    TNI_CSV_UNBOUNDED,  // nan, inf
    TNI_CSV_COMMA,      // it would be a number with a point for its comma
    TNI_CSV_TEXT
} tni_csv_kind;

// What a cell is, and if it is a number, which; one too large for double is infinite. The locale
// does not matter.
tni_csv_kind tni_csv_look(const tni_csv_cell *c, double *v);

// ---- names (csv_names.c)

// A name in its list: that of the columns or of one column's categories.
typedef struct {
    uint32_t text, length;  // in the pool; a 0 follows it
    uint32_t list, index;
    uint32_t next;  // entry of the list's next name
} tni_csv_entry;

// All names, each with its place in its list; found by hash.
typedef struct {
    char          *pool;
    tni_csv_entry *entry;
    uint32_t      *slot;  // entry + 1, 0 where free
    size_t         used, count, slots, pool_cap, entry_cap;
} tni_csv_names;

enum { TNI_CSV_NO_TARGET = TNI_CSV_COLUMNS };  // instead of the number of a column
enum { TNI_CSV_HEADER = TNI_CSV_COLUMNS };     // the list of the columns' names
enum { TNI_CSV_NO_NAME = -1, TNI_CSV_NO_MEMORY = -2, TNI_CSV_FULL = -3 };

// The entry of a name in a list, or TNI_CSV_NO_NAME.
int64_t tni_csv_find(const tni_csv_names *n, uint32_t list, const char *s, size_t length);
// Adds a name that is not there, with its index in its list: its entry, or one of the codes above.
int64_t tni_csv_add(tni_heap *h, tni_csv_names *n, uint32_t list, uint32_t index, const char *s,
                    size_t length);
void    tni_csv_names_free(tni_heap *h, tni_csv_names *n);

// ---- tables

typedef enum { TNI_CSV_NUMBERS, TNI_CSV_TEXTS, TNI_CSV_INTEGERS } tni_csv_column_kind;

// A column: numbers, stored as f32, or categories, stored as u16. Integers are numbers that count
// as classes; only the target can have them. A missing number is stored as NaN where the column is
// filled, and stands for its mean then; a missing category that has none is stored as TNI_CSV_NONE,
// and is 0 in every input.
typedef struct {
    uint8_t  kind;             // of tni_csv_column_kind
    uint32_t name;             // entry
    uint32_t categories;       // how many
    uint32_t first, newest;    // entries of the first and the last of them
    uint32_t at;               // bytes into a stored row
    bool     found;            // with a schema: the file has it
    bool     filled, flagged;  // missing numbers have a mean; and an input that says so
    float    mean;
    int64_t  numbers, texts, missing;  // cells that are one, while kinds are found out
    int64_t  known;                    // of the cells that the mean is taken over, the numbers
    double   sum;                      // of these
} tni_csv_column;

enum { TNI_CSV_NONE = UINT16_MAX };  // of a category's index

// How many inputs of a network a column is.
static inline int64_t tni_csv_inputs(const tni_csv_column *c)
{
    return c->kind == TNI_CSV_NUMBERS ? (int64_t)1 + c->flagged : (int64_t)c->categories;
}

// The dataset. Columns are in the order of the schema, which need not be that of the file. Rows are
// stored as bytes one after another, unaligned.
typedef struct {
    tni_item_source source;  // first
    tni_csv_column *column;
    uint32_t        columns, target;  // TNI_CSV_NO_TARGET: it has none
    bool            no_target;        // it is not stored, whether there is one or not
    tni_csv_names   names;
    size_t          row_bytes;
    unsigned char  *rows;
    char           *schema;
    const char    **class_names;
    int64_t        *row_of;  // of the items, NULL where no row is left out
} tni_csv;

static inline const char *tni_csv_name(const tni_csv *t, uint32_t entry)
{
    return t->names.pool + t->names.entry[entry].text;
}
// Adds a category to a column: its index, or one of the codes of tni_csv_add.
int64_t tni_csv_category(tni_heap *h, tni_csv *t, uint32_t column, const char *s, size_t length);

// The columns as JSON, to be freed; NULL when memory is out.
char *tni_csv_write_schema(tni_heap *h, const tni_csv *t);
// Fills an empty table's columns, names and target; false, reported, on failure.
bool tni_csv_read_schema(tn_ctx *cx, tni_csv *t, const char *schema);
// Whether column i is one whose cells are not looked at.
static inline bool tni_csv_ignored(const tni_csv *t, uint32_t i)
{
    return t->no_target && i == t->target;
}

// ---- reading a file (csv.c, csv_table.c)

// A file being read into a table. place[i] is the column that the file's i-th cells belong to, of
// those that a row has.
typedef struct {
    tn_ctx        *cx;
    const char    *path;
    tn_csv_opts    o;
    tni_csv       *t;
    tni_csv_reader start, r;  // at the first row; where we are
    uint32_t      *place, cells;
    bool           held_out;  // the row being stored counts to no mean
    int            integers;  // different values of the target so far, all whole; -1: it is not so
    double         integer[TNI_CSV_INTEGER_CLASSES];
} tni_csv_reading;

// These report an error and return false: in the file, in the line that the reader is at, and in
// the file's i-th cell of a row, where `is` says what is wrong with its text or, without show, with
// it.
bool tni_csv_bad_file(const tni_csv_reading *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
bool tni_csv_bad_line(const tni_csv_reading *r);
bool tni_csv_bad_cell(const tni_csv_reading *r, const tni_csv_cell *c, uint32_t i, bool show,
                      const char *is);
// A cell's text as a name. False, reported with the line, if it cannot be one.
bool tni_csv_name_of(const tni_csv_reading *r, const tni_csv_cell *c, char name[TNI_CSV_NAME],
                     size_t *length);

// The first walk over the rows: how many there are and, without a schema, what the columns are.
bool tni_csv_survey(tni_csv_reading *r);
// The second: their values.
bool tni_csv_store(tni_csv_reading *r);

#endif
