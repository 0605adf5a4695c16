import pytest

from tests.pty.programs import Terminal


@pytest.fixture
def run():
    terminals = []

    def start(*command, **environment):
        terminals.append(Terminal(command, **environment))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()
