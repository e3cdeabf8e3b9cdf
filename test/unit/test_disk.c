// test_disk.c: the disk cache of compiled code: what it gives back, which folders it refuses, and
// what damage, deletion and many processes do to it.
#include "check.h"
#include "scratch.h"

#include "kernel/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const tni_disk_key sample = {
    .kind     = "so",
    .source   = "int f(void);",
    .options  = "-O3",
    .compiler = "cc 1.0",
    .chip     = "chip",
};

// The cache in a folder "cache" of the scratch folder, which is not there yet.
static bool open_cache(tni_disk *d)
{
    if (!CHECK(scratch_open())) return false;
    setenv("TN_CACHE_DIR", scratch_path("cache"), 1);
    tni_disk_open(d);
    return CHECK(d->path[0] != 0);
}

// The path of the n-th file in a folder below the scratch folder; NULL where there are fewer.
static const char *nth_file(const char *folder, int n)
{
    static char path[600];
    DIR        *dir = opendir(scratch_path(folder));
    bool        got = false;
    if (!dir) return NULL;
    for (struct dirent *e; !got && (e = readdir(dir));) {
        if (*e->d_name == '.' || n-- > 0) continue;
        snprintf(path, sizeof path, "%s/%s", scratch_path(folder), e->d_name);
        got = true;
    }
    closedir(dir);
    return got ? path : NULL;
}

static int count_files(const char *folder)
{
    int n = 0;
    while (nth_file(folder, n)) n++;
    return n;
}

static void close_cache(void)
{
    static const char *const folders[] = { "cache/deep/tenon", "cache/deep", "cache/tenon",
                                           ".cache/tenon",     ".cache",     "cache" };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        chmod(scratch_path(folders[i]), 0700);
        for (const char *p; (p = nth_file(folders[i], 0)) && unlink(p) == 0;) {}
        rmdir(scratch_path(folders[i]));
    }
    scratch_close();
    unsetenv("TN_CACHE_DIR");
}

static bool holds(const tni_disk *d, const tni_disk_key *key, const char *want)
{
    size_t n    = 0;
    char  *data = tni_disk_find(d, key, &n);
    bool   ok   = data && n == strlen(want) && !memcmp(data, want, n);
    free(data);
    return ok;
}

static bool is_empty(const tni_disk *d, const tni_disk_key *key)
{
    size_t n    = 0;
    void  *data = tni_disk_find(d, key, &n);
    free(data);
    return data == NULL;
}

static void a_payload_is_found_under_its_key_alone(void)
{
    tni_disk d;
    if (!open_cache(&d)) return;
    CHECK(is_empty(&d, &sample));
    tni_disk_keep(&d, &sample, "payload", 7);
    CHECK(holds(&d, &sample, "payload"));
    for (int i = 0; i < 5; i++) {
        tni_disk_key other = sample;

        const char **field[] = { &other.kind, &other.source, &other.options, &other.compiler,
                                 &other.chip };
        *field[i]            = "other";
        test_that(is_empty(&d, &other), "field %d is not in the key", i);
    }
    // Where one text ends and the next begins counts.
    tni_disk_key moved = sample;
    moved.source       = "int f(void);-";
    moved.options      = "O3";
    CHECK(is_empty(&d, &moved));
    tni_disk_keep(&d, &sample, "new", 3);
    CHECK(holds(&d, &sample, "new"));
    CHECK_INT(count_files("cache"), 1);
    close_cache();
}

static void payloads_of_any_size_come_back(void)
{
    static const size_t sizes[] = { 0, 1, 7, 8, 9, 4096, 1000003 };
    tni_disk            d;
    if (!open_cache(&d)) return;
    unsigned char *data = malloc(1000003);
    for (size_t i = 0; i < 1000003; i++) data[i] = (unsigned char)(i * 131 >> 3);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = 0;
        tni_disk_keep(&d, &sample, data, sizes[i]);
        void *back = tni_disk_find(&d, &sample, &n);
        test_that(back && n == sizes[i] && !memcmp(back, data, n), "%zu bytes", sizes[i]);
        free(back);
    }
    free(data);
    close_cache();
}

