"""Checks of the packages that the optional commands `acpterm open` and `acpterm mcp` need.

The packages are searched for, but not imported: importing them would take longer than all other
checks.
"""

import importlib.resources
from importlib.util import find_spec
from typing import Final

from acpterm.client.user.doctor.check import CheckResult, missing, ok
from acpterm.runtime.extras import MCP, WEB, how_to_install

_WEB_PACKAGES: Final = ("h11", "hypercorn", "starlette")
_MCP_PACKAGES: Final = ("mcp", "regex")


def web() -> CheckResult:
    """Check that the page of `acpterm open` can be served."""
    if absent := _absent(_WEB_PACKAGES):
        return missing("page", f"no {absent}", f"for `acpterm open`: {how_to_install(WEB)}")
    if not importlib.resources.files("acpterm").joinpath("web/page/vendor").is_dir():
        return missing("page", "it was not built", "for `acpterm open`: run `make page`")
    return ok("page", "`acpterm open` shows it")


def mcp() -> CheckResult:
    """Check that `acpterm mcp` can run."""
    if absent := _absent(_MCP_PACKAGES):
        return missing("MCP", f"no {absent}", f"for `acpterm mcp`: {how_to_install(MCP)}")
    return ok("MCP", "`acpterm mcp` has the tools")


def _absent(packages: tuple[str, ...]) -> str:
    """Return the names of the packages that are not installed, separated by commas."""
    return ", ".join(package for package in packages if find_spec(package) is None)
