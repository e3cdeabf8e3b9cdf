// The disk cache of compiled code, one folder for all devices and processes of a user.
//
// The folder is $TN_CACHE_DIR, else $XDG_CACHE_HOME/tenon, else ~/.cache/tenon; TN_CACHE_DIR empty
// or "none" turns the cache off. A folder that others can write to, or that belongs to another
// user, is not used. Nothing here is ever an error: without the cache everything is compiled again.
// Files and folder can be deleted at any time.
//
// A file's name is a hash of its key; it contains a second hash of the key and a checksum of the
// payload, both verified before it is handed out. Files appear complete, by a rename. Their sum is
// bounded: the ones not used for longest go first.
#ifndef TNI_KERNEL_DISK_H
#define TNI_KERNEL_DISK_H

#include "base/text.h"

enum { TNI_DISK_PATH = 1024 };

// The location of the folder. Nothing stays open; the caller owns it, and uses it from one thread
// at a time.
typedef struct {
    char     path[TNI_DISK_PATH];  // "": off
    tni_text why;                  // why it is off
    int      kept;                 // files written through it
} tni_disk;

// The cache key of compiled code: all that it depends on, besides the version of this library.
// Absent texts are "".
typedef struct {
    const char *kind;  // what the payload is: "so", "cl", "cubin"; also the end of the file's name
    const char *source;    // the text that was compiled
    const char *options;   // how
    const char *compiler;  // by what, and which version of it
    const char *chip;      // for what
} tni_disk_key;

// The two hashes of a key: enough to find the payload and to recognize it, without keeping the
// texts.
typedef struct {
    uint64_t name[2], key[2];
} tni_disk_hash;

// A hash of bytes that may be stored, since it is the same in every process of this version.
void tni_disk_hash_bytes(const void *data, size_t n, uint64_t out[2]);

// Finds the folder from the environment; touches no file.
void tni_disk_open(tni_disk *d);

// Returns the payload of a key, to be freed by free(); NULL if there is none that can be trusted.
void *tni_disk_find(const tni_disk *d, const tni_disk_key *key, size_t *bytes);
// The same by the hashes of a key, and its kind.
tni_disk_hash tni_disk_hash_of(const tni_disk_key *key);
void *tni_disk_find_hash(const tni_disk *d, tni_disk_hash t, const char *kind, size_t *bytes);
// Stores a payload under a key, replacing an earlier one. False if it was not stored.
bool tni_disk_keep(tni_disk *d, const tni_disk_key *key, const void *payload, size_t bytes);

// Keeps other processes, and threads, from changing what has a kind, for those that read it, change
// it and store it again. Returns -1 if there is no lock to be had, or another keeps it for that
// many seconds: what is stored is whole in any case.
int  tni_disk_lock(const tni_disk *d, const char *kind, double seconds);
void tni_disk_unlock(int lock);

// Whether the folder can be used; makes it if it is missing. Else why has the reason, for people.
bool tni_disk_usable(const tni_disk *d, tni_text *why);

#endif