static void the_folder_is_made_for_us_alone(void)
{
    struct stat st;
    tni_disk    d;
    tni_text    why = { "" };
    if (!open_cache(&d)) return;
    char deep[300];
    snprintf(deep, sizeof deep, "%s/deep", scratch_path("cache"));
    unsetenv("TN_CACHE_DIR");
    setenv("XDG_CACHE_HOME", deep, 1);
    umask(0);
    tni_disk_open(&d);
    tni_disk_keep(&d, &sample, "x", 1);
    CHECK(holds(&d, &sample, "x"));
    if (CHECK(stat(scratch_path("cache/deep/tenon"), &st) == 0)) CHECK_INT(st.st_mode & 0777, 0700);
    if (CHECK(nth_file("cache/deep/tenon", 0) != NULL) &&
        CHECK(stat(nth_file("cache/deep/tenon", 0), &st) == 0))
        CHECK_INT(st.st_mode & 0777, 0600);
    umask(022);
    CHECK(tni_disk_usable(&d, &why));
    unsetenv("XDG_CACHE_HOME");
    close_cache();
}

static void the_environment_names_the_folder(void)
{
    tni_disk    d;
    const char *home = getenv("HOME");
    char        saved[600];
    snprintf(saved, sizeof saved, "%s", home ? home : "/");
    setenv("HOME", "/home/someone", 1);
    setenv("XDG_CACHE_HOME", "/caches", 1);
    unsetenv("TN_CACHE_DIR");
    tni_disk_open(&d);
    CHECK_STR(d.path, "/caches/tenon");
    setenv("TN_CACHE_DIR", "/own", 1);
    tni_disk_open(&d);
    CHECK_STR(d.path, "/own");
    unsetenv("TN_CACHE_DIR");
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    tni_disk_open(&d);
    CHECK_STR(d.path, "/home/someone/.cache/tenon");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "", 1);
    tni_disk_open(&d);
    CHECK_STR(d.path, "");
    CHECK(d.why.s[0] != 0);
    setenv("HOME", saved, 1);
}

static void the_cache_can_be_turned_off(void)
{
    static const char *const off[] = { "", "none" };
    for (int i = 0; i < 2; i++) {
        tni_disk d;
        tni_text why = { "" };
        setenv("TN_CACHE_DIR", off[i], 1);
        tni_disk_open(&d);
        tni_disk_keep(&d, &sample, "x", 1);
        CHECK(is_empty(&d, &sample));
        CHECK(!tni_disk_usable(&d, &why));
        CHECK_STR(why.s, "TN_CACHE_DIR is none");
        unsetenv("TN_CACHE_DIR");
    }
}

// The reason why the folder of a cache is refused holds `part`, and nothing is kept or found.
static void check_refused(const tni_disk *d, const char *part)
{
    tni_text why  = { "" };
    tni_disk copy = *d;
    CHECK(!tni_disk_usable(d, &why));
    test_that(strstr(why.s, part) != NULL, "\"%s\" does not say \"%s\"", why.s, part);
    tni_disk_keep(&copy, &sample, "y", 1);
    CHECK(is_empty(d, &sample));
}

static void folders_that_others_can_write_are_refused(void)
{
    static const int modes[] = { 0770, 0720, 0702, 0777, 01777 };
    tni_disk         d;
    if (!open_cache(&d)) return;
    tni_disk_keep(&d, &sample, "x", 1);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        chmod(scratch_path("cache"), (mode_t)modes[i]);
        check_refused(&d, "others can write to it");
    }
    chmod(scratch_path("cache"), 0755);
    CHECK(holds(&d, &sample, "x"));
    close_cache();
}

static void what_is_no_folder_is_refused(void)
{
    tni_disk d;
    if (!open_cache(&d)) return;
    scratch_write(scratch_path("cache"), "file", 4);
    check_refused(&d, "Not a directory");
    unlink(scratch_path("cache"));
    if (symlink("/nowhere/at/all", scratch_path("cache")) == 0)
        check_refused(&d, "No such file or directory");
    unlink(scratch_path("cache"));
    close_cache();
}

