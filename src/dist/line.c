// The line: rank 0 listens, the others connect, and a thread of each rank reads what comes. Rank 0
// passes on what concerns all:
//
//   rank 2 -> 0   HELLO  token, world size, host and process number
//   0 -> all      PEER   one for each rank, when all are there
//   rank 2 -> 0   LEFT   the number of collectives, why            0 -> the others the same
//   0 -> all      LOST   a connection ended without LEFT
//   0 -> all      END    all have left: each may close its sockets
//   0 -> all      SHARE  bytes that all need
//   rank 2 -> 0   ASK    what do the others do as this collective?       0 -> all QUERY, all -> 0 ANSWER
//   rank 2 -> 0   VOTE   whether it has failed, and why                  0 -> all VERDICT
//   0 -> rank 2   AGREED or, to all, DIFFERS, with the text of another rank
//   rank 2 -> 0   WHO    has not come to this collective?                0 -> rank 2 MISSING, with names
//
// A HELLO of another world, or of another version of these messages, is refused.
#include "dist/line.h"
#include "base/fd.h"
#include "base/hash.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

enum {
    HELLO = 1,
    PEER,
    LEFT,
    LOST,
    END,
    SHARE,
    ASK,
    QUERY,
    ANSWER,
    AGREED,
    DIFFERS,
    VOTE,
    VERDICT,
    WHO,
    MISSING
};
enum { MAGIC = 0x544e4c33, TEXT_ROOM = 160 };  // "TNL3": a change of the messages changes it

// One message. Which fields count depends on the kind.
typedef struct {
    uint32_t magic, kind;
    int32_t  rank, size, pid;
    uint64_t number, hash;
    uint8_t  token[16];
    char text[TEXT_ROOM];  // LEFT: why; HELLO, PEER: the host; ASK, ANSWER, DIFFERS: a collective
} message;

typedef enum { UP, HAS_LEFT, IS_LOST } peer_state;

// A question on rank 0, until all ranks have answered: what they do as collective `number`.
typedef struct question question;
struct question {
    uint64_t       number;
    int            answers;
    char          *state;  // by rank: of those below
    tni_line_item *item;   // by rank
    question      *next;
};
enum { NO_ANSWER, ANSWERED, ASKED };

// How many collectives back a rank can be asked, and how many questions it can owe an answer.
enum { HISTORY = 1024, QUERIES = 64 };

// A rank as the others know it.
typedef struct {
    int        fd;  // on rank 0, and of rank 0 on the others; -1: none
    int        pid;
    peer_state state;
    int        order;            // it was the n-th to be gone
    uint64_t   number;           // of collectives that it took part in before it left
    char       host[TEXT_ROOM];  // its machine
    char       why[TEXT_ROOM];   // it left; "" if in order
} peer;

