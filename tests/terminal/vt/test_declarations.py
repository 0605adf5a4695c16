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
def test_structure_has_the_layout_of_the_package(package, name):
    own, packaged = load().ffi.typeof(name), package.ffi.typeof(name)
    assert load().ffi.sizeof(own) == package.ffi.sizeof(packaged)
    assert [(field, at.offset) for field, at in own.fields] == [
        (field, at.offset) for field, at in packaged.fields
    ]


@pytest.mark.parametrize("name", library.CONSTANTS)
def test_constant_has_the_value_of_the_package(package, name):
    assert getattr(load().lib, name) == getattr(package.lib, name)


def test_functions_take_arguments_of_the_sizes_that_the_package_declares(package):
    names = [name for name in dir(load().lib) if name.startswith("ghostty_")]
    assert len(names) == library.FUNCTIONS.count(";")
    for name in names:
        own = load().ffi.typeof(getattr(load().lib, name))
        packaged = package.ffi.typeof(getattr(package.lib, name))
        sizes = [load().ffi.sizeof(kind) for kind in own.args]
        assert sizes == [package.ffi.sizeof(kind) for kind in packaged.args], name
        assert own.result.kind == packaged.result.kind or own.result.kind == "primitive", name
