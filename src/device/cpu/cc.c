// Finds the system's C compiler and compiles with it.
//
// A kernel's text becomes the file kernels.c in a temporary folder that only this user can enter, a
// compiler makes kernels.so from it, and the bytes of that file are returned; object.c loads them.
// No shell is involved: TN_CC is split at spaces. A program that runs with another user's rights
// (setuid) compiles nothing, since TN_CC, PATH and the cache folder are chosen by the caller.
#include "device/cpu/cc.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// A compiler that takes longer hangs, or the machine is so loaded that interpreting is the better
// choice.
enum { LIMIT_MS = 60000 };

// Contraction (fused multiply-adds of the compiler's choice) is off, since compiled and interpreted
// kernels must round alike. -fwrapv gives integers the wrapping that the ops promise. The two math
// flags only give up errno and traps, so that ternaries and rint vectorize; they change no result.
// -w: warnings about generated text are of no use.
#define OPTIONS                                                                               \
    "-std=c11 -O3 -ffp-contract=off -fwrapv -fno-math-errno -fno-trapping-math -fPIC -shared" \
    " -w"

// Compiles for the features of this very chip.
#if defined(__aarch64__) || defined(__arm__)
#define NATIVE " -mcpu=native"
#else
#define NATIVE " -march=native"
#endif

// A compiler may know a chip by its name alone, and take it to have what the system or the machine
// around it has switched off; and this process may run in an emulator that the compiler does not
// see. So the compiler's view of the target is compared with what is there: the macros that stand
// for instructions, and whether this process may use each of them.
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

// Returns whether the operating system lets this process use every feature of the table that the
// compiler would use.
static bool fits_chip(const char *macros)
{
    static const struct {
        const char   *macro;
        unsigned long kind, bit;
    } all[] = {
        { "__ARM_FEATURE_SVE ", AT_HWCAP, HWCAP_SVE },
        { "__ARM_FEATURE_SVE2 ", AT_HWCAP2, HWCAP2_SVE2 },
        { "__ARM_FEATURE_BF16 ", AT_HWCAP2, HWCAP2_BF16 },
        { "__ARM_FEATURE_MATMUL_INT8 ", AT_HWCAP2, HWCAP2_I8MM },
        { "__ARM_FEATURE_FRINT ", AT_HWCAP2, HWCAP2_FRINT },
        { "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC ", AT_HWCAP, HWCAP_ASIMDHP },
        { "__ARM_FEATURE_FP16_FML ", AT_HWCAP, HWCAP_ASIMDFHM },
        { "__ARM_FEATURE_DOTPROD ", AT_HWCAP, HWCAP_ASIMDDP },
        { "__ARM_FEATURE_QRDMX ", AT_HWCAP, HWCAP_ASIMDRDM },
        { "__ARM_FEATURE_COMPLEX ", AT_HWCAP, HWCAP_FCMA },
        { "__ARM_FEATURE_JCVT ", AT_HWCAP, HWCAP_JSCVT },
        { "__ARM_FEATURE_ATOMICS ", AT_HWCAP, HWCAP_ATOMICS },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strstr(macros, all[i].macro) && !(getauxval(all[i].kind) & all[i].bit)) return false;
    return true;
}
#elif defined(__x86_64__) || defined(__i386__)
// The builtin takes nothing but a literal.
#define LACKS(macro, name) (strstr(macros, macro) && !__builtin_cpu_supports(name))

static bool fits_chip(const char *macros)
{
    return !LACKS("__AVX__ ", "avx") && !LACKS("__AVX2__ ", "avx2") && !LACKS("__FMA__ ", "fma") &&
           !LACKS("__BMI2__ ", "bmi2") && !LACKS("__AVX512F__ ", "avx512f") &&
           !LACKS("__AVX512VL__ ", "avx512vl") && !LACKS("__AVX512DQ__ ", "avx512dq") &&
           !LACKS("__AVX512BW__ ", "avx512bw");
}
#else
static bool fits_chip(const char *macros)
{
    (void)macros;
    return true;
}
#endif