// The line of one rank. The thread reads the sockets; whoever sends holds the lock, as does whoever
// looks at peers. Invariant: `broken` is set once any peer's state is not UP, or the ranks differ.
struct tni_line {
    int             rank, size;
    uint64_t        agreed;  // the last collective that all ranks agreed on
    int             votes;   // on rank 0, so far
    message         vote;    // on rank 0: of the least rank that failed, rank -1: none
    uint64_t        verdicts;
    message         verdict;  // the last
    uint64_t        namings;
    message         naming;  // the last MISSING
    uint64_t        shares;  // SHAREs that have come, the last one here
    uint8_t         shared[TNI_LINE_BYTES];
    message         differs;           // kind 0: none does
    uint64_t        begun;             // collectives, the last HISTORY of them here
    tni_line_item   did[HISTORY];      // by number
    uint64_t        owed[QUERIES];     // numbers that were asked for and are not begun yet; 0: none
    question       *question;          // on rank 0
    uint64_t        settled[HISTORY];  // on rank 0, by number: those that all ranks agreed on
    peer           *peer;              // size of them
    struct pollfd  *poll;  // of the thread: the sockets, then the end of a pipe that wakes it
    int             wake[2];
    int             gone;  // how many peers are not UP
    bool            ended, has_thread, has_lock;
    atomic_bool     broken, stop;
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  changed;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

// ---- sockets -----------------------------------------------------------------------------------

// A machine that loses power sends nothing: after five seconds of silence the system asks, and
// gives the connection up after three questions without an answer. What is sent is small and goes
// at once.
static void set_options(int fd)
{
    const struct {
        int level, name, value;
    } option[] = { { SOL_SOCKET, SO_KEEPALIVE, 1 },
                   { IPPROTO_TCP, TCP_NODELAY, 1 },
                   { IPPROTO_TCP, TCP_KEEPIDLE, 5 },
                   { IPPROTO_TCP, TCP_KEEPINTVL, 2 },
                   { IPPROTO_TCP, TCP_KEEPCNT, 3 } };
    for (size_t i = 0; i < sizeof option / sizeof *option; i++)
        setsockopt(fd, option[i].level, option[i].name, &option[i].value, sizeof(int));
}

// Waits until a socket can be read (POLLIN) or written (POLLOUT), or the deadline has passed.
static bool wait_for(int fd, short what, double deadline)
{
    for (;;) {
        double left = deadline - now();
        if (left <= 0) return false;
        int n = poll(&(struct pollfd){ .fd = fd, .events = what }, 1,
                     left > 1 ? 1000 : (int)(left * 1000) + 1);
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
}

// Messages are below the size that a socket's buffer takes whole, so a send does not wait. A peer
// that has died is an error here, not a signal.
static bool send_message(int fd, const message *m)
{
    const char *p    = (const char *)m;
    size_t      left = sizeof *m;
    while (fd >= 0 && left > 0) {
        ssize_t n = send(fd, p, left, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        left -= (size_t)n;
    }
    return fd >= 0;
}

// Receives one message before a deadline.
static bool receive_by(int fd, message *m, double deadline)
{
    char  *p    = (char *)m;
    size_t left = sizeof *m;
    while (left > 0) {
        if (!wait_for(fd, POLLIN, deadline)) return false;
        ssize_t n = recv(fd, p, left, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        left -= (size_t)n;
    }
    m->text[TEXT_ROOM - 1] = 0;
    return m->magic == MAGIC;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

// ---- the address of rank 0 ---------------------------------------------------------------------

// Adds a name to the list of hosts if there is room.
static void add_host(tni_line_address *a, const char *host)
{
    size_t n = strlen(a->host);
    if (n + strlen(host) + 2 <= sizeof a->host)
        snprintf(a->host + n, sizeof a->host - n, "%s%s", n ? " " : "", host);
}

// Lists the addresses of this machine: its own first, by which processes beside this one connect.
static void list_hosts(tni_line_address *a, bool local)
{
    struct ifaddrs *list = NULL;
    add_host(a, "127.0.0.1");
    if (local || getifaddrs(&list) != 0) return;
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        char      text[64];
        int       family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
        socklen_t n = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
        if ((family != AF_INET && family != AF_INET6) || i->ifa_flags & IFF_LOOPBACK) continue;
        if (!getnameinfo(i->ifa_addr, n, text, sizeof text, NULL, 0, NI_NUMERICHOST))
            add_host(a, text);
    }
    freeifaddrs(list);
}

// Binds and listens; IPv6 sockets take connections of IPv4 too. Sets the port.
static bool bind_and_listen(int fd, bool local, bool six, tni_line_address *a)
{
    struct sockaddr_in6     in6 = { .sin6_family = AF_INET6, .sin6_port = htons(a->port) };
    struct sockaddr_in      in4 = { .sin_family = AF_INET, .sin_port = htons(a->port) };
    struct sockaddr_storage got;
    socklen_t               n = sizeof got;
    in4.sin_addr.s_addr       = htonl(local ? INADDR_LOOPBACK : INADDR_ANY);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
    if (six) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){ 0 }, sizeof(int));
    int failed = six ? bind(fd, (struct sockaddr *)&in6, sizeof in6)
                     : bind(fd, (struct sockaddr *)&in4, sizeof in4);
    if (failed || listen(fd, 1024) || getsockname(fd, (struct sockaddr *)&got, &n)) return false;
    a->port = ntohs(six ? ((struct sockaddr_in6 *)&got)->sin6_port
                        : ((struct sockaddr_in *)&got)->sin_port);
    return true;
}

void tni_line_token(tni_line_address *a, const char *run)
{
    uint64_t half[2] = { tni_hash(run, strlen(run)), 0 };
    half[1]          = tni_hash(half, sizeof half);
    memcpy(a->token, half, sizeof a->token);
}

int tni_line_listen(bool local, uint16_t port, tni_line_address *a, tni_text *why)
{
    *a = (tni_line_address){ .port = port };
    list_hosts(a, local);
    if (getrandom(a->token, sizeof a->token, 0) != (ssize_t)sizeof a->token) {
        *why = tni_text_of("there are no random bytes: %s", strerror(errno));
        return -1;
    }
    for (int six = !local; six >= 0; six--) {  // IPv4 alone where there is no IPv6
        int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && bind_and_listen(fd, local, six, a)) return fd;
        *why = tni_text_of("port %d cannot be listened at: %s", a->port, strerror(errno));
        close_fd(&fd);
    }
    return -1;
}

// ---- connecting --------------------------------------------------------------------------------

static message message_of(int kind, int rank)
{
    return (message){ .magic = MAGIC, .kind = (uint32_t)kind, .rank = rank };
}

// Connects to one address of a host by a deadline; -1 if that fails.
static int connect_to(const struct addrinfo *to, double deadline)
{
    int       error = 0;
    socklen_t n     = sizeof error;
    int       fd    = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    bool ok = connect(fd, to->ai_addr, to->ai_addrlen) == 0 || errno == EINPROGRESS;
    ok      = ok && wait_for(fd, POLLOUT, deadline) &&
         !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) && !error;
    if (!ok) {
        close(fd);
        return -1;
    }
    fcntl(fd, F_SETFL, 0);  // from here on a send may wait
    set_options(fd);
    return fd;
}

