"""
Products in bfloat16 tiles: against float64, on AMX where there is some.

Elsewhere the same code is emitted with the instructions' definition in their place, over
memory; and for a processor that has them, to be looked at.
"""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir
from tests.cpu.packed_weights import BYTES, FLOATS, MIDDLE, error, packed

from seamline_cpu.amx import TILE, Tiles
from seamline_cpu.instruction_sets import lacking
from seamline_cpu.kernels import nbits_amx, nbits_amx_tiles, nbits_amx_unpack
from seamline_cpu.kernels.nbits_amx import by_tiles
from seamline_cpu.kernels.nbits_layout import Form
from seamline_cpu.kernels.nbits_product import padded_bias
from seamline_cpu.vectors import F32, I8, I16, I32, I64, Vectors, vector


class TilesInMemory(Tiles):
    """Tiles as the instructions are defined, in memory, for one thread."""

    def _place(self, tile):
        module = self.v.builder.module
        if "tiles_in_memory" not in module.globals:
            kind = ir.ArrayType(I8, 8 * TILE)
            held = ir.GlobalVariable(module, kind, "tiles_in_memory")
            held.linkage, held.initializer = "internal", ir.Constant(kind, None)
        held = module.globals["tiles_in_memory"]
        start = self.v.builder.ptrtoint(held, I64)
        return self.v.add(start, tile * TILE)

    def _rows(self, do):
        self.v.loop(self.v.constant(I64, 16), [], lambda i, _: do(i) or [])

    def configure(self, address):
        """Do nothing."""

    def release(self):
        """Do nothing."""

    def zero(self, tile):
        zero, place = self.v.constant(vector(I32, 16), 0), self._place(tile)
        self._rows(lambda i: self.v.store(zero, self.v.add(place, self.v.times(i, 64))))

    def load(self, tile, address, pitch=64):
        self._copy(address, pitch, self._place(tile), 64)

    def store(self, tile, address, pitch=64):
        self._copy(self._place(tile), 64, address, pitch)

    def _copy(self, source, across, target, along):
        v, line = self.v, vector(I32, 16)
        self._rows(
            lambda i: v.store(
                v.load(line, v.add(source, v.times(i, across))),
                v.add(target, v.times(i, along)),
            )
        )

    def multiply(self, sums, a, b):
        v, line = self.v, vector(F32, 16)
        x, y, z = (self._place(tile) for tile in (a, b, sums))

        def row(i):
            left, out = (v.add(place, v.times(i, 64)) for place in (x, z))

            def pair(p, total):
                words = v.load(vector(I32, 16), v.add(y, v.times(p, 64)))
                sixteen = v.constant(words.type, 16)
                halves = (
                    v.builder.shl(words, sixteen),
                    v.builder.and_(words, v.constant(words.type, 0xFFFF0000)),
                )
                made = total[0]
                for k, half in enumerate(halves):
                    code = v.load(I16, v.add(left, v.times(p, 4), 2 * k))
                    wide = v.builder.shl(v.builder.zext(code, I32), v.constant(I32, 16))
                    factor = v.splat(v.builder.bitcast(wide, F32), 16)
                    made = v.multiply_add(factor, v.builder.bitcast(half, line), made)
                return [made]

            v.store(v.loop(v.constant(I64, 16), [v.load(line, out)], pair)[0], out)

        self._rows(row)


def variants():
    missing = lacking("amx")
    yield pytest.param(
        "amx", Tiles, marks=pytest.mark.skipif(bool(missing), reason=str(missing))
    )
    yield pytest.param("portable", TilesInMemory, id="in memory")


EVERY = pytest.mark.parametrize(("variant", "tiles"), list(variants()))


def product(weights, x, variant, tiles, bias=None, piece=nbits_amx.PIECE):
    out = np.full((len(x), weights.n), np.nan, np.float32)
    added = padded_bias(bias, len(weights.data))
    threads = 1 if tiles is TilesInMemory else 2
    kind = str(x.dtype)
    for run in by_tiles(
        weights, x, kind, added, out, threads, variant=variant, tiles=tiles, piece=piece
    ):
        run()
    return out


def rounded(x):
    """Round to bfloat16, halves away from zero."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x8000) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


@EVERY
@pytest.mark.parametrize(
    "form",
    [
        {"bits": 4, "block": 32, "zeros": MIDDLE},
        {"bits": 4, "block": 16, "zeros": BYTES},
        {"bits": 8, "block": 64, "zeros": FLOATS},
        {"bits": 2, "block": 32, "zeros": BYTES, "coarse": True},
    ],
    ids=str,
)
@pytest.mark.parametrize(("m", "n", "k"), [(17, 40, 80), (33, 100, 100), (2, 64, 48)])
def test_tiles_give_the_product_of_what_bfloat16_keeps(variant, tiles, form, m, n, k):
    weights, w = packed(n, k, **form)
    x = np.random.default_rng(m).standard_normal((m, k)).astype(np.float32)
    bias = np.arange(n, dtype=np.float32) / 8
    got = product(weights, x, variant, tiles, bias)
    assert error(got, rounded(x) @ rounded(w).T + bias) < 3e-5
    assert 1e-5 < error(got, x.astype(float) @ w.T + bias) < 5e-3


@EVERY
def test_rows_of_more_than_a_block_and_k_of_more_than_a_piece(variant, tiles):
    k = 32 * 3 + 48
    weights, w = packed(33, k, block=16)
    x = np.random.default_rng(1).standard_normal((270, k)).astype(np.float32)
    got = product(weights, x, variant, tiles, piece=3)
    assert error(got, rounded(x) @ rounded(w).T) < 3e-5


@EVERY
def test_an_infinite_scale_stays_in_its_column(variant, tiles):
    weights, _ = packed(64, 48, block=16)
    scales = weights.data[0, 2, 128:].view(np.float32)
    scales[3] = np.inf
    x = np.ones((20, 48), np.float32)
    for _ in range(2):  # the second time over what the first left behind
        got = product(weights, x, variant, tiles)
        assert not np.isfinite(got[:, 3]).any()
        assert np.isfinite(np.delete(got, 3, 1)).all()


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("step", [16, 32])
def test_the_order_of_k_in_a_tile_has_each_once_and_keeps_steps_apart(bits, step):
    order = nbits_amx_unpack.order_of(bits, step)
    assert sorted(order) == list(range(32))
    assert sorted(order[:step]) == list(range(step))
    # The codes of one word of 16 bits lie as far apart as there are words.
    words = step * bits // 16
    assert [order[place * words] for place in range(16 // bits)] == list(
        range(16 // bits)
    )


def test_the_code_for_amx_uses_its_tiles():
    module = ir.Module()
    kind = ir.FunctionType(ir.VoidType(), [I64] * 11)
    function = ir.Function(module, kind, "f")
    v = Vectors(ir.IRBuilder(function.append_basic_block()), "amx")
    form = Form(4, 32, False, MIDDLE)
    nbits_amx_unpack.emit_unpacked(v, form, function.args[:5])
    nbits_amx_tiles.emit_product(v, Tiles(v), function.args[5:10], single=False)
    Tiles(v).configure(function.args[10])
    Tiles(v).release()
    v.builder.ret_void()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu="sapphirerapids", opt=3)
    text = machine.emit_assembly(llvm.parse_assembly(str(module)))
    assert text.count("tdpbf16ps") == 4
    for name in (
        "ldtilecfg",
        "tileloadd",
        "tilestored",
        "tilezero",
        "tilerelease",
        "vpermw",
    ):
        assert name in text, name
    assert "call" not in text
