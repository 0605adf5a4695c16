"""axe-core, which finds faults of accessibility in a page."""

from pathlib import Path

from tests.web.browser.page import WebPage

AXE = Path(__file__).parents[1] / "axe" / "node_modules" / "axe-core" / "axe.min.js"
_FAULTS = ("serious", "critical")
_RUN = """async () => {
  const { violations } = await axe.run({ preload: false, resultTypes: ["violations"] });
  return violations.map(({ id, impact, help, nodes }) =>
    ({ id, impact, help, nodes: nodes.map(node => node.html.slice(0, 300)) }));
}"""


def faults(page: WebPage) -> list[str]:
    """Return the serious and critical faults of accessibility, each with an element."""
    if not AXE.exists():
        raise FileNotFoundError(f"axe-core is not at {AXE}: run make {AXE.parents[1]}/.installed")
    # Injected by the debugger, to which the content security policy does not apply.
    page.check()
    session = page.context.new_cdp_session(page.page)
    session.send("Runtime.evaluate", {"expression": AXE.read_text()})
    found = page.page.evaluate(_RUN)
    # Axe itself tries to use inline styles.
    page.faults.clear()
    return [
        f"{one['impact']}: {one['help']} ({one['id']}): {one['nodes']}"
        for one in found
        if one["impact"] in _FAULTS
    ]
