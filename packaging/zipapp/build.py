"""Build acpterm.pyz from acpterm's wheel: `python packaging/zipapp/build.py WHEEL ZIPAPP`.

The zipapp contains the dependencies, in the versions of `requirements.txt`, for each of the Pythons
and machines below. `bootstrap.py` describes how the zipapp starts.

The members of `packages.zip` are in one directory for each kind of wheel: `any` for pure Python,
`py3-linux-x86_64` for libraries, and `cp311-linux-x86_64` for extension modules of one Python. The
same input gives the same bytes.
"""

import hashlib
import io
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = {
    "linux-x86_64": ["manylinux_2_28_x86_64", "manylinux2014_x86_64"],
    "linux-aarch64": ["manylinux_2_28_aarch64", "manylinux2014_aarch64"],
}
# The earliest time that a member of a zip file can have.
TIME = (1980, 1, 1, 0, 0, 0)


def main(wheel: Path, target: Path) -> None:
    """Write the file `target`."""
    with tempfile.TemporaryDirectory() as name:
        wheels = download(Path(name)) | {wheel: "any"}
        packages = archive(members(wheels))
    build = hashlib.sha256(packages).hexdigest()[:16]
    bootstrap = (HERE / "bootstrap.py").read_text().replace("@BUILD@", build)
    # `packages` is compressed already.
    outer = archive({"__main__.py": bootstrap.encode(), "packages.zip": packages}, stored=True)
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(b"#!/usr/bin/env python3\n" + outer)
    target.chmod(0o755)


def download(directory: Path) -> dict[Path, str]:
    """Download the dependencies; return the directory in `packages.zip` for each wheel."""
    found: dict[Path, str] = {}
    for machine, platforms in MACHINES.items():
        for python in PYTHONS:
            one = directory / f"{machine}-{python}"
            options = [f"--platform={platform}" for platform in platforms]
            command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps"]
            command += ["--disable-pip-version-check", "--require-hashes", "--only-binary=:all:"]
            command += [f"--requirement={HERE.parent / 'requirements.txt'}", f"--dest={one}"]
            subprocess.run([*command, f"--python-version={python}", *options], check=True)
            for wheel in one.iterdir():
                found[wheel] = kind(wheel, machine)
    return found


def kind(wheel: Path, machine: str) -> str:
    """Return the directory in `packages.zip` for the contents of a wheel."""
    python, abi, platform = wheel.stem.split("-")[-3:]
    if platform == "any":
        return "any"
    return f"{'py3' if abi in ('none', 'abi3') else python}-{machine}"


def members(wheels: dict[Path, str]) -> dict[str, bytes]:
    """Return the contents of the wheels by their paths in `packages.zip`."""
    found: dict[str, bytes] = {}
    for wheel, directory in wheels.items():
        with zipfile.ZipFile(wheel) as file:
            for name in file.namelist():
                # Data, such as manual pages, is outside of site-packages.
                if not name.endswith("/") and not re.match(r"[^/]+\.data/", name):
                    found[f"{directory}/{name}"] = file.read(name)
    return dict(sorted(found.items()))


def archive(contents: dict[str, bytes], *, stored: bool = False) -> bytes:
    """Return a zip file with these members, whose bytes do not depend on the time.

    If `stored` is true, the members are not compressed.
    """
    file = io.BytesIO()
    method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(file, "w", method) as writer:
        for name, content in contents.items():
            info = zipfile.ZipInfo(name, TIME)
            info.external_attr = 0o644 << 16
            info.compress_type = method
            writer.writestr(info, content)
    return file.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
