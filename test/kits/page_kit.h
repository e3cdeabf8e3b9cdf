// page_kit.h: pages as tests read them.
#ifndef TEST_PAGE_KIT_H
#define TEST_PAGE_KIT_H

#include "base/json.h"

// A file as a text, to be freed; NULL if it cannot be read.
char *page_read(const char *path);
// The data of a page, from a file: JSON, as a text that the caller frees. A failed check, and NULL,
// where the file is no page, asks for something from the network, has data that is not JSON, or
// scripts that fail, where there is Node to run them.
char *page_data(const char *path);
// Moves to the value of a key of the object that begins at *at, or to element n of an array, by a
// path with dots: "rows.0.name". False if there is none.
bool page_find(const char *json, const char *path, tni_json *at);
// The number or the text at a path; a failed check, and NAN or "", if there is none. The text is
// overwritten by the next call.
double      page_number(const char *json, const char *path);
const char *page_text(const char *json, const char *path);
// How many elements the array at a path has; -1 if there is none.
int page_count(const char *json, const char *path);

#endif
