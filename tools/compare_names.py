"""Compares the functions of the Python package with PyTorch's core ATen set and the array API, and prints what is missing and why.

    compare_names.py [--all]

PyTorch is asked for its set (the ops that have the tag `core`), so that it is the one of the version that is installed; the names
of the array API 2024.12 are here. A name is there if a namesake is, or what ROUTES says takes its place. --all prints these, too.
"""
import argparse

import tenon

# Where a name of ATen goes that has no namesake. A text after a semicolon is what else is needed.
ROUTES = {
    "_adaptive_avg_pool2d": "nn.functional.adaptive_avg_pool2d", "_log_softmax": "nn.functional.log_softmax",
    "_softmax": "nn.functional.softmax", "_native_batch_norm_legit": "nn.functional.batch_norm",
    "_native_batch_norm_legit_no_training": "nn.functional.batch_norm", "_to_copy": "Tensor.to", "_local_scalar_dense": "Tensor.item",
    "_cdist_forward": "linalg.vector_norm; of x[:, None] - y", "_pdist_forward": "linalg.vector_norm; of pairs", "alias": "Tensor.view",
    "col2im": "nn.functional.fold", "constant_pad_nd": "nn.functional.pad", "convolution": "nn.functional.conv2d", "copy": "Tensor.copy_",
    "empty_strided": "empty", "fill": "full_like", "grid_sampler_2d": "nn.functional.grid_sample", "index": "Tensor.__getitem__",
    "masked_scatter": "where; with cumsum of the mask and gather", "native_dropout": "nn.functional.dropout",
    "native_group_norm": "nn.functional.group_norm", "native_layer_norm": "nn.functional.layer_norm",
    "max_pool2d_with_indices": "nn.functional.max_pool2d", "max_pool3d_with_indices": "nn.functional.max_pool3d",
    "reflection_pad1d": "nn.functional.pad", "reflection_pad2d": "nn.functional.pad", "reflection_pad3d": "nn.functional.pad",
    "replication_pad2d": "nn.functional.pad", "replication_pad3d": "nn.functional.pad", "scalar_tensor": "tensor",
    "select_scatter": "Tensor.__setitem__; of a copy", "slice_scatter": "Tensor.__setitem__; of a copy", "split_with_sizes": "split",
    "upsample_bilinear2d": "nn.functional.interpolate", "upsample_nearest2d": "nn.functional.interpolate",
    "_fft_c2r": "fft.irfftn", "_fft_r2c": "fft.rfftn",
    "sym_size": "Tensor.shape", "sym_numel": "Tensor.numel", "sym_stride": "Tensor.stride", "sym_is_contiguous": "Tensor.is_contiguous",
}
BACKWARD = "grad"  # where the names that end in _backward go

# Why a name is not there.
REASONS = {
    "_adaptive_avg_pool3d": "adaptive pooling has one and two axes", "_embedding_bag": "an embedding and a mean do it",
    "as_strided": "views come from slices, transposes and reshapes; strides are not the program's", "resize_": "a tensor keeps its shape",
    "sym_storage_offset": "where a value is in memory is the plan's affair",
    "linalg.eig": "eigenvalues of matrices that are not symmetric are complex", "linalg.eigvals": "as eig",
}

ARRAY_API = {
    "creation": "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros zeros_like",
    "dtypes": "astype can_cast finfo iinfo isdtype result_type",
    "elementwise": "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or "
                   "bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide greater "
                   "greater_equal hypot imag isfinite isinf isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not "
                   "logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow real reciprocal remainder "
                   "round sign signbit sin sinh sqrt square subtract tan tanh trunc",
    "indexing": "take take_along_axis",
    "linear algebra": "matmul matrix_transpose tensordot vecdot linalg.cholesky linalg.cross linalg.det linalg.diagonal linalg.eigh "
                      "linalg.eigvalsh linalg.inv linalg.matmul linalg.matrix_norm linalg.matrix_power linalg.matrix_rank "
                      "linalg.matrix_transpose linalg.outer linalg.pinv linalg.qr linalg.slogdet linalg.solve linalg.svd "
                      "linalg.svdvals linalg.tensordot linalg.trace linalg.vecdot linalg.vector_norm linalg.eig linalg.eigvals",
    "manipulation": "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack",
    "searching": "argmax argmin count_nonzero nonzero searchsorted where", "sets": "unique_all unique_counts unique_inverse unique_values",
    "sorting": "argsort sort", "statistics": "cumulative_prod cumulative_sum max mean min prod std sum var", "utility": "all any diff",
    "fft": " ".join(f"fft.{n}" for n in "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift".split()),
}


def find(path):
    """The object of a dotted path below the package, or None."""
    at = tenon
    for part in path.split("."):
        at = getattr(at, part, None)
    return at


def place(name):
    """Where a name of ATen is, or None."""
    for path in (name, f"nn.functional.{name}", f"Tensor.{name}", f"linalg.{name}"):
        if find(path) is not None:
            return path
    route = ROUTES.get(name) or (BACKWARD if name.endswith("_backward") else None)
    if route and find(route.split(";")[0]) is None:
        raise SystemExit(f"compare_names.py: {name} goes to {route}, which is not there")
    return route


def core_aten():
    """The names of PyTorch's core set, or None without PyTorch."""
    try:
        import torch
    except ImportError:
        return None
    names = set()
    for full in torch._C._dispatch_get_all_op_names():
        space, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        op = getattr(getattr(torch.ops.aten, name, None), overload or "default", None) if space == "aten" else None
        if op is not None and torch.Tag.core in op.tags:
            names.add(name)
    return names


def reason(name):
    return REASONS.get(name, "not written yet")


def show(title, found, everything):
    missing = [name for name, where in found.items() if where is None]
    print(f"{title}: {len(found) - len(missing)} of {len(found)}")
    for name, where in found.items():
        if where is None:
            print(f"  missing  {name:24} {reason(name)}")
        elif everything:
            print(f"           {name:24} {where}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--all", action="store_true", help="also print what is there, and where")
    args = p.parse_args()
    names = core_aten()
    if names is None:
        print("core ATen: skipped, this Python has no PyTorch")
    else:
        show("core ATen", {n: place(n) for n in sorted(names)}, args.all)
    for group, text in ARRAY_API.items():
        show(f"array API, {group}", {n: n if find(n) is not None else None for n in text.split()}, args.all)


if __name__ == "__main__":
    main()
