"""Tool calls of a session in a browser, with the terminals that they embed."""


def test_tool_calls_have_their_terminals_in_order_also_after_release(page, agent):
    first = agent.create("echo", "first output")
    second = agent.create("echo", "second output")
    third = agent.create("sh", "-c", "echo third output; sleep 1000")
    for terminal in (first, second):
        agent.terminal("wait_for_exit", terminal)
    agent.tool_call("call-1", "Build it", first)
    agent.tool_call("call-2", "Try it twice", second, third, status="in_progress")
    for terminal in (first, second):
        agent.terminal("release", terminal)
    page.page.get_by_role("link", name="Tool calls").click()
    parts = "Build it", "first output", "Try it twice", "second output", "third output"
    # Each output comes by itself.
    page.until(lambda: all(part in page.view.inner_text() for part in parts))
    places = [page.view.inner_text().index(part) for part in parts]
    assert places == sorted(places)


def test_titles_of_tool_calls_are_inert(page, agent):
    terminal = agent.create("echo", "output")
    agent.tool_call("call", "<img src=x onerror=alert(1)> \u202eabc", terminal)
    page.page.get_by_role("link", name="Tool calls").click()
    page.until(lambda: "onerror" in page.view.inner_text())
    assert page.view.locator("img").count() == 0
    assert "\u202e" not in page.page.content()
