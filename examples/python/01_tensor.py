"""01_tensor.py: tensors: making, indexing, views, reading, errors."""
import tenon as tn

a = tn.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
b = tn.arange(3)
print(a)
print(a.shape, a.dtype, a.device)

# Ops broadcast and promote as in NumPy and PyTorch. They are recorded, and run when a value is read.
c = a * 2 + b
print(c)
print("sums of the rows", c.sum(axis=1), "mean", c.mean().item())

# Views share memory: a write to one is visible in the other.
column = c[:, 0]
column[:] = -1
print(c)
print("last column", c[:, -1], "odd ones", a[a % 2 == 1])
print(a @ a.T)

# Reading: one number, lists, and an array if NumPy is there.
print("largest at", int(a.argmax()), "all", a.tolist())
try:
    import numpy
    print(numpy.asarray(a).sum(axis=0))
except ImportError:
    print("without NumPy")

# Errors are exceptions that name shapes and lines, and are of Python's own kinds too.
try:
    a @ a
except ValueError as error:
    print(type(error).__name__, error)
