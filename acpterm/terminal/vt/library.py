"""Loading of the native library libghostty-vt by cffi, and the declarations of its C interface."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

# The declarations for cffi of the part of the C interface that is used. The package `pyghostty`
# declares the whole interface, but cffi takes 150 ms to parse that, and some 45 ms more for each
# lookup of a type. This part takes a few milliseconds. It matches the pinned release; a test
# compares it with the package's declarations.
TYPES: Final = """
typedef int GhosttyResult;
typedef int GhosttyColorScheme;
typedef int GhosttyTerminalScreen;
typedef uint16_t GhosttyMode;
typedef uint64_t GhosttyCell;
typedef struct GhosttyAllocator GhosttyAllocator;
typedef struct GhosttyTerminalImpl* GhosttyTerminal;
typedef struct GhosttySnapshotDecoderImpl* GhosttySnapshotDecoder;
typedef struct GhosttyRenderStateImpl* GhosttyRenderState;
typedef struct GhosttyRenderStateRowIteratorImpl* GhosttyRenderStateRowIterator;
typedef struct { const uint8_t* ptr; size_t len; } GhosttyString;
typedef struct { uint8_t r; uint8_t g; uint8_t b; } GhosttyColorRgb;
typedef struct { GhosttyMode mode; bool value; } GhosttyTerminalModeConfig;
typedef struct { const GhosttyCell* ptr; size_t len; } GhosttyCellsView;
typedef struct {
  uint16_t rows; uint16_t columns; uint32_t cell_width; uint32_t cell_height;
} GhosttySizeReportSize;
typedef struct {
  uint16_t conformance_level; uint16_t features[64]; size_t num_features;
} GhosttyDeviceAttributesPrimary;
typedef struct {
  uint16_t device_type; uint16_t firmware_version; uint16_t rom_cartridge;
} GhosttyDeviceAttributesSecondary;
typedef struct { uint32_t unit_id; } GhosttyDeviceAttributesTertiary;
typedef struct {
  GhosttyDeviceAttributesPrimary primary;
  GhosttyDeviceAttributesSecondary secondary;
  GhosttyDeviceAttributesTertiary tertiary;
} GhosttyDeviceAttributes;
typedef bool (*GhosttyTerminalColorSchemeFn)(GhosttyTerminal, void*, GhosttyColorScheme*);
typedef bool (*GhosttyTerminalDeviceAttributesFn)(
  GhosttyTerminal, void*, GhosttyDeviceAttributes*);
typedef bool (*GhosttyTerminalSizeFn)(GhosttyTerminal, void*, GhosttySizeReportSize*);
typedef void (*GhosttyTerminalWritePtyFn)(GhosttyTerminal, void*, const uint8_t*, size_t);
typedef GhosttyString (*GhosttyTerminalXtversionFn)(GhosttyTerminal, void*);
"""

FUNCTIONS: Final = """
void ghostty_free(const GhosttyAllocator*, uint8_t*, size_t);
GhosttyResult ghostty_terminal_new(const GhosttyAllocator*, GhosttyTerminal*, uint16_t, uint16_t);
void ghostty_terminal_free(GhosttyTerminal);
GhosttyResult ghostty_terminal_resize(GhosttyTerminal, uint16_t, uint16_t, uint32_t, uint32_t);
GhosttyResult ghostty_terminal_set(GhosttyTerminal, int, const void*);
GhosttyResult ghostty_terminal_get(GhosttyTerminal, int, void*);
void ghostty_terminal_vt_write(GhosttyTerminal, const uint8_t*, size_t);
GhosttyResult ghostty_snapshot_encode_alloc(
  GhosttyTerminal, const GhosttyAllocator*, uint8_t**, size_t*);
GhosttyResult ghostty_snapshot_decoder_new_buf(
  const GhosttyAllocator*, GhosttySnapshotDecoder*, const uint8_t*, size_t);
GhosttyResult ghostty_snapshot_decoder_decode(GhosttySnapshotDecoder, GhosttyTerminal*);
void ghostty_snapshot_decoder_free(GhosttySnapshotDecoder);
GhosttyResult ghostty_render_state_new(const GhosttyAllocator*, GhosttyRenderState*);
void ghostty_render_state_free(GhosttyRenderState);
GhosttyResult ghostty_render_state_update(GhosttyRenderState, GhosttyTerminal);
GhosttyResult ghostty_render_state_get(GhosttyRenderState, int, void*);
GhosttyResult ghostty_render_state_row_get(GhosttyRenderStateRowIterator, int, void*);
GhosttyResult ghostty_render_state_row_iterator_new(
  const GhosttyAllocator*, GhosttyRenderStateRowIterator*);
