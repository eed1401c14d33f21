"""Attention at sizes that models have, captured and replayed, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.attentions import attend, grouped, hide, tables
from tests.core.toys import model
from tests.gpu.test_device_sessions import Opened

drawn = np.random.default_rng(31)
TYPES = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
LOOSE = {"float": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}


def floats(kind, *shape):
    return drawn.standard_normal(shape).astype(TYPES[kind])


def is_close(found, want, kind):
    error = np.abs(np.asarray(found).astype(np.float64) - want)
    assert error.max() < LOOSE[kind] * max(1.0, np.abs(want).max())


#: Heads, heads of keys, queries, keys, values of a head.
SIZES = {
    "an encoder": (12, 12, 384, 384, 64),
    "a prompt": (14, 2, 200, 200, 64),
    "wide heads": (4, 4, 70, 130, 256),
    "odd heads": (3, 1, 33, 77, 80),
    "one token of many": (28, 4, 1, 5000, 128),
    "a few tokens of many": (8, 8, 5, 3001, 96),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_is_right_in_every_run(name, kind, causal):
    heads, kv, rows, keys, size = SIZES[name]
    text = (
        f"g ({kind}[1,{heads},{rows},{size}] q, {kind}[1,{kv},{keys},{size}] k, "
        f"{kind}[1,{kv},{keys},{size}] v) => ({kind}[1,{heads},{rows},{size}] y) "
        f"{{ y = Attention<is_causal = {causal}>(q, k, v) }}"
    )
    bias = hide(np.arange(keys) <= np.arange(rows)[:, None]) if causal else 0.0
    with Opened(text, verify=2) as session:
        for _ in range(3):
            q, k, v = (floats(kind, 1, h, n, size) for h, n in ((heads, rows), (kv, keys), (kv, keys)))  # fmt: skip
            found = session.run({"q": q, "k": k, "v": v})["y"]
            is_close(found, attend(q, k, v, bias)[0], kind)
        (captured,) = session.captured
        assert captured.state == "recorded", captured.why


@pytest.mark.parametrize("kind", TYPES)
def test_one_recording_of_grouped_queries_serves_lengths_up_to_the_caches_end(kind):
    heads, kv, size, room = 14, 2, 64, 2048
    cos, sin = (t.astype(TYPES[kind]) for t in tables(room, size // 2))
    hidden = (heads + 2 * kv) * size
    text = f"""g ({kind}[1,1,{hidden}] q, {kind}[1,{kv},{room},{size}] k,
        {kind}[1,{kv},{room},{size}] v, int32[1] n, {kind}[{room},{size // 2}] c,
        {kind}[{room},{size // 2}] s) => ({kind}[1,1,{heads * size}] y,
        {kind}[1,{kv},{room},{size}] pk, {kind}[1,{kv},{room},{size}] pv)
        <int32 total = {{{room}}}> {{ y, pk, pv = com.microsoft.GroupQueryAttention<num_heads
        = {heads}, kv_num_heads = {kv}, do_rotary = 1>(q, , , k, v, n, total, c, s) }}"""
    source = model(text, 21, ', "com.microsoft" : 1')
    k, v = floats(kind, 1, kv, room, size), floats(kind, 1, kv, room, size)
    with Opened(source, verify=2) as session:
        for last in (0, 1, 63, 64, 300, 301, 2047):
            q = floats(kind, 1, 1, hidden)
            feeds = {"q": q, "k": k, "v": v, "c": cos, "s": sin, "n": np.array([last], np.int32)}  # fmt: skip
            found = session.run(feeds)
            inputs = [q, None, None, k, v, feeds["n"], np.array(room), cos, sin]
            want = grouped(inputs, (heads, kv, size), do_rotary=1)
            is_close(found["y"], want[0], kind)
            for got, like in zip((found["pk"], found["pv"]), want[1:], strict=True):
                is_close(got[:, :, : last + 1], like[:, :, : last + 1], kind)
        (captured,) = session.captured
        assert captured.state == "recorded", captured.why
