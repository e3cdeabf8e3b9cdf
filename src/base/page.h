// Pages that people look at: one HTML file each, with its style, its script and its data inside. It
// asks for nothing from the network (its own policy forbids it), follows the reader's light or dark
// colours, and prints.
//
// A page is a title, a line of facts, data as JSON, and a script that shows the data with the
// helpers of page.js:
//
//   tni_json_put(&w, "{\"loss\":[[0,2.3],[1,1.9]]}");
//   tni_page_write(f, &(tni_page){ .title = "run 1", .note = "cpu", .data = w.text, .script = tni_report_page_js });
//
// and in report_page.js, which the build embeds under that name:
//
//   const s = section('Loss', 'of the training data');
//   lines(s, { x: { label: 'step' }, y: { label: 'loss' }, series: [{ name: 'loss', points: data.loss }] });
//
// Every file.js and file.css under src is embedded as tni_file_js and tni_file_css, text that ends
// with 0; declare it beside its use. page.js says what each helper takes.
#ifndef TNI_BASE_PAGE_H
#define TNI_BASE_PAGE_H

#include <stdbool.h>
#include <stdio.h>

// title and note: plain text, escaped here. data: one JSON value, made safe here: none of its bytes
// can end the script that it stands in. script: as it is; it must not hold "</script".
typedef struct {
    const char *title, *note, *data, *script;
} tni_page;

// False where it could not be written.
bool tni_page_write(FILE *f, const tni_page *p);
// Opens the file of a page or a trace that the environment names for all contexts of a process:
// x.html for the first that comes, then x-2.html, x-3.html. NULL, with errno, if it cannot.
FILE *tni_page_open_next(const char *path);

#endif
