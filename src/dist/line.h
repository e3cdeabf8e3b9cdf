// The line between the ranks of a world: a TCP connection from each rank to rank 0, apart from the
// engine that moves tensors. It carries short messages, and shows when a rank has died: the system
// closes a connection with its process, whatever ended it, while an engine would wait for ever.
#ifndef TNI_DIST_LINE_H
#define TNI_DIST_LINE_H

#include "base/text.h"

typedef struct tni_line tni_line;

// Where rank 0 listens: what the other ranks have to know. Plain bytes, so that an engine can carry
// it. token proves that a connection is of this world and of no other.
typedef struct {
    char     host[480];  // names or numbers with spaces between them, to be tried in turn
    uint16_t port;
    uint8_t  token[16];
} tni_line_address;

// Opens the listening socket of rank 0, at any free port if port is 0; local: of this machine
// alone. Returns it, -1 with the reason if that fails.
int tni_line_listen(bool local, uint16_t port, tni_line_address *a, tni_text *why);
// Makes the token of an address that no engine carries from what all ranks know: a name of the run.
void tni_line_token(tni_line_address *a, const char *run);
// Connects this rank with rank 0, which passes its listening socket (closed here); -1 for the
// others. Returns when all ranks are connected; NULL, with the reason, if they are not within
// `seconds`.
tni_line *tni_line_open(int rank, int size, const tni_line_address *a, int listening,
                        double seconds, tni_text *why);

// A rank in words: "rank 2 (process 4711 on node3)".
tni_text tni_line_name(const tni_line *l, int rank);
// Whether any rank is known to have ended, or to do something else: one load, for loops that wait.
bool tni_line_broken(const tni_line *l);
// Whether all ranks can take part in collective `number`, counted from 1; else who cannot, in *why:
// it has died, left after fewer, or does another one.
bool tni_line_up(tni_line *l, uint64_t number, tni_text *why);

// Gives all ranks rank 0's bytes, at most TNI_LINE_BYTES. All ranks call it.
enum { TNI_LINE_BYTES = 128 };
bool tni_line_share(tni_line *l, void *bytes, size_t n, double seconds, tni_text *why);

// A collective of a rank: the hash of all that has to be equal on all ranks, and the same in words.
typedef struct {
    uint64_t hash;
    char     what[80];
} tni_line_item;

// Notes that this rank begins a collective, numbered from 1 one after the other, for others that
// ask.
void tni_line_begins(tni_line *l, uint64_t number, const tni_line_item *item);
// Asks what the other ranks do as that collective. Those that have begun it answer without
// noticing, the others when they do. If they differ, tni_line_up says so from then on, on all
// ranks.
void tni_line_ask(tni_line *l, uint64_t number, const tni_line_item *item);
// Waits for the answers to tni_line_ask. False, with two that differ, if they are not equal; or if
// a rank is gone or does not come in time.
bool tni_line_agreed(tni_line *l, uint64_t number, double seconds, tni_text *why);
// Both, one after the other.
bool tni_line_agree(tni_line *l, uint64_t number, const tni_line_item *item, double seconds,
                    tni_text *why);

// Says which ranks have not come to a collective that was asked for: "rank 2 (process 4711 on
// node3)"; "" if that is not known.
tni_text tni_line_missing(tni_line *l, uint64_t number);

// Tells all ranks whether one has failed at something, at a place where all of them call it:
// failure is this rank's reason, NULL if it is well. *first: the least rank that failed, -1 for
// none; *reason: its own. sum: two numbers, which become the sums of all ranks'; may be NULL.
// False, with why, if a rank is gone or does not come.
bool tni_line_vote(tni_line *l, uint64_t number, const char *failure, uint64_t sum[2],
                   double seconds, int *first, tni_text *reason, tni_text *why);

// Tells the others that this rank leaves after `number` collectives: their calls that need it for
// more fail. failure: why, if it failed; NULL: in order. The line stays open. A rank leaves once.
void tni_line_leave(tni_line *l, uint64_t number, const char *failure);
// Whether no rank has died or failed, as far as is known. Those that have left in order do not
// count.
bool tni_line_in_order(tni_line *l);
// Closes the line; with `wait`, after all ranks have left, or one has died or failed. Returns
// whether all have left in order.
bool tni_line_close(tni_line *l, bool wait, double seconds);

#endif