// Says HELLO. Rank 0 answers with its own PEER once it knows this rank; another program that
// listens there would not.
static bool greet(tni_line *l, int fd, const tni_line_address *a, double deadline)
{
    message m = message_of(HELLO, l->rank);
    m.size    = l->size;
    m.pid     = (int32_t)getpid();
    memcpy(m.token, a->token, sizeof m.token);
    gethostname(m.text, sizeof m.text - 1);
    return send_message(fd, &m) && receive_by(fd, &m, deadline) && m.kind == HELLO;
}

// Tries the addresses of rank 0 once; each may take two seconds, since packets to an address that
// this machine cannot reach may be dropped without an answer.
static int try_hosts(tni_line *l, const tni_line_address *a, double deadline)
{
    char hosts[sizeof a->host], port[8], *rest = hosts, *host;
    memcpy(hosts, a->host, sizeof hosts);
    hosts[sizeof hosts - 1] = 0;
    snprintf(port, sizeof port, "%u", a->port);
    while ((host = strtok_r(rest, " ", &rest)) != NULL) {
        struct addrinfo *list = NULL, hints = { .ai_socktype = SOCK_STREAM };
        double           limit = now() + 2 < deadline ? now() + 2 : deadline;
        if (getaddrinfo(host, port, &hints, &list) != 0) continue;
        for (struct addrinfo *i = list; i; i = i->ai_next) {
            int fd = connect_to(i, limit);
            if (fd >= 0 && greet(l, fd, a, limit)) {
                freeaddrinfo(list);
                return fd;
            }
            close_fd(&fd);
        }
        freeaddrinfo(list);
    }
    return -1;
}

static void know_peer(tni_line *l, const message *m)
{
    if (m->rank < 0 || m->rank >= l->size) return;
    peer *p = &l->peer[m->rank];
    p->pid  = m->pid;
    snprintf(p->host, sizeof p->host, "%s", m->text);
}

// Rank 0 may start later than the others: they try again, at first every 20 ms, then every half
// second.
static bool connect_rank(tni_line *l, const tni_line_address *a, double deadline, tni_text *why)
{
    int fd = -1;
    for (int ms = 20; (fd = try_hosts(l, a, deadline)) < 0 && now() < deadline;
         ms     = ms < 500 ? ms * 2 : 500)
        sleep_ms(ms);
    l->peer[0].fd = fd;
    if (fd < 0) {
        *why = tni_text_of("rank 0 does not answer at %.100s, port %d", a->host, a->port);
        return false;
    }
    for (int i = 0; i < l->size; i++) {
        message m;
        if (!receive_by(fd, &m, deadline) || m.kind != PEER) {
            *why = tni_text_of("not all of %d ranks have come", l->size);
            return false;
        }
        know_peer(l, &m);
    }
    return true;
}

// Takes one connection: the HELLO of a rank that is still missing. Everything else is closed again.
static bool take_connection(tni_line *l, int listening, const tni_line_address *a, double deadline)
{
    message m;
    int     fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return false;
    set_options(fd);
    double limit = now() + 2 < deadline ? now() + 2 : deadline;
    bool   ok    = receive_by(fd, &m, limit) && m.kind == HELLO && m.size == l->size &&
              !memcmp(m.token, a->token, sizeof m.token) && m.rank > 0 && m.rank < l->size &&
              l->peer[m.rank].fd < 0;
    message answer = message_of(HELLO, 0);
    ok             = ok && send_message(fd, &answer);
    if (ok) {
        l->peer[m.rank].fd = fd;
        know_peer(l, &m);
    } else close_fd(&fd);
    return ok;
}

