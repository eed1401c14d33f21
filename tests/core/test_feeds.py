"""Feeds: what fits is brought into plain form, what does not is named."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from seamline.errors import FeedError
from seamline.feeds import FeedCheck, with_sizes
from seamline.ortvalue import OrtValue
from seamline.tensors import OptionalType, SequenceType, TensorType

FLOATS = TensorType("float32", ("N", 3))
BASE = np.arange(12, dtype=np.float32).reshape(4, 3)


def read(value, kind=FLOATS):
    return FeedCheck({"x": kind})({"x": value})["x"]


def is_plain(array):
    return array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative


def odd_address(array):
    raw = np.frombuffer(bytearray(array.nbytes + 1), array.dtype, array.size, offset=1)
    raw = raw.reshape(array.shape)
    raw[...] = array
    return raw


def field_of_a_record(array):
    record = np.zeros(array.shape, [("id", "u1"), ("v", array.dtype)])
    record["v"] = array
    return record["v"]


LAYOUTS = {
    "column-major": np.asfortranarray,
    "rows backwards": lambda a: a[::-1],
    "both backwards": lambda a: a[::-1, ::-1],
    "every second row": lambda a: np.repeat(a, 2, axis=0)[::2],
    "zero stride": lambda a: np.broadcast_to(a[0], a.shape),
    "odd address": odd_address,
    "big-endian": lambda a: a.astype(">f4"),
    "field of a record": field_of_a_record,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_values_count_and_not_the_layout(layout):
    fed = LAYOUTS[layout](BASE)
    before = fed.tobytes()

    got = read(fed)

    assert is_plain(got)
    assert got.dtype == np.float32
    assert got.tolist() == fed.tolist()
    assert fed.tobytes() == before


def test_a_plain_array_is_passed_on_without_a_copy():
    assert read(BASE) is BASE


def test_a_read_only_array_is_good():
    fed = BASE.copy()
    fed.flags.writeable = False
    assert read(fed).tolist() == BASE.tolist()


def test_a_scalar_stays_without_a_dimension():
    kind = TensorType("int64", ())
    assert read(np.int64(7), kind).shape == ()
    assert read(7, kind).shape == ()
    assert read(np.array(7, ">i8"), kind).shape == ()


@settings(max_examples=40, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from(["<f4", ">f4", "<i8", ">i2", "?"]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
    ),
    st.randoms(use_true_random=False),
)
def test_any_array_keeps_its_values_through_any_transposition(array, random):
    axes = list(range(array.ndim))
    random.shuffle(axes)
    fed = array.transpose(axes)

    got = read(fed, TensorType(fed.dtype.newbyteorder("=").name, None))

    assert is_plain(got)
    assert got.shape == fed.shape
    np.testing.assert_array_equal(got, fed)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        ([[1, 2, 3]], "float32", [[1.0, 2.0, 3.0]]),
        ([[1.5, 2.5, 3.5]], "float16", [[1.5, 2.5, 3.5]]),
        ([[1.5, 2.5, 3.5]], "bfloat16", [[1.5, 2.5, 3.5]]),
        (((1, 2, 3),), "uint8", [[1, 2, 3]]),
        ([[True, False, True]], "bool", [[True, False, True]]),
        ([[-8, 7, 0]], "int4", [[-8, 7, 0]]),
        ([[1, 2, 3]], "complex64", [[1, 2, 3]]),
    ],
)
def test_python_numbers_take_the_type_that_is_wanted(value, dtype, expected):
    got = read(value, TensorType(dtype, ("N", 3)))
    assert got.dtype.name == dtype
    assert got.tolist() == expected


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([[1.5, 2.0, 3.0]], "int64"),
        ([[True, False, True]], "float32"),
        ([[300, 0, 0]], "uint8"),
        ([[-1, 0, 0]], "uint8"),
        ([[8, 0, 0]], "int4"),
        ([[1j, 0, 0]], "float32"),
        ([["a", "b", "c"]], "float32"),
        ([[1, 2, 3], [4]], "float32"),
        ([[1, 2, 3]], "bool"),
    ],
)
def test_python_values_that_lose_something_are_refused(value, dtype):
    with pytest.raises(FeedError, match=r"input 'x' \(index 0\)"):
        read(value, TensorType(dtype, ("N", 3)))


def test_an_empty_list_fits_every_type():
    for dtype in ("float32", "int64", "bool", "string"):
        assert read([], TensorType(dtype, (0,))).shape == (0,)


# --- names --------------------------------------------------------------------------------


def test_every_missing_input_is_listed_with_its_type():
    check = FeedCheck({"x": FLOATS, "mask": TensorType("bool", ("N",))})
    with pytest.raises(FeedError) as caught:
        check({})
    assert "Required inputs (['x', 'mask']) are missing from input feed ([])" in str(
        caught.value
    )
    assert "x: float32[N, 3]; mask: bool[N]" in str(caught.value)


def test_an_unknown_name_brings_those_that_are_close():
    check = FeedCheck({"input_ids": TensorType("int64", (None,))})
    with pytest.raises(
        FeedError, match="Invalid input name: 'inputs_ids'; did you mean"
    ):
        check({"inputs_ids": [1], "input_ids": [1]})


def test_feeds_that_are_no_mapping_are_refused():
    with pytest.raises(
        FeedError, match="a mapping from input names to values, not list"
    ):
        FeedCheck({"x": FLOATS})([BASE])


def test_a_feed_error_is_a_value_error():
    with pytest.raises(ValueError, match="missing"):
        FeedCheck({"x": FLOATS})({})


def test_an_overridable_input_may_be_left_out_or_fed():
    check = FeedCheck(
        {"x": FLOATS, "w": TensorType("float32", (3,))}, overridable={"w"}
    )
    assert list(check({"x": BASE})) == ["x"]
    assert check({"x": BASE, "w": [1, 2, 3]})["w"].dtype == np.float32


# --- types and sizes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (BASE.astype(np.float64), FLOATS, "float64 was fed, float32 is expected; "
         r"feed x.astype\(np.float32\)"),
        (BASE.astype(np.int8), TensorType("int4", None), r"x.astype\(ml_dtypes.int4\)"),
        (BASE.astype(np.uint16), TensorType("bfloat16", None), r"x.view\(ml_dtypes.bfloat16\)"),
        (BASE, TensorType("bfloat16", None), r"feed x.astype\(ml_dtypes.bfloat16\)"),
        (BASE.astype("V2"), TensorType("bfloat16", None), r"x.view\(ml_dtypes.bfloat16\)"),
        (BASE.astype(object), FLOATS, "an object array is read as text"),
        (BASE, TensorType("string", None), "feed an array of str"),
        (BASE > 1, TensorType("int64", None), "bool was fed, int64 is expected"),
        (BASE.astype("M8[s]"), TensorType("int64", None), "datetime64"),
    ],
)  # fmt: skip
def test_another_element_type_is_named_with_what_to_do(value, kind, said):
    with pytest.raises(FeedError, match=said):
        read(value, kind)


def test_another_rank_is_named():
    with pytest.raises(
        FeedError, match=r"rank is 1, 2 expected \(fed float32\[12\], declared"
    ):
        read(BASE.ravel())


def test_every_wrong_size_is_named():
    with pytest.raises(
        FeedError, match="dimension 0 is 4, 2 expected; dimension 1 is 3, 5 exp"
    ):
        read(BASE, TensorType("float32", (2, 5)))


def test_a_negative_size_of_an_exporter_is_unknown():
    assert read(BASE, TensorType("float32", (-1, 3))) is BASE


def test_a_symbol_has_one_size_across_inputs():
    check = FeedCheck({"x": FLOATS, "y": TensorType("float32", ("N",))})
    with pytest.raises(FeedError) as caught:
        check({"x": BASE, "y": np.zeros(5, np.float32)})
    assert "input 'y' (index 1): dimension 0 is 5, but 'N' is already 4" in str(
        caught.value
    )
    assert "input 'x' (index 0) dimension 0" in str(caught.value)


def test_a_symbol_has_one_size_within_an_input():
    with pytest.raises(FeedError, match="dimension 1 is 3, but 'N' is already 4"):
        read(BASE, TensorType("float32", ("N", "N")))


def test_all_problems_are_told_at_once():
    check = FeedCheck({"x": FLOATS, "y": FLOATS})
    with pytest.raises(FeedError) as caught:
        check({"x": BASE.astype(np.int32), "y": BASE.ravel()})
    assert "'x'" in str(caught.value)
    assert "'y'" in str(caught.value)


def test_a_masked_array_is_refused_where_it_hides_something():
    with pytest.raises(FeedError, match="hides elements"):
        read(np.ma.masked_greater(BASE, 5))
    assert read(np.ma.masked_greater(BASE, 50)).tolist() == BASE.tolist()


def test_none_is_no_tensor():
    with pytest.raises(FeedError, match="only an optional may be absent"):
        read(None)


def test_an_object_that_is_no_array_is_refused():
    with pytest.raises(FeedError, match=r"builtins\.object is no array"):
        read(object())


# --- text -----------------------------------------------------------------------------------

WORDS = ["", "a", "Grüße", "nul\0inside", "日本"]
TEXT = TensorType("string", (None,))


TEXT_FORMS = {
    "list": list,
    "tuple": tuple,
    "objects": lambda words: np.array(words, object),
    "numpy U dtype": np.array,
    "bytes": lambda words: np.array([word.encode() for word in words], object),
}


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_text_arrives_as_str_objects(form):
    got = read(TEXT_FORMS[form](WORDS), TEXT)
    assert got.dtype == object
    assert got.tolist() == WORDS
    assert all(isinstance(item, str) for item in got)


def test_a_string_dtype_of_numpy_2_is_text():
    got = read(np.array(WORDS, np.dtypes.StringDType()), TEXT)
    assert got.dtype == object
    assert got.tolist() == WORDS


def test_no_words_at_all_are_good():
    assert read(np.array([], object), TEXT).shape == (0,)
    assert read(np.array([], "U1"), TEXT).dtype == object


def test_an_object_that_is_no_text_is_named_by_its_place():
    with pytest.raises(FeedError, match="element 1 of an object array is int"):
        read(np.array(["a", 1], object), TEXT)


def test_bytes_that_are_no_text_are_named_by_their_place():
    with pytest.raises(FeedError, match="element 0 is not UTF-8"):
        read(np.array([b"\xff"], object), TEXT)


# --- other libraries, sequences, optionals ----------------------------------------------------


class OnlyDlpack:
    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **request):
        return self.array.__dlpack__(**request)

    def __dlpack_device__(self):
        return self.device


class OnlyArray:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return np.array(self.array, dtype=dtype, copy=copy)


def test_a_dlpack_object_is_shared():
    got = read(OnlyDlpack(BASE))
    assert np.shares_memory(got, BASE)


def test_a_transposed_dlpack_object_keeps_its_values():
    assert (
        read(OnlyDlpack(BASE.T), TensorType("float32", (3, 4))).tolist()
        == BASE.T.tolist()
    )


def test_an_object_on_a_device_is_refused_by_its_place():
    with pytest.raises(
        FeedError, match="it lies on cuda:1; bring it to the host first"
    ):
        read(OnlyDlpack(BASE, device=(2, 1)))


def test_an_object_with_an_array_method_is_read():
    assert read(OnlyArray(BASE)).tolist() == BASE.tolist()


def test_an_ortvalue_is_shared():
    assert np.shares_memory(read(OrtValue.ortvalue_from_numpy(BASE)), BASE)


def test_a_bfloat16_array_passes():
    fed = BASE.astype(ml_dtypes.bfloat16)
    assert read(fed, TensorType("bfloat16", None)) is fed


def test_each_element_of_a_sequence_is_checked():
    kind = SequenceType(TensorType("float32", (None, 3)))
    got = read([BASE, BASE[:1].astype(">f4"), [[1, 2, 3]]], kind)
    assert [item.shape for item in got] == [(4, 3), (1, 3), (1, 3)]
    assert all(is_plain(item) for item in got)
    with pytest.raises(FeedError, match=r"element 1: dimension 1 is 2, 3 expected"):
        read([BASE, BASE[:, :2]], kind)
    with pytest.raises(FeedError, match="takes a list of values"):
        read(BASE, kind)


def test_an_optional_may_be_none_or_left_out_or_given():
    check = FeedCheck({"x": OptionalType(FLOATS)})
    assert check({}) == {"x": None}
    assert check({"x": None}) == {"x": None}
    assert check({"x": BASE})["x"] is BASE
    with pytest.raises(FeedError, match="rank is 1"):
        check({"x": BASE.ravel()})


def test_an_input_of_unknown_type_takes_any_array():
    assert read(BASE.T, None).tolist() == BASE.T.tolist()
    assert read(["a"], None).dtype == object
    with pytest.raises(FeedError, match="no element type"):
        read(np.zeros(2, "M8[s]"), None)


def test_sizes_take_the_place_of_symbols_only():
    kind = with_sizes(TensorType("int64", ("B", None, 3)), {"B": 2, "C": 4})
    assert kind == TensorType("int64", (2, None, 3))