// Only root can give a folder away, and only another user owns one that is not ours.
static void folders_of_another_user_are_refused(void)
{
    tni_disk d;
    if (geteuid() != 0) {
        setenv("TN_CACHE_DIR", "/", 1);
        tni_disk_open(&d);
        check_refused(&d, "it belongs to another user");
        unsetenv("TN_CACHE_DIR");
        return;
    }
    if (!open_cache(&d)) return;
    tni_disk_keep(&d, &sample, "x", 1);
    if (chown(scratch_path("cache"), 12345, 12345) == 0) {
        check_refused(&d, "it belongs to another user");
        CHECK(chown(scratch_path("cache"), 0, 0) == 0);
        CHECK(holds(&d, &sample, "x"));
        CHECK(chown(nth_file("cache", 0), 12345, 12345) == 0);
        CHECK(is_empty(&d, &sample));
    }
    close_cache();
}

static void folders_that_cannot_be_made_are_no_error(void)
{
    tni_disk d;
    setenv("TN_CACHE_DIR", "/proc/self/nothing/here", 1);
    tni_disk_open(&d);
    check_refused(&d, "");
    unsetenv("TN_CACHE_DIR");
}

static void a_damaged_file_is_ignored_and_rewritten(void)
{
    tni_disk    d;
    const char *want = "the payload of a file";
    if (!open_cache(&d)) return;
    tni_disk_keep(&d, &sample, want, strlen(want));
    size_t bytes = 0;
    char   path[600];
    snprintf(path, sizeof path, "%s", nth_file("cache", 0));
    char *whole = scratch_read(path, &bytes);
    if (!CHECK(whole != NULL)) return;
    for (size_t i = 0; i < bytes; i++) {
        whole[i] ^= 0x10;
        scratch_write(path, whole, bytes);
        chmod(path, 0600);
        whole[i] ^= 0x10;
        test_that(is_empty(&d, &sample), "byte %zu of %zu is damaged, and it is used", i, bytes);
    }
    for (size_t n = 0; n < bytes; n++) {
        scratch_write(path, whole, n);
        chmod(path, 0600);
        test_that(is_empty(&d, &sample), "the first %zu bytes of %zu are used", n, bytes);
    }
    tni_disk_keep(&d, &sample, want, strlen(want));
    CHECK(holds(&d, &sample, want));
    free(whole);
    close_cache();
}

static void files_that_are_no_files_are_ignored(void)
{
    tni_disk d;
    char     path[600], away[600];
    if (!open_cache(&d)) return;
    tni_disk_keep(&d, &sample, "x", 1);
    snprintf(path, sizeof path, "%s", nth_file("cache", 0));
    snprintf(away, sizeof away, "%s", scratch_path("away"));
    CHECK(rename(path, away) == 0);
    CHECK(symlink(away, path) == 0);
    CHECK(is_empty(&d, &sample));
    unlink(path);
    CHECK(mkfifo(path, 0600) == 0);
    CHECK(is_empty(&d, &sample));
    tni_disk_keep(&d, &sample, "z", 1);
    CHECK(holds(&d, &sample, "z"));
    chmod(path, 0666);
    CHECK(is_empty(&d, &sample));
    close_cache();
}

static void deletion_at_any_time_is_safe(void)
{
    tni_disk d;
    if (!open_cache(&d)) return;
    for (int i = 0; i < 3; i++) {
        tni_disk_keep(&d, &sample, "x", 1);
        CHECK(holds(&d, &sample, "x"));
        unlink(nth_file("cache", 0));
        CHECK(is_empty(&d, &sample));
        CHECK(rmdir(scratch_path("cache")) == 0);
        CHECK(is_empty(&d, &sample));
    }
    close_cache();
}

// ---- the bound on the sum

// A file of the cache's naming, as large as it says and so many hours old.
static void plant(const char *name, int64_t bytes, int hours)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", scratch_path("cache"), name);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0 && ftruncate(fd, bytes) == 0);
    struct timespec when[2] = { { .tv_sec = time(NULL) - hours * 3600 },
                                { .tv_sec = time(NULL) - hours * 3600 } };
    CHECK(fd >= 0 && futimens(fd, when) == 0);
    if (fd >= 0) close(fd);
}

static bool planted(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", scratch_path("cache"), name);
    return access(path, F_OK) == 0;
}