static bool send_peers(tni_line *l)
{
    bool ok = true;
    for (int to = 1; to < l->size; to++)
        for (int i = 0; i < l->size; i++) {
            message m = message_of(PEER, i);
            m.pid     = l->peer[i].pid;
            memcpy(m.text, l->peer[i].host, sizeof m.text);
            ok &= send_message(l->peer[to].fd, &m);
        }
    return ok;
}

static bool accept_ranks(tni_line *l, const tni_line_address *a, int listening, double deadline,
                         tni_text *why)
{
    int missing = l->size - 1;
    while (missing > 0 && wait_for(listening, POLLIN, deadline))
        missing -= take_connection(l, listening, a, deadline);
    if (!missing && send_peers(l)) return true;
    *why = tni_text_of(missing ? "%d of %d ranks have not come:" : "a rank ended at once", missing,
                       l->size);
    for (int i = 1; missing && i < l->size; i++)
        if (l->peer[i].fd < 0) tni_text_add(why, " %d", i);
    return false;
}

// ---- the thread --------------------------------------------------------------------------------

// Sends a message to all ranks that are connected to this one, except those it is about.
static void pass_on(tni_line *l, const message *m)
{
    for (int i = 0; i < l->size; i++)
        if (i != m->rank && l->peer[i].fd >= 0) send_message(l->peer[i].fd, m);
}

// On rank 0, when all have left: the others may close their sockets.
static void end_if_all_left(tni_line *l)
{
    for (int i = 0; i < l->size; i++)
        if (l->rank != 0 || l->peer[i].state != HAS_LEFT) return;
    message m = message_of(END, -1);
    pass_on(l, &m);
    l->ended = true;
}

// Notes that a rank is gone, in the way that the message says, and on rank 0 passes it on.
static void note_gone(tni_line *l, const message *m)
{
    if (m->rank < 0 || m->rank >= l->size || l->peer[m->rank].state != UP) return;
    peer *p   = &l->peer[m->rank];
    p->state  = m->kind == LEFT ? HAS_LEFT : IS_LOST;
    p->number = m->number;
    p->order  = ++l->gone;
    snprintf(p->why, sizeof p->why, "%s", m->text);
    if (l->rank == 0) pass_on(l, m);
    atomic_store(&l->broken, true);
    end_if_all_left(l);
}

// ---- agreeing ----------------------------------------------------------------------------------

static void take_message(tni_line *l, const message *m);

// Tells a rank something. Whoever calls holds the lock, here and below.
static void tell(tni_line *l, int rank, const message *m)
{
    if (rank == l->rank) take_message(l, m);
    else send_message(l->peer[rank].fd, m);
}

static message message_with(int kind, int rank, uint64_t number, const tni_line_item *item)
{
    message m = message_of(kind, rank);
    m.number  = number;
    m.hash    = item->hash;
    snprintf(m.text, sizeof m.text, "%s", item->what);
    return m;
}

// Answers a question, or notes that an answer is owed. Of what is too long ago nothing is known:
// hash 0.
static void answer_query(tni_line *l, uint64_t number)
{
    static const tni_line_item forgotten = { .hash = 0 };
    if (number > l->begun) {
        for (int i = 0; i < QUERIES; i++)
            if (!l->owed[i]) {
                l->owed[i] = number;
                return;
            }
        return;
    }
    bool    known = number + HISTORY > l->begun;
    message m     = message_with(ANSWER, l->rank, number,
                             known ? &l->did[number % HISTORY] : &forgotten);
    tell(l, 0, &m);
}

static void free_question(tni_line *l, question *q)
{
    question **at = &l->question;
    while (*at && *at != q) at = &(*at)->next;
    if (*at) *at = q->next;
    free(q->state);
    free(q->item);
    free(q);
}

// Returns the question about a collective, and asks all ranks if it is new; NULL when memory is
// out.
static question *question_of(tni_line *l, uint64_t number)
{
    question *q = l->question;
    while (q && q->number != number) q = q->next;
    if (q) return q;
    q = calloc(1, sizeof *q);
    if (!q) return NULL;
    q->number   = number;
    q->state    = calloc((size_t)l->size, sizeof *q->state);
    q->item     = calloc((size_t)l->size, sizeof *q->item);
    q->next     = l->question;
    l->question = q;
    if (!q->state || !q->item) {
        free_question(l, q);
        return NULL;
    }
    return q;
}

