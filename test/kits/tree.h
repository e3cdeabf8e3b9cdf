// tree.h: looking at the project's own files from a test. Paths are relative to the root of the
// source tree.
#ifndef TEST_TREE_H
#define TEST_TREE_H

#include <stdbool.h>
#include <stddef.h>

// A sorted list of paths, owned by whoever made it; tree_free ends it.
typedef struct {
    char **path;
    int    count, room;
} tree_list;

// Adds every file below `folder` whose name has one of the endings (".c .h"; NULL takes all).
// Links, build folders and hidden folders other than .ci are left out; so is a missing folder.
void tree_add(tree_list *l, const char *folder, const char *endings);
void tree_sort(tree_list *l);
void tree_free(tree_list *l);

// The whole file and a zero byte behind it, to be freed; NULL if it cannot be read.
char *tree_read(const char *path, size_t *size);
bool  tree_exists(const char *path);

// Runs a shell command in the root, keeps the beginning of what it prints (stderr too) in `out`,
// and returns its exit status.
int tree_run(const char *command, char *out, size_t size);

// Whether a program is on the path.
bool tree_has(const char *program);

#endif