// Part of the cache key, since machines may share a cache folder.
#if defined(__aarch64__) && defined(__linux__)
static bool chip_text(tni_text *t)
{
    uint64_t      model = 0;
    unsigned long has   = getauxval(AT_HWCAP);
    if (!(has & HWCAP_CPUID)) return false;
    __asm__("mrs %0, MIDR_EL1" : "=r"(model));
    *t = tni_text_of("%" PRIx64 " %lx %lx", model, has, getauxval(AT_HWCAP2));
    return true;
}
#elif defined(__x86_64__)
#include <cpuid.h>

static bool chip_text(tni_text *t)
{
    unsigned a, b, c, d, low = 0, high = 0;
    if (!__get_cpuid(0, &a, &b, &c, &d)) return false;
    *t = tni_text_of("%x %x %x", b, c, d);
    if (!__get_cpuid(1, &a, &b, &c, &d)) return false;
    tni_text_add(t, " %x %x %x", a, c, d);
    if (c & bit_OSXSAVE) __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    tni_text_add(t, " %x", low);
    for (unsigned leaf = 0; leaf < 2; leaf++)
        if (__get_cpuid_count(7, leaf, &a, &b, &c, &d)) tni_text_add(t, " %x %x %x %x", a, b, c, d);
    if (__get_cpuid(0x80000001, &a, &b, &c, &d)) tni_text_add(t, " %x %x", c, d);
    return true;
}
#else
static bool chip_text(tni_text *t)
{
    (void)t;
    return false;
}
#endif

bool tni_cpu_chip_text(tni_text *t)
{
    return chip_text(t);
}

// On a target with AVX-512, use 512-bit vectors, as the library's own loops do.
#define WIDE " -mprefer-vector-width=512"

// ---- running -----------------------------------------------------------------------------------

// A command line. argv points into text and into texts of the caller, which must outlive it.
typedef struct {
    char  text[1024];
    char *argv[TNI_CC_WORDS];
    int   count;
} command_line;

static void add_word(command_line *l, const char *word)
{
    if (l->count < TNI_CC_WORDS - 1) l->argv[l->count++] = (char *)word;
}