// Returns a rank whose answer differs from that of rank r; -1 if none does.
static int other_answer(const tni_line *l, const question *q, int r)
{
    uint64_t mine = q->item[r].hash;
    for (int i = 0; mine && i < l->size; i++)
        if (q->item[i].hash && q->item[i].hash != mine) return i;
    return -1;
}

// Tells all ranks what came out. Two that have the same words did something else before.
static void settle(tni_line *l, question *q)
{
    bool equal = true;
    for (int r = 0; r < l->size; r++) {
        int other = other_answer(l, q, r);
        if (other < 0) continue;
        message  m    = message_of(DIFFERS, other);
        tni_text text = tni_text_of("%s here, %s", q->item[r].what, q->item[other].what);
        if (!strcmp(q->item[r].what, q->item[other].what))
            text = tni_text_of("%s follows others that differ", q->item[r].what);
        m.number = q->number;
        memcpy(m.text, text.s, sizeof m.text - 1);
        equal = false;
        tell(l, r, &m);
    }
    message m = message_of(AGREED, -1);
    m.number  = q->number;
    if (equal) l->settled[q->number % HISTORY] = q->number;
    for (int r = 0; equal && r < l->size; r++)
        if (q->state[r] == ASKED) tell(l, r, &m);
}

// Puts a new question to the ranks that have not answered it, to this one last: its answer comes at
// once. Ranks that have left after as many collectives took part in it.
static void put_question(tni_line *l, question *q)
{
    message m = message_of(QUERY, -1);
    m.number  = q->number;
    for (int r = l->size - 1; r >= 0; r--) {
        if (q->state[r] != NO_ANSWER) continue;
        if (l->peer[r].state == HAS_LEFT && l->peer[r].number >= q->number) {
            q->state[r] = ANSWERED;
            q->answers++;
        } else tell(l, r, &m);
    }
}

// Takes what a rank says that it does. A rank that asks has answered. What was settled already,
// before a rank asked, needs no question, nor is there one if memory is out.
static void take_answer(tni_line *l, const message *m)
{
    if (l->rank != 0 || m->rank < 0 || m->rank >= l->size) return;
    bool      asks = m->kind == ASK, new = true;
    question *q = l->question;
    for (; q && new; q = new ? q->next : q) new = q->number != m->number;
    if (new && !asks) return;  // it was settled without this answer
    bool known = l->settled[m->number % HISTORY] == m->number;
    q          = known ? NULL : question_of(l, m->number);
    if (!q) {
        message yes = message_of(AGREED, -1);
        yes.number  = m->number;
        tell(l, m->rank, &yes);
        return;
    }
    q->answers += q->state[m->rank] == NO_ANSWER;
    if (asks) q->state[m->rank] = ASKED;
    else if (!q->state[m->rank]) q->state[m->rank] = ANSWERED;
    q->item[m->rank].hash = m->hash;
    snprintf(q->item[m->rank].what, sizeof q->item->what, "%.*s", (int)sizeof q->item->what - 1,
             m->text);
    if (new) put_question(l, q);
    q = l->question;
    while (q && q->number != m->number) q = q->next;
    if (!q || q->answers < l->size) return;
    settle(l, q);
    free_question(l, q);
}

// Counts a vote, on rank 0, and says what came out when all have voted.
static void take_vote(tni_line *l, const message *m)
{
    if (!l->votes) l->vote = message_of(VERDICT, -1);
    if (*m->text && (l->vote.rank < 0 || m->rank < l->vote.rank)) {
        l->vote.rank = m->rank;
        memcpy(l->vote.text, m->text, sizeof m->text);
    }
    l->vote.number += m->number;
    l->vote.hash += m->hash;
    if (++l->votes < l->size) return;
    l->votes = 0;
    for (int r = l->size - 1; r >= 0; r--) tell(l, r, &l->vote);
}

// Tells a rank, from rank 0, who has not answered the question about a collective.
static void say_missing(tni_line *l, int to, uint64_t number)
{
    message   m     = message_of(MISSING, -1);
    tni_text  names = { "" };
    question *q     = l->question;
    while (q && q->number != number) q = q->next;
    for (int r = 0; q && r < l->size; r++)
        if (q->state[r] == NO_ANSWER)
            tni_text_add(&names, "%s%s", *names.s ? ", " : "", tni_line_name(l, r).s);
    snprintf(m.text, sizeof m.text, "%.*s", TEXT_ROOM - 1, names.s);
    tell(l, to, &m);
}

