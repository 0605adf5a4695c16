"""Write dist/homebrew, dist/aur and dist/nix: `python packaging/recipes.py [RELEASE_URL]`.

RELEASE_URL is the URL of the directory with the files of the release: the sdist, and the archive
that dependencies.py writes. Without it, the recipes refer to dist/ on this machine. If makepkg is
not installed, dist/aur gets no .SRCINFO.

The recipes in packaging/ have placeholders, such as @VERSION@, for the values that change with each
release.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
DIST = HERE.parent / "dist"
RECIPES = (
    "homebrew/acpterm.rb",
    "aur/PKGBUILD",
    "aur/acpterm.install",
    "nix/default.nix",
    "nix/package.nix",
)


def main(release_url: str) -> None:
    """Write the recipes, and print their paths."""
    values = placeholders(release_url)
    for recipe in RECIPES:
        text = (HERE / recipe).read_text()
        text = re.sub(r"@([A-Z0-9_]+)@", lambda found: values[found[1]], text)
        target = DIST / recipe
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)
        print(target.relative_to(HERE.parent))
    if shutil.which("makepkg"):
        target = DIST / "aur" / ".SRCINFO"
        target.write_bytes(srcinfo())
        print(target.relative_to(HERE.parent))
    else:
        # The .SRCINFO of another version would be worse than none.
        (DIST / "aur" / ".SRCINFO").unlink(missing_ok=True)


def srcinfo() -> bytes:
    """Return the metadata of PKGBUILD in the format that the AUR reads."""
    # makepkg refuses to run as root.
    prefix = ["unshare", "--user", "--map-user=65534", "--"] if os.geteuid() == 0 else []
    command = [*prefix, "makepkg", "--printsrcinfo"]
    return subprocess.run(command, cwd=DIST / "aur", check=True, stdout=subprocess.PIPE).stdout


def placeholders(release_url: str) -> dict[str, str]:
    """Return the values of the placeholders by their names.

    Raises `OSError` if a file of the release is missing.
    """
    # In strings, Ruby, shell or Nix would expand some characters that are not in this list.
    if not re.fullmatch(r"(file|https?)://[\w./~%:@+-]+", release_url, re.ASCII):
        sys.exit(f"recipes.py: {release_url!r} is not a URL, or has special characters")
    # hatchling is where pyproject.toml gets the version from.
    command = [sys.executable, "-m", "hatchling", "version"]
    version = subprocess.check_output(command, cwd=HERE.parent, text=True).strip()
    pinned = (HERE / "requirements.txt").read_text()
    [pyghostty] = re.findall(r"^pyghostty==([\w.]+)", pinned, re.MULTILINE)
    [grammar] = re.findall(r"^tree-sitter-bash==([\w.]+)", pinned, re.MULTILINE)
    return {
        "VERSION": version,
        "PYGHOSTTY_VERSION": pyghostty,
        "TREE_SITTER_BASH_VERSION": grammar,
        "RELEASE_URL": release_url.rstrip("/"),
        "SHA256": sha256(DIST / f"acpterm-{version}.tar.gz"),
        "DEPENDENCIES_SHA256": sha256(DIST / f"acpterm-{version}-dependencies.tar"),
    }


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    # The argument is empty if make has no RELEASE_URL.
    main((sys.argv[1:] or [""])[0] or DIST.absolute().as_uri())
