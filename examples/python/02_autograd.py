"""02_autograd.py: gradients: of one expression, in a loop that fits a line, and of a gradient."""
import math

import tenon as tn

tn.manual_seed(1)

# The smallest case: y = x * x * x, so dy/dx = 3 x * x.
x = tn.tensor(2.0, requires_grad=True)
(x * x * x).backward()
print("d(x^3)/dx at 2:", x.grad.item())

# Learn y = 3 x - 1 from noisy points, by gradient descent.
x = tn.randn(64)
y = 3 * x - 1 + 0.05 * tn.randn(64)
w = tn.zeros((), requires_grad=True)
b = tn.zeros((), requires_grad=True)
for step in range(60):
    loss = ((x * w + b - y) ** 2).mean()
    loss.backward()
    with tn.no_grad():  # a write to a leaf is not a part of its history
        w -= 0.1 * w.grad
        b -= 0.1 * b.grad
    w.grad = b.grad = None
    if step % 20 == 0:
        print(f"step {step:2}  loss {loss:.4f}")
print(f"w = {w:.2f}, b = {b:.2f}")

# A gradient is a tensor that can be differentiated again.
x = tn.tensor(0.5, dtype="float64", requires_grad=True)
dy, = tn.grad((x * x).sin(), x, create_graph=True)
ddy, = tn.grad(dy, x)
v = 0.5
print(f"second derivative of sin(x*x) at 0.5: {ddy:.6f}, by hand {2 * math.cos(v * v) - 4 * v * v * math.sin(v * v):.6f}")
