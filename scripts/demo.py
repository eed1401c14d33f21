"""Asks Magika what kind of file this is, with its convolutions on another provider."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from fetch_models import UnreachableError, fetch

import seamline


def features(content: bytes, *, each: int = 1024) -> np.ndarray:
    """Give the first and last bytes of a file as Magika reads them; 256 pads."""
    text = content.strip()
    start, end = text[:each], text[-each:]
    padded = [*start, *[256] * (each - len(start)), *[256] * (each - len(end)), *end]
    return np.array([padded], np.int32)


def main(file: Path) -> int:
    """Run, and print the plan and the answer."""
    try:
        folder = fetch("magika") / "magika/models/standard_v3_3"
    except UnreachableError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    labels = json.loads((folder / "config.min.json").read_text("utf-8"))
    session = seamline.InferenceSession(
        folder / "model.onnx",
        providers=["cpu", "onnxruntime"],
        pins={"Conv": "onnxruntime"},
    )
    (scores,) = session.run(None, {"bytes": features(file.read_bytes())})
    print(session.explain())
    best = int(scores[0].argmax())
    print(f"\n{file}: {labels['target_labels_space'][best]} ({scores[0][best]:.3f})")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else __file__)))
