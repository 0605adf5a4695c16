"""Write dist/acpterm-VERSION-dependencies.tar: `python packaging/dependencies.py`.

The archive has the wheels that the recipes install without a package registry: all dependencies for
the Homebrew formula (Python 3.13), pyghostty, which neither Arch Linux nor nixpkgs has, and the
Python module of tree-sitter-bash, which Arch Linux does not have. They are wheels, not
sources, because pyghostty, msgspec and tree-sitter need compilers to build.

Wheels are compressed already, so the archive is not compressed. Its bytes depend only on the pinned
wheels.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
REQUIREMENTS = (HERE / "requirements.txt", HERE / "homebrew" / "requirements.txt")
PYTHON = "3.13"
# pyghostty needs macOS 13 or newer.
PLATFORMS = (
    ("manylinux_2_28_x86_64", "manylinux2014_x86_64"),
    ("manylinux_2_28_aarch64", "manylinux2014_aarch64"),
    ("macosx_13_0_x86_64",),
    ("macosx_13_0_arm64",),
)


def main() -> None:
    """Write the file, and print its path."""
    top = HERE.parent
    command = [sys.executable, "-m", "hatchling", "version"]
    version = subprocess.check_output(command, cwd=top, text=True).strip()
    name = f"acpterm-{version}-dependencies"
    with tempfile.TemporaryDirectory() as directory:
        download(Path(directory))
        content = archive(name, sorted(Path(directory).iterdir()))
    (top / "dist").mkdir(exist_ok=True)
    for old in (top / "dist").glob("acpterm-*-dependencies.tar"):
        old.unlink()
    target = top / "dist" / f"{name}.tar"
    target.write_bytes(content)
    print(target.relative_to(top))


def download(directory: Path) -> None:
    """Download the wheels for all platforms into the directory."""
    for platforms in PLATFORMS:
        command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check"]
        command += ["--no-deps", "--require-hashes", "--only-binary=:all:", f"--dest={directory}"]
        command += [f"--python-version={PYTHON}"]
        command += [f"--platform={platform}" for platform in platforms]
        command += [f"--requirement={path}" for path in REQUIREMENTS]
        subprocess.run(command, check=True)


def archive(name: str, files: list[Path]) -> bytes:
    """Return a tar file with these files in the directory `name`, without times and owners."""
    file = io.BytesIO()
    # Some names are longer than the 100 bytes of USTAR. The default format depends on Python.
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in files:
            info = tarfile.TarInfo(f"{name}/{path.name}")
            content = path.read_bytes()
            info.size = len(content)
            info.mode = 0o644
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


if __name__ == "__main__":
    main()
