// The line between the ranks of a world: a TCP connection from each rank to rank 0, apart from the engine
// that moves tensors. It carries short messages, and shows when a rank has died: the system closes a
// connection with its process, whatever ended it, while an engine would wait for ever.
#ifndef TNI_DIST_LINE_H
#define TNI_DIST_LINE_H

#include "base/text.h"

typedef struct tni_line tni_line;

// Where rank 0 listens: what the other ranks have to know. Plain bytes, so that an engine can carry it.
// token proves that a connection is of this world and of no other.
typedef struct {
    char     host[480];  // names or numbers with spaces between them, to be tried in turn
    uint16_t port;
    uint8_t  token[16];
} tni_line_address;

// Opens the listening socket of rank 0, at any free port if port is 0; local: of this machine alone.
// Returns it, -1 with the reason if that fails.
int tni_line_listen(bool local, uint16_t port, tni_line_address *a, tni_text *why);
// Connects this rank with rank 0, which passes its listening socket (closed here); -1 for the others.
// Returns when all ranks are connected; NULL, with the reason, if they are not within `seconds`.
tni_line *tni_line_open(int rank, int size, const tni_line_address *a, int listening,
                        double seconds, tni_text *why);

// A rank in words: "rank 2 (process 4711 on node3)".
tni_text tni_line_name(const tni_line *l, int rank);
// Whether any rank is known to have ended: one load, for loops that wait.
bool tni_line_broken(const tni_line *l);
// Whether all ranks can take part in collective `number`, counted from 1; else who cannot, in *why: it has
// died, or left after fewer.
bool tni_line_up(tni_line *l, uint64_t number, tni_text *why);
// Leaves after `number` collectives, and closes the line. With a text, which is the reason of a failure,
// the others learn it, and nothing is waited for; without, the ranks wait for each other. Returns
// whether all have left in order.
bool tni_line_close(tni_line *l, uint64_t number, const char *failure, double seconds);

#endif