void ghostty_render_state_row_iterator_free(GhosttyRenderStateRowIterator);
bool ghostty_render_state_row_iterator_next(GhosttyRenderStateRowIterator);
"""

CONSTANTS: Final = {
    "GHOSTTY_COLOR_SCHEME_DARK": 1,
    "GHOSTTY_INVALID_VALUE": -2,
    "GHOSTTY_OUT_OF_MEMORY": -1,
    "GHOSTTY_RENDER_STATE_DATA_ROW_ITERATOR": 4,
    "GHOSTTY_RENDER_STATE_ROW_DATA_CELLS_RAW": 5,
    "GHOSTTY_TERMINAL_DATA_ACTIVE_SCREEN": 6,
    "GHOSTTY_TERMINAL_DATA_COLS": 1,
    "GHOSTTY_TERMINAL_DATA_CURSOR_X": 3,
    "GHOSTTY_TERMINAL_DATA_CURSOR_Y": 4,
    "GHOSTTY_TERMINAL_DATA_MODE": 37,
    "GHOSTTY_TERMINAL_DATA_ROWS": 2,
    "GHOSTTY_TERMINAL_DATA_VT_GROUND": 38,
    "GHOSTTY_TERMINAL_OPT_APC_MAX_BYTES": 19,
    "GHOSTTY_TERMINAL_OPT_COLOR_BACKGROUND": 12,
    "GHOSTTY_TERMINAL_OPT_COLOR_CURSOR": 13,
    "GHOSTTY_TERMINAL_OPT_COLOR_FOREGROUND": 11,
    "GHOSTTY_TERMINAL_OPT_COLOR_SCHEME": 7,
    "GHOSTTY_TERMINAL_OPT_CONTINUATION_MAX_BYTES": 31,
    "GHOSTTY_TERMINAL_OPT_DEVICE_ATTRIBUTES": 8,
    "GHOSTTY_TERMINAL_OPT_GLYPH_PROTOCOL": 24,
    "GHOSTTY_TERMINAL_OPT_KITTY_IMAGE_STORAGE_LIMIT": 15,
    "GHOSTTY_TERMINAL_OPT_MODE": 34,
    "GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_BYTES": 27,
    "GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_LINES": 28,
    "GHOSTTY_TERMINAL_OPT_SIZE": 6,
    "GHOSTTY_TERMINAL_OPT_WRITE_PTY": 1,
    "GHOSTTY_TERMINAL_OPT_XTVERSION": 4,
}


PACKAGE: Final = "pyghostty"


class EmulatorMissingError(Exception):
    """The package with libghostty-vt is not installed, or the library cannot be loaded."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"this needs the terminal emulator of the package {PACKAGE}, which cannot be loaded "
            f"({reason}): install it with `pip install {PACKAGE}`, or ask for text or raw"
        )


class Library(NamedTuple):
    """libghostty-vt, loaded by cffi."""

    ffi: Any
    lib: Any

    def check(self, result: int, call: str) -> None:
        """Raise `MemoryError` or `RuntimeError` if a function has not returned 0."""
        if result == self.lib.GHOSTTY_OUT_OF_MEMORY:
            raise MemoryError(f"libghostty: {call}")
        if result:
            raise RuntimeError(f"libghostty: {call} failed with {result}")


@cache
def _load() -> Library | str:
    """Load libghostty-vt once; return it, or the reason why it cannot be loaded."""
    try:
        from cffi import FFI  # noqa: PLC0415  loaded only when it is needed

        ffi = FFI()
        ffi.cdef(TYPES + FUNCTIONS + _constants())
        return Library(ffi, ffi.dlopen(_path()))
    except (ImportError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def _constants() -> str:
    members = (f"{name} = {value}" for name, value in CONSTANTS.items())
    return f"enum {{ {', '.join(members)} }};"


def _path() -> str:
    """Return the path of the shared library. Raises `ImportError`."""
    found = find_spec(PACKAGE)
    for directory in (found and found.submodule_search_locations) or ():
        for name in ("libghostty-vt.so", "libghostty-vt.dylib"):
            if os.path.exists(path := os.path.join(directory, "_lib", name)):
                return path
    raise ImportError(f"the package {PACKAGE} with libghostty-vt is not installed")


def load() -> Library:
    """Return libghostty-vt. Raises `EmulatorMissingError`."""
    found = _load()
    if isinstance(found, str):
        raise EmulatorMissingError(found)
    return found