// Acts on a message. For whoever holds the lock.
static void take_message(tni_line *l, const message *m)
{
    switch (m->kind) {
    case END: l->ended = true; break;
    case SHARE:
        memcpy(l->shared, m->text, sizeof l->shared);
        l->shares++;
        break;
    case ASK:
    case ANSWER: take_answer(l, m); break;
    case VOTE: take_vote(l, m); break;
    case VERDICT:
        l->verdict = *m;
        l->verdicts++;
        break;
    case WHO: say_missing(l, m->rank, m->number); break;
    case MISSING:
        l->naming = *m;
        l->namings++;
        break;
    case QUERY: answer_query(l, m->number); break;
    case AGREED:
        if (m->number > l->agreed) l->agreed = m->number;
        break;
    case DIFFERS:
        if (!l->differs.kind) l->differs = *m;
        atomic_store(&l->broken, true);
        break;
    default: note_gone(l, m); break;
    }
    pthread_cond_broadcast(&l->changed);
}

// Reads from one socket. A connection that ends takes its rank with it, unless that has left.
// Returns whether the socket is still of use.
static bool read_socket(tni_line *l, int rank, int fd)
{
    message m;
    bool    ok = receive_by(fd, &m, now() + 5);
    pthread_mutex_lock(&l->lock);
    if (!ok) m = message_of(LOST, rank);
    take_message(l, &m);
    if (!ok) close_fd(&l->peer[rank].fd);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return ok;
}

static void *watch(void *arg)
{
    tni_line *l = arg;
    while (!atomic_load(&l->stop)) {
        if (poll(l->poll, (nfds_t)l->size + 1, -1) < 0 && errno != EINTR) break;
        for (int i = 0; i < l->size; i++)
            if (l->poll[i].fd >= 0 && l->poll[i].revents && !read_socket(l, i, l->poll[i].fd))
                l->poll[i].fd = -1;
    }
    return NULL;
}

// ---- opening and closing -----------------------------------------------------------------------

static void free_line(tni_line *l)
{
    if (!l) return;
    atomic_store(&l->stop, true);
    if (l->has_thread) {
        (void)!write(l->wake[1], "", 1);
        pthread_join(l->thread, NULL);
    }
    for (int i = 0; l->peer && i < l->size; i++) close_fd(&l->peer[i].fd);
    while (l->question) free_question(l, l->question);
    close_fd(&l->wake[0]);
    close_fd(&l->wake[1]);
    if (l->has_lock) pthread_cond_destroy(&l->changed);
    if (l->has_lock) pthread_mutex_destroy(&l->lock);
    free(l->poll);
    free(l->peer);
    free(l);
}

// Makes a line without connections, in memory of the C library: the thread must not share a
// context's.
static tni_line *new_line(int rank, int size)
{
    pthread_condattr_t attr;
    tni_line          *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    *l      = (tni_line){ .rank = rank, .size = size, .wake = { -1, -1 } };
    l->peer = calloc((size_t)size, sizeof *l->peer);
    l->poll = calloc((size_t)size + 1, sizeof *l->poll);
    for (int i = 0; l->peer && i < size; i++) l->peer[i].fd = -1;
    if (!l->peer || !l->poll || pipe2(l->wake, O_CLOEXEC) != 0 || pthread_condattr_init(&attr)) {
        free_line(l);
        return NULL;
    }
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, &attr);
    pthread_condattr_destroy(&attr);
    l->has_lock       = true;
    l->peer[rank].pid = (int)getpid();
    gethostname(l->peer[rank].host, TEXT_ROOM - 1);
    return l;
}

static bool start_thread(tni_line *l)
{
    for (int i = 0; i < l->size; i++)
        l->poll[i] = (struct pollfd){ .fd = l->peer[i].fd, .events = POLLIN };
    l->poll[l->size]     = (struct pollfd){ .fd = l->wake[0], .events = POLLIN };
    return l->has_thread = pthread_create(&l->thread, NULL, watch, l) == 0;
}

