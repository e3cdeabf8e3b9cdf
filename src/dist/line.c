// The line: rank 0 listens, the others connect, and a thread of each rank reads what comes. Rank 0 passes on
// what concerns all:
//
//   rank 2 -> 0   HELLO  token, world size, host and process number
//   0 -> all      PEER   one for each rank, when all are there
//   rank 2 -> 0   LEFT   the number of collectives, why            0 -> the others the same
//   0 -> all      LOST   a connection ended without LEFT
//   0 -> all      END    all have left: each may close its sockets
//
// A HELLO of another world, or of another version of these messages, is refused.
#include "dist/line.h"
#include "base/fd.h"

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

enum { HELLO = 1, PEER, LEFT, LOST, END };
enum { MAGIC = 0x544e4c31, TEXT_ROOM = 160 };  // "TNL1": a change of the messages changes it

// One message. Which fields count depends on the kind.
typedef struct {
    uint32_t magic, kind;
    int32_t  rank, size, pid;
    uint64_t number;
    uint8_t  token[16];
    char     text[TEXT_ROOM];  // LEFT: why; HELLO, PEER: the host
} message;

typedef enum { UP, HAS_LEFT, IS_LOST } peer_state;

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

// The line of one rank. The thread reads the sockets; whoever sends holds the lock, as does whoever looks at
// peers. Invariant: `broken` is set once any peer's state is not UP.
struct tni_line {
    int             rank, size;
    peer           *peer;  // size of them
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

// A machine that loses power sends nothing: after five seconds of silence the system asks, and gives the
// connection up after three questions without an answer. What is sent is small and goes at once.
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

// Messages are below the size that a socket's buffer takes whole, so a send does not wait. A peer that has
// died is an error here, not a signal.
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

// Says HELLO. Rank 0 answers with its own PEER once it knows this rank; another program that listens there
// would not.
static bool greet(tni_line *l, int fd, const tni_line_address *a, double deadline)
{
    message m = message_of(HELLO, l->rank);
    m.size    = l->size;
    m.pid     = (int32_t)getpid();
    memcpy(m.token, a->token, sizeof m.token);
    gethostname(m.text, sizeof m.text - 1);
    return send_message(fd, &m) && receive_by(fd, &m, deadline) && m.kind == HELLO;
}

// Tries the addresses of rank 0 once; each may take two seconds, since packets to an address that this
// machine cannot reach may be dropped without an answer.
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

// Rank 0 may start later than the others: they try again, at first every 20 ms, then every half second.
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

// Reads from one socket. A connection that ends takes its rank with it, unless that has left. Returns
// whether the socket is still of use.
static bool read_socket(tni_line *l, int rank, int fd)
{
    message m;
    bool    ok = receive_by(fd, &m, now() + 5);
    pthread_mutex_lock(&l->lock);
    if (!ok) m = message_of(LOST, rank);
    if (m.kind == END) l->ended = true;
    else note_gone(l, &m);
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
    close_fd(&l->wake[0]);
    close_fd(&l->wake[1]);
    if (l->has_lock) pthread_cond_destroy(&l->changed);
    if (l->has_lock) pthread_mutex_destroy(&l->lock);
    free(l->poll);
    free(l->peer);
    free(l);
}

// Makes a line without connections, in memory of the C library: the thread must not share a context's.
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

// Waits until all have left or one is lost. For whoever holds the lock.
static void wait_for_end(tni_line *l, double seconds)
{
    double          end   = now() + seconds;
    struct timespec until = { .tv_sec = (time_t)end };
    bool            lost  = false;
    until.tv_nsec         = (long)((end - (double)until.tv_sec) * 1e9);
    while (!l->ended && !lost) {
        for (int i = 0; i < l->size; i++)
            lost |= l->peer[i].state == IS_LOST ||
                    (l->peer[i].state == HAS_LEFT && *l->peer[i].why);
        if (!lost && pthread_cond_timedwait(&l->changed, &l->lock, &until) == ETIMEDOUT) break;
    }
}

bool tni_line_close(tni_line *l, uint64_t number, const char *failure, double seconds)
{
    if (!l) return true;
    message m = message_of(LEFT, l->rank);
    m.number  = number;
    snprintf(m.text, sizeof m.text, "%s", failure ? failure : "");
    pthread_mutex_lock(&l->lock);
    if (l->rank != 0) send_message(l->peer[0].fd, &m);
    note_gone(l, &m);
    if (!failure) wait_for_end(l, seconds);
    bool ended = l->ended;
    pthread_mutex_unlock(&l->lock);
    free_line(l);
    return ended;
}
