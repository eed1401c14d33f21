from __future__ import annotations

import gc
import os
import weakref

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from tests.core.loaded_graphs import f32, run_by_onnxruntime

from seamline.errors import ModelError, UnsafeModelError
from seamline.graph import load

VALUES = f32(1, 2, 3, 4)


def external(name, dims, dtype=TensorProto.FLOAT, **entries):
    tensor = TensorProto(name=name, data_type=dtype, data_location=TensorProto.EXTERNAL)
    tensor.dims.extend(dims)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def model_with(*tensors):
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Add", ["x", t.name], [f"y_{t.name}"]) for t in tensors]
    outputs = [info(f"y_{t.name}", TensorProto.FLOAT, list(t.dims)) for t in tensors]
    inputs = [info("x", TensorProto.FLOAT, [1])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(tensors))
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.fixture
def folder(tmp_path):
    """A model's folder, with good files in it and a secret outside."""
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    for path in (tmp_path / "secret.bin", tmp_path / "outside" / "w.bin"):
        path.write_bytes((VALUES * 100).tobytes())
    for name in ("w.bin", "..w.bin", "w..bin", "sub/w.bin"):
        (model / name).write_bytes(VALUES.tobytes())
    return model


def write(folder, location, **entries):
    tensor = external("weights", [4], location=location, **entries)
    path = folder / "m.onnx"
    path.write_bytes(model_with(tensor).SerializeToString())
    return path


@pytest.mark.parametrize(
    "location",
    ["w.bin", "./w.bin", "sub/w.bin", "sub/../w.bin", "w..bin", "..w.bin"],
)
def test_a_file_in_the_folder_is_mapped(folder, location):
    graph = load(write(folder, location, offset=0, length=16))
    np.testing.assert_array_equal(graph.constant("weights"), VALUES)
    assert len(graph.keep) == 1


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("../secret.bin", "leaves"),
        ("sub/../../secret.bin", "leaves"),
        ("/etc/hostname", "absolute"),
        ("C:\\secret.bin", "absolute"),
        ("\\\\server\\share\\w.bin", "absolute"),
        ("", "empty"),
        ("w.bin\0.txt", "NUL"),
        ("sub", "not a regular file"),
        (".", "not a regular file|outside"),
        ("link.bin", "outside"),
        ("linked/w.bin", "outside"),
        ("pipe", "not a regular file"),
        ("loop", "no such|outside|regular|[Ss]ymbolic"),
    ],
)
def test_a_location_that_leaves_or_is_no_file_is_refused_by_name(folder, location, why):
    os.symlink(folder.parent / "secret.bin", folder / "link.bin")
    os.symlink(folder.parent / "outside", folder / "linked")
    os.symlink("loop", folder / "loop")
    os.mkfifo(folder / "pipe")
    path = write(folder, location)
    with pytest.raises(ModelError, match=why) as caught:
        load(path)
    said = str(caught.value)
    assert str(path) in said
    assert "'weights'" in said
    assert repr(location) in said
    assert isinstance(caught.value, UnsafeModelError) or location == "loop"


def test_an_absolute_location_is_refused_even_if_it_lies_inside(folder):
    with pytest.raises(UnsafeModelError, match="absolute"):
        load(write(folder, str(folder / "w.bin")))


def test_a_link_that_stays_inside_is_good(folder):
    os.symlink("sub/w.bin", folder / "link.bin")
    np.testing.assert_array_equal(
        load(write(folder, "link.bin")).constant("weights"), VALUES
    )


def test_a_missing_file_is_named(folder):
    with pytest.raises(ModelError, match=r"'gone\.bin'.*no such file"):
        load(write(folder, "gone.bin"))


def hub(tmp_path, folder):
    """The layout of a hub cache: what a snapshot names are links to blobs."""
    snapshot, blobs = tmp_path / "hub" / "snapshots" / "rev", tmp_path / "hub" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    path = write(folder, "w.bin")
    for name, blob in ((path, "aa11"), (folder / "w.bin", "bb22")):
        (blobs / blob).write_bytes(name.read_bytes())
        os.symlink(os.path.join("..", "..", "blobs", blob), snapshot / name.name)
    return snapshot / "m.onnx"


