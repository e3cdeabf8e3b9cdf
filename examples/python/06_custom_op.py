"""06_custom_op.py: ops of your own: one expression, and functions of Python.

The expression is the softplus-like "squareplus", y = (x + sqrt(x * x + b)) / 2. Its text is in the language of Tenon's own
table of ops, and is recorded as such ops: so it takes every float dtype, broadcasts, runs on every device, and fuses with its
neighbours.
"""
import tenon as tn

# a is the first input, x, and b the second. The gradients of both, separated by a semicolon, also use g, the gradient of the
# result, and y, the result: since sqrt(x * x + b) = 2 y - x, neither root nor square is computed again. Without them Tenon
# would differentiate the expression.
squareplus = tn.op("(a + sqrt(a * a + b)) / 2", "g * y / (2 * y - a); g / (4 * (2 * y - a))", name="squareplus")

x = tn.linspace(-2, 2, 5, dtype="float64").requires_grad_()
y = squareplus(x, 1.0)
print(y)
y.sum().backward()
print(x.grad)

# Finite differences agree with both gradients, and with the gradients of the gradients.
one = tn.ones(1, dtype="float64", requires_grad=True)
tn.gradcheck(lambda x, b: squareplus(x, b).sum(), [x, one])
tn.gradgradcheck(lambda x, b: squareplus(x, b).sum(), [x, one])
print("gradients agree with finite differences")

# A malformed text is an error of the call, which names the place.
try:
    tn.op("(a + 1")(x)
except tn.Error as error:
    print(error)


# An op of Python functions: what it computes on the host, and its gradient in ops. out is memory to write to.
def running_max(x, out):
    most = float("-inf")
    for i in range(len(x)):
        most = max(most, float(x[i]))
        out[i] = most


def to_the_largest(gy, y, x):
    """The gradient goes to the element that was the largest so far."""
    owner = (y.unsqueeze(1) == x.unsqueeze(0)).double()  # (result, element)
    return (gy.unsqueeze(1) * owner).sum(dim=0)


cummax = tn.op(name="cummax", compute=running_max, grad=to_the_largest)
x = tn.tensor([1.0, 3.0, 2.0, 5.0, 4.0], dtype="float64", requires_grad=True)
y = cummax(x)
y.sum().backward()
print(y.tolist(), x.grad.tolist())
