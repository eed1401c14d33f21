"""
The text of a product of integers, which the library has for few types and forms only.

A block makes a tile of 64 rows and 64 columns, 16 of the depth at a time: both factors' parts
are brought to shared memory, widened and less their zero points, and each of 256 threads sums
four rows times four columns, 16 apart, so that the threads of a warp read shared memory
without conflicts and write lines of memory. Sums wrap as the integers do.
"""

from __future__ import annotations

from seamline_cuda.device_kernel import DeviceKernel

__all__ = ["THREADS", "TILE", "product_kernel"]

TILE = 64
THREADS = 256
_DEEP = 16
_SIDE = (
    TILE + 1
)  #: of a row in shared memory; the odd one keeps columns in different banks
_EACH = 4

_HEAD = """def integer_product(a, b, c, a_zero, b_zero, out, rows, columns, depth, a_row, a_step, b_step, b_column, a_batch, b_batch, a_zeros, b_zeros, across, down, c_row, c_column, alpha, beta):
    left = cuda.shared.array({room}, np.{summed})
    right = cuda.shared.array({room}, np.{summed})
    tid = np.int64(cuda.threadIdx.x)
    tiles = across * down
    batch = np.int64(cuda.blockIdx.x) // tiles
    tile = np.int64(cuda.blockIdx.x) - batch * tiles
    row0 = (tile // across) * {tile}
    column0 = (tile % across) * {tile}
    tx = tid & 15
    ty = tid >> 4
    a_at = batch * a_batch
    b_at = batch * b_batch
    k0 = np.int64(0)
"""
_LOAD = """        for u in range(4):
            index = tid + u * 256
            kk = {a_k}
            r = {a_r}
            value = np.{summed}(0)
            if row0 + r < rows and k0 + kk < depth:
                value = np.{summed}(a[a_at + (row0 + r) * a_row + (k0 + kk) * a_step]){a_less}
            left[kk * {side} + r] = value
            kk = {b_k}
            r = {b_r}
            value = np.{summed}(0)
            if column0 + r < columns and k0 + kk < depth:
                value = np.{summed}(b[b_at + (k0 + kk) * b_step + (column0 + r) * b_column]){b_less}
            right[kk * {side} + r] = value
        cuda.syncthreads()
"""


def product_kernel(
    a: str, b: str, summed: str, *, a_swapped: bool, b_swapped: bool, zeros: str
) -> DeviceKernel:
    """
    Give a kernel.

    Parameters
    ----------
    a, b, summed
        Element types of the factors and of the sums.
    a_swapped, b_swapped
        A factor is stored as its transpose; neighbouring threads read what lies together.
    zeros
        Factors, ``a`` and ``b``, whose zero points are taken off before multiplying.
    """
    along, across = ("index & 15", "index >> 4"), ("index >> 6", "index & 63")
    a_k, a_r = across if a_swapped else along
    b_k, b_r = along if b_swapped else across
    less = f" - np.{summed}({{}}_zero[{{}}])"
    lines = [
        _HEAD.format(room=_DEEP * _SIDE, summed=summed, tile=TILE).rstrip("\n"),
        *(f"    t{i}{j} = np.{summed}(0)" for i in range(_EACH) for j in range(_EACH)),
        "    while k0 < depth:",
        _LOAD.format(
            a_k=a_k, a_r=a_r, b_k=b_k, b_r=b_r, side=_SIDE, summed=summed,
            a_less=less.format("a", "(row0 + r) * a_zeros") if "a" in zeros else "",
            b_less=less.format("b", "(column0 + r) * b_zeros") if "b" in zeros else "",
        ).rstrip("\n"),
        f"        for kk in range({_DEEP}):",
        *(f"            x{i} = left[kk * {_SIDE} + ty + {16 * i}]" for i in range(_EACH)),
        *(f"            y{j} = right[kk * {_SIDE} + tx + {16 * j}]" for j in range(_EACH)),
        *(
            f"            t{i}{j} = np.{summed}(t{i}{j} + x{i} * y{j})"
            for i in range(_EACH)
            for j in range(_EACH)
        ),
        "        cuda.syncthreads()",
        f"        k0 += {_DEEP}",
    ]  # fmt: skip
    for i in range(_EACH):
        lines.append(f"    row = row0 + ty + {16 * i}")
        for j in range(_EACH):
            lines += [
                f"    column = column0 + tx + {16 * j}",
                "    if row < rows and column < columns:",
                f"        value = np.{summed}(alpha * t{i}{j})",
                f"        if beta != np.{summed}(0):",
                f"            value = np.{summed}(value + beta * c[row * c_row + column * c_column])",
                "        out[batch * rows * columns + row * columns + column] = value",
            ]
    signature = (
        f"{a}*", f"{b}*", f"{summed}*", f"{a}*", f"{b}*", f"{summed}*",
        *["int64"] * 15, summed, summed,
    )  # fmt: skip
    return DeviceKernel("integer_product", "\n".join(lines) + "\n", signature)