def test_the_links_of_a_hub_cache_are_followed(tmp_path, folder):
    np.testing.assert_array_equal(
        load(hub(tmp_path, folder)).constant("weights"), VALUES
    )


def test_a_link_out_of_a_hub_cache_is_refused(tmp_path, folder):
    path = hub(tmp_path, folder)
    (path.parent / "w.bin").unlink()
    os.symlink(tmp_path / "secret.bin", path.parent / "w.bin")
    with pytest.raises(UnsafeModelError, match="outside"):
        load(path)


def test_data_beside_the_file_that_a_link_leads_to_is_found(tmp_path, folder):
    write(folder, "w.bin")
    os.symlink(folder / "m.onnx", tmp_path / "alias.onnx")
    np.testing.assert_array_equal(
        load(tmp_path / "alias.onnx").constant("weights"), VALUES
    )


def test_a_relative_path_means_the_current_folder(folder, monkeypatch):
    write(folder, "w.bin")
    monkeypatch.chdir(folder)
    np.testing.assert_array_equal(load("m.onnx").constant("weights"), VALUES)


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ({"offset": 4, "length": 16}, "bytes 4 to 20.*16"),
        ({"offset": 17}, "bytes 17 to 33"),
        ({"offset": 2**63}, "bytes 9223372036854775808"),
        ({"length": 12}, "16 bytes, its length says 12"),
        ({"length": 20}, "16 bytes, its length says 20"),
        ({"offset": -1}, "'-1' is not a whole number"),
        ({"offset": "1_0"}, "not a whole number"),
        ({"length": "ten"}, "not a whole number"),
    ],
)
def test_offset_and_length_outside_of_the_file_are_refused(folder, entries, why):
    with pytest.raises(ModelError, match=rf"weights.*{why}"):
        load(write(folder, "w.bin", **entries))


def test_a_declared_shape_larger_than_the_file_allocates_nothing(folder):
    tensor = external("weights", [2**38], location="w.bin")
    path = folder / "m.onnx"
    path.write_bytes(model_with(tensor).SerializeToString())
    with pytest.raises(ModelError, match=r"weights.*the file has 16"):
        load(path)


def test_keys_that_runtimes_add_are_passed_over(folder):
    path = write(folder, "w.bin", prepacked_0="16;0;hash")
    np.testing.assert_array_equal(load(path).constant("weights"), VALUES)


A, B, C = (np.arange(n, n + 6, dtype=np.float32) for n in (0, 10, 20))


def laid_out(folder, size, places):
    tensors = []
    with (folder / "w.data").open("wb") as handle:
        handle.truncate(size)
        for name, offset, array in places:
            handle.seek(offset)
            handle.write(array.tobytes())
            tensors.append(
                external(name, array.shape, location="w.data", offset=offset)
            )
    path = folder / "m.onnx"
    path.write_bytes(model_with(*tensors).SerializeToString())
    return path


@pytest.mark.parametrize(
    ("size", "places"),
    [
        (65536, [("a", 65536 - 24, A), ("b", 0, B), ("c", 4096, C)]),
        (1000, [("a", 3, A), ("b", 101, B), ("c", 502, C)]),
        (64, [("a", 8, A), ("b", 8, A)]),
        (8 * 2**30, [("a", 5 * 2**30 + 4, A), ("b", 8 * 2**30 - 24, B)]),
    ],
    ids=["high offset first", "odd offsets", "shared bytes", "past 4 GiB, sparse file"],
)
def test_any_layout_in_the_file_gives_the_right_values(tmp_path, size, places):
    graph = load(laid_out(tmp_path, size, places))
    x = f32(0.5)
    got = run_by_onnxruntime(graph, {"x": x})
    for (name, offset, array), output in zip(places, got, strict=True):
        constant = graph.constant(name)
        np.testing.assert_array_equal(constant, array)
        np.testing.assert_array_equal(output, array + x)
        assert constant.flags.aligned
        assert not constant.flags.writeable
        # An aligned tensor is a view of the mapped file, not a copy of it.
        assert constant.flags.owndata == (offset % 4 != 0)


