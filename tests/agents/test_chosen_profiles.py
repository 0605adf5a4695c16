"""Profiles that the user chooses with `--profile`, or selects by the program of the agent.

The profile `strict` refuses all commands but `true`.
"""

import json

import pytest

from acpterm.acp.approvals import ApproverRequest
from acpterm.agents.host_connection import connect_daemon, open_host_connection
from acpterm.agents.questions import PendingQuestions
from acpterm.config import Settings
from acpterm.config.profiles import ProfileFor, ProfileTable
from acpterm.host.approvals import TOKENS_MAX
from acpterm.link.daemon import DaemonError
from acpterm.runtime.exec_context import current
from tests.support.asking import configured
from tests.support.commands import run
from tests.support.daemon import daemon
from tests.support.editor import AGENT, create, proxied
from tests.support.processes import environment
from tests.support.prompts import prompt_environment, prompted
from tests.support.proxies import editor_of

STRICT = ProfileTable(safe_commands=["true"], unknown="deny")
SETTINGS = {"profiles": {"strict": STRICT}, "rules": "/dev/null"}
REFUSED = "in the profile 'strict'"
UNKNOWN = "there is no profile 'typo'; there are confirm, guarded, open, pool, strict"


def ask(command, **more):
    return {**create(command, **more), "report": True}


def strict_daemon(tmp_path):
    return daemon(tmp_path, env=environment(**configured(tmp_path, **SETTINGS)), terminate=True)


def marking_agent(tmp_path):
    """Return the command of an agent that leaves a file when it is started."""
    return ["/bin/sh", "-c", f'touch {tmp_path}/started; exec "$@"', "sh", *AGENT]


async def test_chosen_profile_applies_in_an_embedded_proxy():
    async with proxied(settings=SETTINGS, profile="strict") as editor:
        await editor.open("/tmp")
        await editor.prompt(ask("date"), ask("true"))
        assert REFUSED in editor.texts_sent[0]
        assert "terminalId" in editor.texts_sent[1]


async def test_agent_cannot_choose_a_profile():
    async with proxied("--name=pretended", settings=SETTINGS, profile="strict") as editor:
        await editor.open("/tmp")
        asked = {"acpterm": {"profile": "open", "agent": ["pretended"]}}
        await editor.prompt(ask("date", _meta=asked))
        assert REFUSED in editor.texts_sent[0]


async def test_unknown_profile_is_an_error_before_the_agent_starts_in_an_embedded_proxy(tmp_path):
    agent = marking_agent(tmp_path)
    async with proxied(*agent, settings=SETTINGS, profile="typo") as editor:
        with pytest.raises(Exception, match=UNKNOWN):
            await editor.open("/tmp")
    assert editor.status == 1
    assert not (tmp_path / "started").exists()


async def test_proxy_with_a_chosen_profile_does_not_use_the_editors_terminals():
    async with proxied(settings=SETTINGS, profile="strict") as editor:
        await editor.open("/tmp", terminal=True)
        await editor.prompt(ask("date"))
        assert REFUSED in editor.texts_sent[0]


async def test_profile_cannot_be_chosen_for_the_editors_terminals(tmp_path):
    words = ["proxy", "--terminals", "editor", "--profile", "strict", "--", *AGENT]
    done = await run(str(tmp_path / "agent.sock"), *words)
    assert done.status == 2
    assert "--profile strict does not apply to the editor's terminals" in done.err


@pytest.mark.costly
@pytest.mark.parametrize(
    ("pattern", "is_refused"), [("scripted.py", True), ("pretended", False), ("acpterm*", False)]
)
async def test_profile_is_selected_by_the_agents_program_and_not_by_its_name(pattern, is_refused):
    settings = {**SETTINGS, "profile_for": [ProfileFor(profile="strict", agent=pattern)]}
    async with proxied("--name=pretended", settings=settings) as editor:
        await editor.open("/tmp")
        await editor.prompt(ask("date"))
        assert (REFUSED in editor.texts_sent[0]) is is_refused


@pytest.mark.long
async def test_chosen_profile_survives_a_takeover(tmp_path):
    options = ["--profile", "strict"]
    async with strict_daemon(tmp_path) as daemon:
        async with editor_of(tmp_path, daemon.path, options=options) as editor:
            await editor.open("/tmp")
            await editor.prompt(ask("date"))
            await daemon.kill_worker()
            await editor.prompt(ask("date"), ask("true"))
            first, second, safe = editor.texts_sent
            assert REFUSED in first
            assert REFUSED in second
            assert "terminalId" in safe
        # Another agent has the profile of the settings.
        async with editor_of(tmp_path, daemon.path) as editor:
            await editor.open("/tmp")
            await editor.prompt(ask("date"))
            assert "terminalId" in editor.texts_sent[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("profile", "variables", "message"),
    [
        ("typo", {}, UNKNOWN),
        ("strict", {"ACPTERM_USER_SOCKET": "/nonexistent/user.sock"}, "'strict' cannot be used"),
    ],
)
async def test_agent_is_not_started_if_the_daemon_cannot_use_the_profile(
    tmp_path, profile, variables, message
):
    async with strict_daemon(tmp_path) as daemon:
        agent, options = marking_agent(tmp_path), ["--profile", profile]
        async with editor_of(tmp_path, daemon.path, *agent, options=options, **variables) as editor:
            with pytest.raises(Exception, match=message):
                await editor.open("/tmp")
        assert message in (tmp_path / "proxy-stderr").read_text()
    assert not (tmp_path / "started").exists()


@pytest.mark.long
async def test_profile_is_an_error_if_the_token_for_it_is_not_valid_any_more(tmp_path):
    async with strict_daemon(tmp_path) as daemon:
        settings = Settings(socket=daemon.path)
        questions = PendingQuestions(ApproverRequest("editor", profile="strict"))
        connection = await connect_daemon(settings, None, questions)
        async with daemon.user() as user:
            for _ in range(TOKENS_MAX):
                await user.request("approver", {"kind": "editor"})
        with pytest.RaisesGroup(pytest.RaisesExc(DaemonError, match="not accepted the token")):
            async with open_host_connection(connection, settings, current(), "x", questions):
                pass


@pytest.mark.long
async def test_chosen_profile_applies_in_acpterm_prompt(tmp_path):
    env = prompt_environment(tmp_path, **configured(tmp_path, **SETTINGS))
    options = ["--profile", "strict"]
    _, done = await prompted(tmp_path, ask("date"), ask("true"), options=options, env=env)
    refused, _, rest = done.out.partition("terminalId")
    assert REFUSED in refused
    assert rest


@pytest.mark.long
@pytest.mark.parametrize("embedded", [True, False])
async def test_unknown_profile_is_an_error_of_acpterm_prompt(tmp_path, embedded):
    async with strict_daemon(tmp_path) as daemon:
        words = ["prompt", "[]", *(["--embedded"] if embedded else []), "--profile", "typo"]
        done = await run(
            daemon.path,
            *[*words, "--", *marking_agent(tmp_path)],
            **configured(tmp_path, **SETTINGS),
        )
        assert done.status != 0
        assert UNKNOWN in done.err
    assert not (tmp_path / "started").exists()


@pytest.mark.long
async def test_profile_of_acpterm_prompt_applies_in_the_daemon(tmp_path):
    async with strict_daemon(tmp_path) as daemon:
        steps = json.dumps([ask("date")])
        for options, is_refused in ([], False), (["--profile", "strict"], True):
            done = await run(daemon.path, "prompt", steps, *options, "--", *AGENT)
            assert (REFUSED in done.out) is is_refused
