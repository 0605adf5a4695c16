"""The packages of the extras and the page, and what to say when they are missing."""

import importlib.resources
import shlex
from typing import Final

MCP: Final = ("mcp>=2.3",)
WEB: Final = ("h11>=0.16", "starlette>=1.0", "wsproto>=1.2")
BUILD_PAGE: Final = "run `make page` in a clone, and install acpterm from there again"


def how_to_install(packages: tuple[str, ...]) -> str:
    """Return commands that install the packages."""
    # The name acpterm is not registered in a package index: pip would install what a stranger
    # registers there.
    names = shlex.join(packages)
    return f"pipx inject acpterm {names} (or, in its environment: pip install {names})"


def page_is_built() -> bool:
    return importlib.resources.files("acpterm").joinpath("web/page/vendor").is_dir()
