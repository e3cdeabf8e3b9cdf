"""Functions of functions, with the names of torch.func: derivatives, and functions over a batch of examples."""
from __future__ import annotations

from typing import Any, Callable

from . import _c
from .autograd import enable_grad

__all__ = ["grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "scan", "vjp", "vmap"]


def _argnums(argnums: Any) -> tuple[tuple[int, ...], bool]:
    return ((argnums,), True) if isinstance(argnums, int) else (tuple(argnums), False)


def _at(function: Callable[..., Any], args: tuple[Any, ...], numbers: tuple[int, ...]) -> Callable[..., Any]:
    """The function of some of its arguments, the others being what they are."""
    def inside(*some: Any) -> Any:
        given = list(args)
        for i, x in zip(numbers, some):
            given[i] = x
        with enable_grad():
            return function(*given)
    return inside


def grad_and_value(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """A function that returns the gradients of func, whose result has one element, and its value."""
    numbers, single = _argnums(argnums)

    def inside(*args: Any) -> Any:
        y, *gx = _c.derive("vjp", _at(func, args, numbers), [args[i] for i in numbers], None)
        return (gx[0] if single else tuple(gx)), y
    return inside


def grad(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """A function that returns the gradients of func, whose result has one element, by some of its arguments."""
    both = grad_and_value(func, argnums)
    return lambda *args: both(*args)[0]


def vjp(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., tuple[Any, ...]]]:
    """func(*primals), and a function from a gradient of that to those of the primals."""
    numbers = tuple(range(len(primals)))
    inside = _at(func, primals, numbers)

    def pull(gy: Any = None) -> tuple[Any, ...]:
        return tuple(_c.derive("vjp", inside, primals, None if gy is None else [gy])[1:])
    return func(*primals), pull


def jvp(func: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """func(*primals), and how it changes as the primals move along the tangents."""
    y, dy = _c.derive("jvp", _at(func, tuple(primals), tuple(range(len(primals)))), list(primals), list(tangents))
    return y, dy


def jacrev(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """A function that returns the derivatives of all elements of func's result by all of some of its arguments."""
    numbers, single = _argnums(argnums)

    def inside(*args: Any) -> Any:
        j = _c.derive("jacobian", _at(func, args, numbers), [args[i] for i in numbers], None)
        return j[0] if single else tuple(j)
    return inside


jacfwd = jacrev  # there is one way to compute them


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Callable[..., Any]:
    """A function that returns the second derivatives of func, whose result has one element."""
    numbers, single = _argnums(argnums)

    def inside(*args: Any) -> Any:
        n = len(numbers)
        h = _c.derive("hessian", _at(func, args, numbers), [args[i] for i in numbers], None)
        return h[0] if single else tuple(tuple(h[i * n:i * n + n]) for i in range(n))
    return inside


def _flat(y: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The tensors of a result, which may be a tensor, a tuple, a list or a dict, and how to put others in their places."""
    if isinstance(y, _c.Tensor):
        return [y], lambda t: t.pop(0)
    if isinstance(y, dict):
        parts, keys = [_flat(v) for v in y.values()], list(y)
        return [t for p, _ in parts for t in p], lambda t: {k: put(t) for k, (_, put) in zip(keys, parts)}
    if isinstance(y, (tuple, list)):
        kind, parts = type(y), [_flat(v) for v in y]
        return [t for p, _ in parts for t in p], lambda t: kind([put(t) for _, put in parts])
    raise TypeError(f"vmap takes and returns tensors in tuples, lists and dicts, not {type(y).__name__}")


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: int = 0) -> Callable[..., Any]:
    """A function that runs func over an axis that it does not see: in_dims of each argument, or None: the same for all.

    Arguments and results are tensors, or tuples, lists and dicts of them. The ops of func are recorded with one axis more;
    where one has no rule for that, func becomes a loop over the examples, as by scan(). func is called twice, to record it.
    """
    def inside(*args: Any) -> Any:
        dims = tuple(in_dims) if isinstance(in_dims, (tuple, list)) else (in_dims,) * len(args)
        if len(dims) != len(args):
            raise ValueError(f"vmap: {len(dims)} in_dims for {len(args)} arguments")
        parts = [_flat(a) for a in args]
        flat = [t for p, _ in parts for t in p]
        axes = tuple(d for d, (p, _) in zip(dims, parts) for _ in p)

        def run(*tensors: Any) -> Any:
            rest = list(tensors)
            return func(*[put(rest) for _, put in parts])

        one = [t if d is None else _c.select(t, d, 0) for t, d in zip(flat, axes)]
        results, put = _flat(run(*one))
        return put(_c.vmap(lambda *t: _flat(run(*t))[0], flat, axes, len(results), out_dims))
    return inside


def scan(f: Callable[..., Any], init: Any, xs: Any, *, reverse: bool = False) -> tuple[Any, Any]:
    """Runs carry, y = f(carry, x) over the first axis of xs, as jax.lax.scan: the last carry, and all y.

    f is recorded once, and the loop runs inside of the plan, whatever the number of steps. carry, x and y are tensors, or
    tuples, lists and dicts of them.
    """
    carry, put_carry = _flat(init)
    seq, put_x = _flat(xs)
    made: list[Any] = []

    def run(*tensors: Any) -> Any:
        rest = list(tensors)
        c, y = f(put_carry(rest), put_x(rest))
        made[:] = [_flat(y)]
        return _flat(c)[0] + made[0][0]

    run(*carry, *[_c.select(x, 0, 0) for x in seq])
    ny = len(made[0][0])
    out = _c.scan(run, carry, seq, ny, reverse)
    return put_carry(out[:len(carry)]), made[0][1](out[len(carry):])