def test_tensors_share_one_mapping_of_their_file(tmp_path):
    graph = load(laid_out(tmp_path, 64, [("a", 0, A), ("b", 24, B)]))
    assert len(graph.keep) == 1
    ends = [graph.constant(n).__array_interface__["data"][0] for n in "ab"]
    assert ends[1] - ends[0] == 24


@pytest.mark.parametrize(
    "name", ["int4", "uint4", "float4_e2m1fn", "bfloat16", "float8_e5m2"]
)
def test_small_types_are_read_from_a_file(tmp_path, name):
    dtype = np.dtype(name)
    bits = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4}.get(name, dtype.itemsize * 8)
    values = np.array([1, 2, 3, 0.5, 4], np.float32).astype(dtype)
    (tmp_path / "w").write_bytes(ir.Tensor(values).tobytes())
    kind = ir.Tensor(values).dtype
    tensor = external("w", [5], kind, location="w", length=-(-5 * bits // 8))
    (tmp_path / "m.onnx").write_bytes(model_with(tensor).SerializeToString())
    got = load(tmp_path / "m.onnx").constant("w")
    assert got.dtype == dtype
    assert got.tolist() == values.tolist()


def test_an_empty_tensor_needs_no_bytes(tmp_path):
    (tmp_path / "w").write_bytes(b"")
    tensor = external("w", [0, 3], location="w")
    (tmp_path / "m.onnx").write_bytes(model_with(tensor).SerializeToString())
    assert load(tmp_path / "m.onnx").constant("w").shape == (0, 3)


def mapped_files(folder):
    with open("/proc/self/maps") as handle:
        return [line for line in handle if str(folder) in line]


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs Linux's /proc")
def test_mappings_close_with_the_graph_without_the_collector(folder):
    gc.disable()
    try:
        graph = load(write(folder, "w.bin"))
        graph.constant("weights")
        gone = weakref.ref(graph)
        assert mapped_files(folder)
        del graph
        assert gone() is None
        assert not mapped_files(folder)
    finally:
        gc.enable()


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs Linux's /proc")
def test_a_failed_load_leaves_nothing_mapped(folder):
    good = external("good", [4], location="w.bin")
    bad = external("bad", [4], location="../secret.bin")
    path = folder / "m.onnx"
    path.write_bytes(model_with(good, bad).SerializeToString())
    with pytest.raises(UnsafeModelError) as caught:
        load(path)
    assert not mapped_files(folder)
    del caught


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs Linux's /proc")
def test_a_load_that_fails_late_leaves_nothing_mapped(folder):
    path = write(folder, "w.bin")
    model = onnx.load_model(path, load_external_data=False)
    model.graph.node[0].input[0] = "missing"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="missing") as caught:
        load(path)
    assert not mapped_files(folder)
    with pytest.raises(ModelError, match="missing"):
        load(ir.load(path))
    assert not mapped_files(folder)
    del caught


def test_an_array_outlives_its_graph(folder):
    array = load(write(folder, "w.bin")).constant("weights")
    gc.collect()
    np.testing.assert_array_equal(array, VALUES)


def test_a_tensor_that_outlives_its_graph_maps_its_file_again_unless_it_changed(folder):
    graph = load(write(folder, "w.bin"))
    tensor = graph.constants["weights"]
    del graph
    np.testing.assert_array_equal(tensor.numpy(), VALUES)

    graph = load(write(folder, "w.bin"))
    tensor = graph.constants["weights"]
    del graph
    (folder / "w.bin").write_bytes(b"\0" * 20)
    with pytest.raises(ModelError, match="changed"):
        tensor.numpy()


def test_bytes_and_protos_have_no_folder_until_one_is_named(folder):
    model = onnx.load_model(write(folder, "w.bin"), load_external_data=False)
    for source in (model, model.SerializeToString()):
        with pytest.raises(UnsafeModelError, match=r"weights.*folder="):
            load(source)
        graph = load(source, folder=folder)
        np.testing.assert_array_equal(graph.constant("weights"), VALUES)


def test_an_ir_model_says_itself_where_its_data_lies(folder):
    graph = load(ir.load(write(folder, "w.bin")))
    np.testing.assert_array_equal(graph.constant("weights"), VALUES)
    with pytest.raises(UnsafeModelError, match="leaves"):
        load(ir.load(write(folder, "../secret.bin")))
