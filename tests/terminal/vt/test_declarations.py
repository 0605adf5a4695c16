"""The declarations of the library's interface agree with the package's own."""

import pytest

from acpterm.terminal.vt import library
from acpterm.terminal.vt.library import load

STRUCTS = [
    "GhosttyString",
    "GhosttyColorRgb",
    "GhosttyTerminalModeConfig",
    "GhosttyCellsView",
    "GhosttySizeReportSize",
    "GhosttyDeviceAttributes",
]


@pytest.fixture(scope="module")
def package():
    import pyghostty

    return pyghostty


@pytest.mark.parametrize("name", STRUCTS)
def test_structure_is_laid_out_as_the_package_declares_it(package, name):
    ours, theirs = load().ffi.typeof(name), package.ffi.typeof(name)
    assert load().ffi.sizeof(ours) == package.ffi.sizeof(theirs)
    assert [(field, at.offset) for field, at in ours.fields] == [
        (field, at.offset) for field, at in theirs.fields
    ]


@pytest.mark.parametrize("name", library.CONSTANTS)
def test_constant_has_the_package_s_value(package, name):
    assert getattr(load().lib, name) == getattr(package.lib, name)


def test_functions_take_arguments_of_the_sizes_that_the_package_declares(package):
    names = [name for name in dir(load().lib) if name.startswith("ghostty_")]
    assert len(names) == library.FUNCTIONS.count(";")
    for name in names:
        ours = load().ffi.typeof(getattr(load().lib, name))
        theirs = package.ffi.typeof(getattr(package.lib, name))
        sizes = [load().ffi.sizeof(kind) for kind in ours.args]
        assert sizes == [package.ffi.sizeof(kind) for kind in theirs.args], name
        assert ours.result.kind == theirs.result.kind or ours.result.kind == "primitive", name