// Builds the command line: the program, TN_CC's words, then the options.
static void make_line(const tni_cc *c, const char *options, command_line *l)
{
    char *rest = NULL;
    memset(l->argv, 0, sizeof l->argv);
    l->count = 0;
    add_word(l, c->path);
    snprintf(l->text, sizeof l->text, "%s %s", c->words, options);
    for (char *w = strtok_r(l->text, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) add_word(l, w);
}

// Returns the first line of a text, with control characters replaced: it may be printed on a
// terminal.
static tni_text first_line(const char *s)
{
    tni_text t = { "" };
    size_t   n = strcspn(s, "\r\n");
    for (size_t i = 0; i < n && i < sizeof t.s - 1; i++)
        t.s[i] = (unsigned char)s[i] < ' ' || s[i] == 127 ? '?' : s[i];
    return t;
}

// Runs the compiler and returns its output, to be freed; NULL, with the reason, if it failed.
static char *run_and_read(tni_cc *c, command_line *l, tni_text *why)
{
    char   folder[TNI_FOLDER];
    size_t n;
    char  *out = NULL;
    if (!tni_folder_make(&c->runner, folder, why)) return NULL;
    if (tni_command_run(&c->runner, l->argv, folder, why)) {
        out = tni_folder_read(folder, "out", &n);
        if (!out) *why = tni_text_of("the output of %s cannot be read", tni_quoted(c->path).s);
    }
    tni_folder_remove(folder);
    return out;
}

// ---- finding -----------------------------------------------------------------------------------

static bool is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

// Sets c->path to the first program of that name on PATH. Relative folders on PATH are skipped:
// they would let whoever controls the current directory choose the compiler.
static bool search_path(tni_cc *c, const char *name)
{
    for (const char *p = c->search; *p; p += strspn(p, ":")) {
        int n = (int)strcspn(p, ":");
        snprintf(c->path, sizeof c->path, "%.*s/%s", n, p, name);
        if (*p == '/' && is_program(c->path)) return true;
        p += n;
    }
    return false;
}

// Sets c->path to a program, given by path or by name, and returns whether it can be run.
static bool use_program(tni_cc *c, const char *name)
{
    if (!strchr(name, '/')) return search_path(c, name);
    snprintf(c->path, sizeof c->path, "%s", name);
    return is_program(name);
}

// Finds the program that TN_CC names. The whole value is tried as a path first, since a path may
// contain spaces; else words after the first are arguments.
static bool find_wanted(tni_cc *c)
{
    char name[sizeof c->wanted];
    if (use_program(c, c->wanted)) return true;
    size_t n = strcspn(c->wanted, " ");
    snprintf(name, sizeof name, "%.*s", (int)n, c->wanted);
    snprintf(c->words, sizeof c->words, "%s", c->wanted + n);
    return use_program(c, name);
}

// Finds the compiler: TN_CC's, else the first of cc, gcc and clang.
static bool find_program(tni_cc *c, tni_text *why)
{
    bool given  = *c->wanted != 0;
    c->words[0] = 0;
    if (given ? find_wanted(c)
              : search_path(c, "cc") || search_path(c, "gcc") || search_path(c, "clang"))
        return true;
    *why = given ? tni_text_of("TN_CC names no program: %s", tni_quoted(c->wanted).s)
                 : tni_text_of("no cc, gcc or clang is on PATH");
    return false;
}

// ---- the environment ---------------------------------------------------------------------------

// Identifies a file by device, inode, size and time: a compiler or library that was replaced is
// another one.
static bool file_text(const char *path, tni_text *t)
{
    struct stat st;
    if (stat(path, &st) != 0) return false;
    *t = tni_text_of("%llu %llu %lld %lld.%09ld", (unsigned long long)st.st_dev,
                     (unsigned long long)st.st_ino, (long long)st.st_size,
                     (long long)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec);
    return true;
}

// Identifies the file that contains this library: libtenon.so, or the program it is linked into.
static bool library_text(tni_text *t)
{
    Dl_info     where;
    bool        known = dladdr(OPTIONS, &where) && where.dli_fname && where.dli_fname[0] == '/';
    const char *path  = known ? where.dli_fname : "/proc/self/exe";
    return file_text(path, t);
}

// Fills in c->identity; leaves it "" if any part is unknown, which turns the kernel cache off but
// not the disk cache of texts.
static void find_identity(tni_cc *c)
{
    tni_text program, library, chip, why;
    if (!find_program(c, &why) || !file_text(c->path, &program) || !library_text(&library) ||
        !chip_text(&chip))
        return;
    int n = snprintf(c->identity, sizeof c->identity, "%s|%s|%s|%s|%s", program.s, library.s,
                     chip.s, c->words, c->path);
    if (n >= (int)sizeof c->identity) c->identity[0] = 0;
}

// Refuses to work for a program with other rights than its caller's, and copies all texts that it
// reads, so that a later change of the environment does not matter.
bool tni_cc_open(tni_cc *c, tni_text *why)
{
    const char *wanted = getenv("TN_CC"), *search = getenv("PATH");
    memset(c, 0, sizeof *c);
    if (geteuid() != getuid() || getegid() != getgid()) {
        *why = tni_text_of("this program runs with the rights of another user");
        return false;
    }
    if (wanted && !strcmp(wanted, "none")) {
        *why = tni_text_of("TN_CC is none");
        return false;
    }
    if ((wanted && strlen(wanted) >= sizeof c->wanted) ||
        (search && strlen(search) >= sizeof c->search)) {
        *why = tni_text_of("%s is too long", wanted ? "TN_CC or PATH" : "PATH");
        return false;
    }
    snprintf(c->wanted, sizeof c->wanted, "%s", wanted ? wanted : "");
    snprintf(c->search, sizeof c->search, "%s", search && *search ? search : "/usr/bin:/bin");
    if (!tni_runner_open(&c->runner, LIMIT_MS)) {
        *why = tni_text_of("out of memory");
        return false;
    }
    find_identity(c);
    return true;
}

void tni_cc_close(tni_cc *c)
{
    tni_runner_close(&c->runner);
}

// ---- asking ------------------------------------------------------------------------------------

// Gets the first line of `cc --version`, part of the disk cache's key.
static bool find_name(tni_cc *c, tni_text *why)
{
    command_line l;
    make_line(c, "--version", &l);
    char *says = run_and_read(c, &l, why);
    if (!says) return false;
    c->name = first_line(says);
    free(says);
    return true;
}

static uint64_t hash_text(const char *s, uint64_t h)
{
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return h ^ h >> 32;
}

// Asks for all macros that the compiler predefines, which tell its version, its target and the
// features of the chip that it was told to compile for. Their hash becomes part of the disk cache's
// key: code is not shared between chips that differ. Returns false if the compiler is not
// a C11 compiler, or would use instructions that this process may not execute.
static bool find_target(tni_cc *c, const char *native, tni_text *why)
{
    command_line l;
    snprintf(c->options, sizeof c->options, OPTIONS "%s", native);
    make_line(c, c->options, &l);
    const char *const words[] = { "-dM", "-E", "-x", "c", "/dev/null" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) add_word(&l, words[i]);
    char *says = run_and_read(c, &l, why);
    if (!says) return false;
    bool ok = strstr(says, "__STDC_VERSION__ 201112L") != NULL;
    if (!ok) *why = tni_text_of("%s is not a C11 compiler", tni_quoted(c->path).s);
    if (*native && !fits_chip(says)) ok = false;
    snprintf(c->chip, sizeof c->chip, "%016" PRIx64 "%016" PRIx64,
             hash_text(says, 0xcbf29ce484222325u), hash_text(says, 0x6c62272e07bb0142u));
    if (ok && *native && strstr(says, "__AVX512F__")) strcat(c->options, WIDE);
    free(says);
    return ok;
}

// If code for this very chip is not possible (an emulator, an old compiler), generic code is.
bool tni_cc_find(tni_cc *c, tni_text *why)
{
    tni_folder_sweep(&c->runner);
    if (!find_program(c, why) || !find_name(c, why)) return false;
    return find_target(c, NATIVE, why) || find_target(c, "", why);
}

// ---- compiling ---------------------------------------------------------------------------------

// Adds the compiler's first error to the reason; that it failed would say little.
static void add_errors(const char *folder, tni_text *why)
{
    size_t n;
    char  *says = tni_folder_read(folder, "err", &n);
    if (!says) return;
    const char *error = strstr(says, "error:");
    if (error) tni_text_add(why, ": %s", first_line(error).s);
    else if (*says) tni_text_add(why, ": %s", first_line(says).s);
    free(says);
}

// Compiles a text in a folder, and returns the bytes of the object.
static void *compile_in(tni_cc *c, const char *folder, const char *source, size_t *bytes,
                        tni_text *why)
{
    command_line l;
    char         from[TNI_FOLDER + 16], to[TNI_FOLDER + 16];
    snprintf(from, sizeof from, "%s/kernels.c", folder);
    snprintf(to, sizeof to, "%s/kernels.so", folder);
    if (!tni_folder_write(folder, "kernels.c", source, strlen(source))) {
        *why = tni_text_of("%s cannot be written", tni_quoted(from).s);
        return NULL;
    }
    make_line(c, c->options, &l);
    const char *const words[] = { "-o", to, from, "-lm" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) add_word(&l, words[i]);
    if (!tni_command_run(&c->runner, l.argv, folder, why)) {
        add_errors(folder, why);
        return NULL;
    }
    void *object = tni_folder_read(folder, "kernels.so", bytes);
    if (!object) *why = tni_text_of("%s wrote no file", tni_quoted(c->path).s);
    return object;
}

void *tni_cc_compile(tni_cc *c, const char *source, size_t *bytes, tni_text *why)
{
    char folder[TNI_FOLDER];
    if (!tni_folder_make(&c->runner, folder, why)) return NULL;
    void *object = compile_in(c, folder, source, bytes, why);
    tni_folder_remove(folder);
    return object;
}
