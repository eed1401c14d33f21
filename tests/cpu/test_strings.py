"""Operators on strings."""

import numpy as np
import pytest
from tests.cpu.movement import agrees, give, gives

WORDS = np.array(
    ["", "a", "Grüße", "日本", "🙂 " + "x" * 300, "tab\tand\nline", "n\0l"], object
)


def words(*values):
    return np.array(values, object)


def ints(*values):
    return np.array(values, np.int64)


def test_concat_broadcasts_and_keeps_every_character():
    want = np.array([w + "é" for w in WORDS], object)
    gives("StringConcat", [WORDS, words("é")], want)
    grid = np.array([["xa", "ya"], ["xb", "yb"]], object)
    gives("StringConcat", [words("x", "y"), words("a", "b").reshape(2, 1)], grid)
    gives("StringConcat", [WORDS[:0], words("a")], WORDS[:0])


@pytest.mark.parametrize("op", ["Identity", "Flatten"])
def test_moves_keep_strings_as_they_are(op):
    want = WORDS if op == "Identity" else WORDS.reshape(1, -1)
    settings = {} if op == "Identity" else {"axis": 0}
    gives(op, [WORDS], want, **settings)


def test_strings_join_and_are_taken():
    gives("Concat", [WORDS, WORDS[:0], words("end ")], np.append(WORDS, "end "), axis=0)
    gives("Gather", [WORDS, ints(-1, 0)], WORDS[[-1, 0]], fixed=(1,))


def test_split_fills_up_with_empty_strings_and_counts():
    x = words("a.com b", "hello", "")
    want = [np.array([["a.com", "b"], ["hello", ""], ["", ""]], object), ints(2, 1, 0)]
    gives("StringSplit", [x], want)
    gives("StringSplit", [x], want, delimiter="")
    commas = words("a,,b", ",c", "")
    want = [
        np.array([["a", "", "b"], ["", "c", ""], ["", "", ""]], object),
        ints(3, 2, 1),
    ]
    gives("StringSplit", [commas], want, delimiter=",")
    want = [np.array([["a", ",b"], ["", "c"], ["", ""]], object), ints(2, 2, 1)]
    gives("StringSplit", [commas], want, delimiter=",", maxsplit=1)
    gives("StringSplit", [WORDS[:0]], [np.zeros((0, 0), object), ints()])


def test_split_agrees_with_onnxruntime():
    # Not on '': by ONNX's reference a delimiter finds one part in it, by the peer none.
    x = words("eggs;milk;chips", "chips", "a  b ", ";").reshape(2, 2)
    for settings in (
        {"delimiter": ";"},
        {},
        {"maxsplit": 1},
        {"delimiter": " ", "maxsplit": 2},
    ):
        agrees("StringSplit", [x], outputs=2, opset=20, **settings)


def test_a_pattern_matches_the_whole_or_nothing():
    x = words("www.google.com", "www.google.com2", "日本", "")
    pattern = r"www\.[\w.-]+\.\bcom\b"
    gives("RegexFullMatch", [x], np.array([True, False, False, False]), pattern=pattern)
    gives("RegexFullMatch", [x], np.array([True] * 4), pattern=r".*")
    agrees("RegexFullMatch", [x], opset=20, pattern="(w|日).*")
    with pytest.raises(NotImplementedError, match="not a regular expression"):
        give("RegexFullMatch", [x], np.zeros(4, bool), pattern="(")


def test_stop_words_go_before_the_case_changes():
    x = words("Monday", "tuesday", "MONDAY", "Grüße")
    stops = {"stopwords": ["monday"]}
    kept = words("TUESDAY", "GRÜSSE")
    gives("StringNormalizer", [x], kept, case_change_action="UPPER", **stops)
    kept = words("monday", "tuesday", "monday", "grüße")
    gives(
        "StringNormalizer",
        [x],
        kept,
        case_change_action="LOWER",
        is_case_sensitive=1,
        **stops,
    )
    gives("StringNormalizer", [x[None]], x[None, 1:2], stopwords=["MONDAY", "grüße"])
    gives("StringNormalizer", [x], words(""), stopwords=["monday", "tuesday", "grüße"])
    gives("StringNormalizer", [x], x)
    with pytest.raises(NotImplementedError, match=r"neither \[C\] nor \[1, C\]"):
        give("StringNormalizer", [x.reshape(2, 2)], x)