tni_line *tni_line_open(int rank, int size, const tni_line_address *a, int listening,
                        double seconds, tni_text *why)
{
    double    deadline = now() + seconds;
    tni_line *l        = new_line(rank, size);
    bool      ok       = l != NULL;
    if (!ok) *why = tni_text_of("out of memory");
    if (ok && rank == 0) ok = accept_ranks(l, a, listening, deadline, why);
    else if (ok) ok = connect_rank(l, a, deadline, why);
    if (listening >= 0) close(listening);
    if (ok && !start_thread(l)) {
        *why = tni_text_of("no thread can be started");
        ok   = false;
    }
    if (ok) return l;
    free_line(l);
    return NULL;
}

bool tni_line_broken(const tni_line *l)
{
    return atomic_load_explicit(&l->broken, memory_order_relaxed);
}

tni_text tni_line_name(const tni_line *l, int rank)
{
    const peer *p = &l->peer[rank];
    return tni_text_of("rank %d (process %d on %.40s)", rank, p->pid, p->host);
}

// The first that was gone is named: the others may have left because of it.
bool tni_line_up(tni_line *l, uint64_t number, tni_text *why)
{
    if (!tni_line_broken(l)) return true;
    const peer *p = NULL;
    pthread_mutex_lock(&l->lock);
    if (l->differs.kind) {
        bool after = strstr(l->differs.text, " follows others") != NULL;
        *why = tni_text_of("collective %llu%s %s on rank %d", (unsigned long long)l->differs.number,
                           after ? "," : " differs:", l->differs.text, l->differs.rank);
        pthread_mutex_unlock(&l->lock);
        return false;
    }
    for (int i = 0; i < l->size; i++) {
        const peer *q    = &l->peer[i];
        bool        gone = q->state == IS_LOST || (q->state == HAS_LEFT && q->number < number);
        if (gone && i != l->rank && (!p || q->order < p->order)) p = q;
    }
    if (p) {
        *why = tni_line_name(l, (int)(p - l->peer));
        tni_text_add(why, " ");
        if (p->state == IS_LOST) tni_text_add(why, "has died");
        else if (*p->why) tni_text_add(why, "failed: %s", p->why);
        else tni_text_add(why, "left after %llu collectives", (unsigned long long)p->number);
    }
    pthread_mutex_unlock(&l->lock);
    return p == NULL;
}

// ---- asking the others -------------------------------------------------------------------------

// Waits for the thread to change something, a moment at most. For whoever holds the lock.
static void wait_for_change(tni_line *l)
{
    double          end   = now() + 0.1;
    struct timespec until = { .tv_sec = (time_t)end };
    until.tv_nsec         = (long)((end - (double)until.tv_sec) * 1e9);
    pthread_cond_timedwait(&l->changed, &l->lock, &until);
}

// Rank 0's thread answers at once, also where that rank hangs.
tni_text tni_line_missing(tni_line *l, uint64_t number)
{
    message m   = message_of(WHO, l->rank);
    double  end = now() + 0.5;
    m.number    = number;
    pthread_mutex_lock(&l->lock);
    uint64_t next = l->namings + 1;
    tell(l, 0, &m);
    while (l->namings < next && now() < end) wait_for_change(l);
    tni_text who = tni_text_of("%s", l->namings < next ? "" : l->naming.text);
    pthread_mutex_unlock(&l->lock);
    return who;
}