static void the_oldest_files_go_when_there_is_too_much(void)
{
    static const char *const names[] = { "00000000000000000000000000000000.so",
                                         "11111111111111111111111111111111.so",
                                         "22222222222222222222222222222222.so",
                                         "33333333333333333333333333333333.12345678.tmp",
                                         "44444444444444444444444444444444.12345678.tmp" };
    tni_disk                 d;
    if (!open_cache(&d)) return;
    CHECK(mkdir(scratch_path("cache"), 0700) == 0);
    plant(names[0], (int64_t)200 << 20, 10);
    plant(names[1], (int64_t)200 << 20, 30);
    plant(names[2], (int64_t)200 << 20, 20);
    plant(names[3], 100, 30);
    plant(names[4], 100, 0);
    plant("notes.txt", (int64_t)900 << 20, 1000);
    tni_disk_keep(&d, &sample, "x", 1);
    CHECK(holds(&d, &sample, "x"));
    CHECK(planted(names[0]));
    CHECK(!planted(names[1]));
    CHECK(!planted(names[2]));
    CHECK(!planted(names[3]));
    CHECK(planted(names[4]));
    CHECK(planted("notes.txt"));
    close_cache();
}

static void a_file_that_is_used_gets_younger(void)
{
    struct stat     st;
    tni_disk        d;
    struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    if (!open_cache(&d)) return;
    tni_disk_keep(&d, &sample, "x", 1);
    CHECK(utimensat(AT_FDCWD, nth_file("cache", 0), old, 0) == 0);
    CHECK(holds(&d, &sample, "x"));
    CHECK(stat(nth_file("cache", 0), &st) == 0 && time(NULL) - st.st_mtime < 1000);
    close_cache();
}

// ---- many processes

enum { PROCESSES = 8, ROUNDS = 300, KEYS = 5, LENGTH = 20000 };

// Keeps and finds a few keys in turn, now and then deleting files, and the folder. Every payload is
// made of one letter that belongs to its key; true if only such ones were found.
static bool fight(tni_disk *d, int number)
{
    static char data[LENGTH];
    bool        ok = true;
    for (int i = 0; i < ROUNDS && ok; i++) {
        int          n      = (i * 7 + number) % KEYS;
        char         text[] = { (char)('a' + n), 0 };
        tni_disk_key key    = sample;
        key.source          = text;
        memset(data, text[0], sizeof data);
        if (i % 3 == 0) tni_disk_keep(d, &key, data, sizeof data);
        size_t bytes = 0;
        char  *got   = tni_disk_find(d, &key, &bytes);
        if (got) ok = bytes == LENGTH && !memcmp(got, data, LENGTH);
        free(got);
        const char *some = i % 31 == 30 ? nth_file("cache", 0) : NULL;
        if (some) unlink(some);
        if (i % 31 == 30) rmdir(scratch_path("cache"));
    }
    return ok;
}

static void eight_processes_share_a_folder(void)
{
    tni_disk d;
    pid_t    pid[PROCESSES];
    if (!open_cache(&d)) return;
    for (int i = 0; i < PROCESSES; i++) {
        pid[i] = fork();
        if (pid[i] == 0) _exit(fight(&d, i) ? 0 : 1);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = -1;
        CHECK(pid[i] > 0 && waitpid(pid[i], &status, 0) == pid[i]);
        CHECK_INT(status, 0);
    }
    CHECK(count_files("cache") <= KEYS);  // no temporary file is left
    close_cache();
}

const test_case tests_disk[] = {
    TEST(a_payload_is_found_under_its_key_alone),
    TEST(payloads_of_any_size_come_back),
    TEST(the_folder_is_made_for_us_alone),
    TEST(the_environment_names_the_folder),
    TEST(the_cache_can_be_turned_off),
    TEST(folders_that_others_can_write_are_refused),
    TEST(what_is_no_folder_is_refused),
    TEST(folders_of_another_user_are_refused),
    TEST(folders_that_cannot_be_made_are_no_error),
    TEST(a_damaged_file_is_ignored_and_rewritten),
    TEST(files_that_are_no_files_are_ignored),
    TEST(deletion_at_any_time_is_safe),
    TEST(the_oldest_files_go_when_there_is_too_much),
    TEST(a_file_that_is_used_gets_younger),
    TEST(eight_processes_share_a_folder),
    TEST_END,
};
