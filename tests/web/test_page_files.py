"""The files of the page: complete, light, from this host only, and without ways to run markup."""

import gzip
import json
import re
from pathlib import Path

import pytest

import acpterm

ROOT = Path(__file__).parents[2]
PAGE = Path(acpterm.__file__).parent / "web" / "page"
MODULES = sorted((PAGE / "js").glob("*.js"))
# Compressed, all files together.
WEIGHT_MAX = 600_000
IMPORT = re.compile(r"""(?:\bfrom\s+|\bimport\s*\(?\s*)"(\.{1,2}/[^"]+)\"""")
ASSET = re.compile(r"""["'(]/assets/([^"')]+)""")
# What parses markup or code. Nothing of the page needs it, and the policy refuses most of it.
FORBIDDEN = (
    "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(",
    "new Function", "createContextualFragment", "srcdoc",
)  # fmt: skip
# Addresses that are names or examples, not loaded.
NAMES = ("http://www.w3.org/2000/svg", "https://example.org/")


def own_files() -> list[Path]:
    files = [path for path in PAGE.rglob("*") if path.is_file() and "vendor" not in path.parts]
    assert len(files) > 20
    return sorted(files)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_imports_of_modules_exist(path):
    for name in IMPORT.findall(path.read_text()):
        assert (path.parent / name).resolve().is_file(), f"{name}; run `make page` for vendor/"


def test_files_that_the_page_names_exist():
    named = {
        name
        for path in own_files()
        if path.suffix in {".html", ".css"}
        for name in ASSET.findall(path.read_text())
    }
    assert {"js/main.js", "page.css", "vendor/xterm.css"} <= named
    assert [name for name in named if not (PAGE / name).is_file()] == []


def test_page_parses_no_markup_and_names_no_other_host():
    for path in own_files():
        text = path.read_text()
        assert [word for word in FORBIDDEN if word in text] == [], path
        addresses = re.findall(r"\b(?:https?|wss?)://[\w.-]+\S*", text)
        assert [one for one in addresses if not one.startswith(NAMES)] == [], path


def test_page_is_light():
    files = [
        path for path in PAGE.rglob("*") if path.suffix in {".html", ".css", ".js", ".mjs", ".svg"}
    ]
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in files}
    assert sizes["xterm.mjs"] > 10_000
    assert sum(sizes.values()) < WEIGHT_MAX, sizes


def test_libraries_are_shipped_with_their_licences():
    libraries = sorted((PAGE / "vendor").glob("*.mjs"))
    assert libraries, "run `make page`"
    for path in libraries:
        assert "Permission is hereby granted" in path.with_suffix(".LICENSE").read_text()
        assert "sourceMappingURL" not in path.read_text()


def test_lock_file_pins_the_libraries_and_names_no_host():
    directory = ROOT / "packaging" / "page"
    wanted = json.loads((directory / "package.json").read_text())["dependencies"]
    locked = json.loads((directory / "package-lock.json").read_text())["packages"]
    versions = {name: one["version"] for name, one in locked.items() if name}
    assert versions == {f"node_modules/{name}": version for name, version in wanted.items()}
    assert all(one["integrity"].startswith("sha512-") for name, one in locked.items() if name)
    assert "://" not in (directory / "package-lock.json").read_text()


def test_hacking_describes_each_module_of_the_page():
    page = (ROOT / "docs" / "internals" / "HACKING.md").read_text()
    section = re.search(r"^## The page$(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    assert section is not None
    rows = re.findall(r"^\| (`.*?) \| .* \|$", section[1], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(path.stem for path in MODULES)