// Waits until a count is `least`. False, with the reason, if a rank is gone or time is out.
static bool wait_past(tni_line *l, const uint64_t *count, uint64_t least, uint64_t number,
                      double seconds, tni_text *why)
{
    double deadline = now() + seconds;
    bool   ok       = true;
    pthread_mutex_lock(&l->lock);
    while (ok && *count < least) {
        wait_for_change(l);
        if (*count >= least) break;
        pthread_mutex_unlock(&l->lock);
        ok = tni_line_up(l, number, why);
        if (ok && now() > deadline) {
            tni_text who = tni_line_missing(l, number);
            *why = tni_text_of("not all ranks have come to collective %llu within %g seconds",
                               (unsigned long long)number, seconds);
            if (*who.s) tni_text_add(why, ": missing are %s", who.s);
            ok = false;
        }
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return ok;
}

bool tni_line_share(tni_line *l, void *bytes, size_t n, double seconds, tni_text *why)
{
    if (l->rank != 0) {
        if (!wait_past(l, &l->shares, 1, 1, seconds, why)) return false;
        memcpy(bytes, l->shared, n);
        return true;
    }
    message m = message_of(SHARE, 0);
    memcpy(m.text, bytes, n);
    pthread_mutex_lock(&l->lock);
    pass_on(l, &m);
    pthread_mutex_unlock(&l->lock);
    return true;
}

void tni_line_begins(tni_line *l, uint64_t number, const tni_line_item *item)
{
    pthread_mutex_lock(&l->lock);
    l->begun                 = number;
    l->did[number % HISTORY] = *item;
    for (int i = 0; i < QUERIES; i++) {
        if (!l->owed[i] || l->owed[i] > number) continue;
        uint64_t owed = l->owed[i];
        l->owed[i]    = 0;
        answer_query(l, owed);
    }
    pthread_mutex_unlock(&l->lock);
}

void tni_line_ask(tni_line *l, uint64_t number, const tni_line_item *item)
{
    message m = message_with(ASK, l->rank, number, item);
    pthread_mutex_lock(&l->lock);
    tell(l, 0, &m);
    pthread_mutex_unlock(&l->lock);
}

bool tni_line_agreed(tni_line *l, uint64_t number, double seconds, tni_text *why)
{
    return wait_past(l, &l->agreed, number, number, seconds, why);
}

bool tni_line_agree(tni_line *l, uint64_t number, const tni_line_item *item, double seconds,
                    tni_text *why)
{
    tni_line_ask(l, number, item);
    return tni_line_agreed(l, number, seconds, why);
}

// Rank 0 counts the votes, its own among them, and sends the verdict to all.
bool tni_line_vote(tni_line *l, uint64_t number, const char *failure, uint64_t sum[2],
                   double seconds, int *first, tni_text *reason, tni_text *why)
{
    message m = message_of(VOTE, l->rank);
    if (sum) m.number = sum[0];
    if (sum) m.hash = sum[1];
    snprintf(m.text, sizeof m.text, "%s", failure ? failure : "");
    if (failure && !*failure) snprintf(m.text, sizeof m.text, "it failed");
    pthread_mutex_lock(&l->lock);
    uint64_t next = l->verdicts + 1;
    tell(l, 0, &m);
    pthread_mutex_unlock(&l->lock);
    if (!wait_past(l, &l->verdicts, next, number, seconds, why)) return false;
    pthread_mutex_lock(&l->lock);
    *first  = l->verdict.rank;
    *reason = tni_text_of("%s", l->verdict.text);
    if (sum) sum[0] = l->verdict.number;
    if (sum) sum[1] = l->verdict.hash;
    pthread_mutex_unlock(&l->lock);
    return true;
}

// ---- leaving -----------------------------------------------------------------------------------

// Whether no rank is known to have died or failed. For whoever holds the lock.
static bool in_order(const tni_line *l)
{
    for (int i = 0; i < l->size; i++) {
        const peer *p = &l->peer[i];
        if (p->state == IS_LOST || (p->state == HAS_LEFT && *p->why)) return false;
    }
    return true;
}

bool tni_line_in_order(tni_line *l)
{
    pthread_mutex_lock(&l->lock);
    bool ok = in_order(l);
    pthread_mutex_unlock(&l->lock);
    return ok;
}

// Waits until all have left or one is lost. For whoever holds the lock.
static void wait_for_end(tni_line *l, double seconds)
{
    double          end   = now() + seconds;
    struct timespec until = { .tv_sec = (time_t)end };
    until.tv_nsec         = (long)((end - (double)until.tv_sec) * 1e9);
    while (!l->ended && in_order(l))
        if (pthread_cond_timedwait(&l->changed, &l->lock, &until) == ETIMEDOUT) break;
}

// Says that this rank is gone, and why. For whoever holds the lock.
static void say_left(tni_line *l, uint64_t number, const char *failure)
{
    message m = message_of(LEFT, l->rank);
    m.number  = number;
    snprintf(m.text, sizeof m.text, "%s", failure ? failure : "");
    if (l->peer[l->rank].state == UP && l->rank != 0) send_message(l->peer[0].fd, &m);
    note_gone(l, &m);
}

void tni_line_leave(tni_line *l, uint64_t number, const char *failure)
{
    pthread_mutex_lock(&l->lock);
    say_left(l, number, failure);
    pthread_mutex_unlock(&l->lock);
}

bool tni_line_close(tni_line *l, bool wait, double seconds)
{
    if (!l) return true;
    pthread_mutex_lock(&l->lock);
    if (wait) wait_for_end(l, seconds);
    bool ended = l->ended && in_order(l);
    pthread_mutex_unlock(&l->lock);
    free_line(l);
    return ended;
}
