// The calls of MPI that take handles. Included once for each type of handle, with
//
//   HANDLE     the type: a pointer (Open MPI, the standard interface) or int (MPICH)
//   NAMED(x)   the name of x in this copy
//   OF(h)      a tni_mpi_handle as a HANDLE
//
// and undefines them. A row is a function of MPI that has a handle among its parameters.
#define CALLS                                                                                    \
    CALL(Comm_dup, (HANDLE comm, HANDLE * copy))                                                 \
    CALL(Comm_free, (HANDLE * comm))                                                             \
    CALL(Comm_rank, (HANDLE comm, int *rank))                                                    \
    CALL(Comm_size, (HANDLE comm, int *size))                                                    \
    CALL(Comm_set_errhandler, (HANDLE comm, HANDLE handler))                                     \
    CALL(Barrier, (HANDLE comm))                                                                 \
    CALL(Bcast, (void *data, int count, HANDLE type, int root, HANDLE comm))                     \
    CALL(Allreduce, (const void *in, void *out, int count, HANDLE type, HANDLE op, HANDLE comm)) \
    CALL(Allgather, (const void *in, int in_count, HANDLE in_type, void *out, int out_count,     \
                     HANDLE out_type, HANDLE comm))                                              \
    CALL(Reduce_scatter_block,                                                                   \
         (const void *in, void *out, int count, HANDLE type, HANDLE op, HANDLE comm))            \
    CALL(Iallreduce, (const void *in, void *out, int count, HANDLE type, HANDLE op, HANDLE comm, \
                      HANDLE *request))                                                          \
    CALL(Test, (HANDLE * request, int *done, void *status))

typedef struct {
#define CALL(name, params) int(*name) params;
    CALLS
#undef CALL
} NAMED(calls);

// Looks the functions up. Returns the name of one that is missing, or NULL.
static const char *NAMED(find_calls)(NAMED(calls) * f, void *lib)
{
#define CALL(name, params) \
    if (!find_symbol(lib, "MPI_" #name, &f->name, sizeof f->name)) return "MPI_" #name;
    CALLS
#undef CALL
    return NULL;
}

// Copies the world, so that messages of ours meet none of the program's, and has errors returned.
static int NAMED(open)(const NAMED(calls) * f, mpi_library *m, int *rank, int *size)
{
    HANDLE copy;
    int    error = f->Comm_dup(OF(m->world), &copy);
    if (error) return error;
    m->comm = (tni_mpi_handle){ 0 };
    memcpy(&m->comm, &copy, sizeof copy);
    error = f->Comm_set_errhandler(copy, OF(m->errors_return));
    if (!error) error = f->Comm_rank(copy, rank);
    return error ? error : f->Comm_size(copy, size);
}

static int NAMED(close)(const NAMED(calls) * f, mpi_library *m)
{
    HANDLE comm = OF(m->comm);
    return f->Comm_free(&comm);
}

// Runs a collective of `count` elements to its end.
static int NAMED(run)(const NAMED(calls) * f, const mpi_library *m, const tni_collective *c,
                      int count)
{
    HANDLE      comm = OF(m->comm), type = OF(m->type[c->dtype]), op = OF(m->op[c->op]);
    const void *in = c->in == c->out ? m->in_place : c->in;
    switch (c->kind) {
    case TNI_BARRIER: return f->Barrier(comm);
    case TNI_BROADCAST: return f->Bcast(c->out, count, type, c->root, comm);
    case TNI_ALL_REDUCE: return f->Allreduce(in, c->out, count, type, op, comm);
    case TNI_ALL_GATHER: return f->Allgather(c->in, count, type, c->out, count, type, comm);
    case TNI_REDUCE_SCATTER: return f->Reduce_scatter_block(c->in, c->out, count, type, op, comm);
    }
    return 0;
}

// Begins an all-reduce, in place, and tests whether it is done.
static int NAMED(start)(const NAMED(calls) * f, const mpi_library *m, const tni_collective *c,
                        tni_mpi_handle *request)
{
    HANDLE r;
    int    error = f->Iallreduce(m->in_place, c->out, (int)c->count, OF(m->type[c->dtype]),
                                 OF(m->op[c->op]), OF(m->comm), &r);
    memcpy(request, &r, sizeof r);
    return error;
}

static int NAMED(test)(const NAMED(calls) * f, tni_mpi_handle *request, int *done)
{
    HANDLE  r = OF(*request);
    int64_t status[16];  // larger than that of any library
    int     error = f->Test(&r, done, status);
    memcpy(request, &r, sizeof r);
    return error;
}

#undef CALLS
#undef HANDLE
#undef NAMED
#undef OF
