"""A user has one daemon, however the commands are started and whatever their environment lacks."""

import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import acpterm

pytestmark = [
    pytest.mark.skipif(not shutil.which("bwrap"), reason="bwrap is not installed"),
    # One after the other, some twenty commands start.
    pytest.mark.timeout(180),
]

ROOT = Path(acpterm.__file__).parents[1]
UID = os.getuid()
PATH = {"PATH": os.environ["PATH"]}
# Not that of $HOME: a start without it has the home of the account.
THE_HOME = pwd.getpwuid(UID).pw_dir
HOME = {**PATH, "HOME": THE_HOME}
# A runtime directory of another user.
OTHERS = "/usr" if UID else "/run/user/another"
STARTS = {
    "a shell after a login": {**HOME, "XDG_RUNTIME_DIR": f"/run/user/{UID}", "LANG": "C.UTF-8"},
    "avante.nvim": PATH,
    "cron": {**HOME, "LOGNAME": "me", "SHELL": "/bin/sh", "PATH": f"/usr/bin:/bin:{PATH['PATH']}"},
    "a service of systemd": {**PATH, "INVOCATION_ID": "x", "JOURNAL_STREAM": "8:1"},
    "a service of the user": {**HOME, "XDG_RUNTIME_DIR": f"/run/user/{UID}", "MANAGERPID": "1"},
    "sudo -u": {**HOME, "SUDO_UID": "1", "XDG_RUNTIME_DIR": OTHERS},
    "su": {**HOME, "XDG_RUNTIME_DIR": OTHERS, "USER": "another"},
    "ssh without PAM": {**HOME, "SSH_CONNECTION": "::1 1 ::1 22", "XDG_RUNTIME_DIR": ""},
    "a container": {**PATH, "HOME": "", "container": "podman"},
    "launchd": {**HOME, "TMPDIR": "/var/tmp", "XPC_SERVICE_NAME": "0"},
}
# Runs in a file system of its own, so that the usual places are empty: prints, for each start, the
# keeper's pid, the output of `env` in a terminal, and stderr.
SCRIPT = """
import json, os, subprocess, sys
early, starts = json.loads(sys.argv[1])
acpterm = [sys.executable, "-P", "-m", "acpterm"]

def run(env, *words):
    done = subprocess.run([*acpterm, *words], env=env, capture_output=True, text=True)
    return done.stdout, done.stderr

os.mkdir("/run/user/another")
if not os.getuid():
    os.chown("/run/user/another", 1234, 1234)

def login():
    os.mkdir("/run/user/%d" % os.getuid(), 0o700)

found = []
if not early:
    login()
for number, env in enumerate(starts):
    home, _ = run(env, "run", "--rm", "echo $HOME")
    status, notes = run(env, "status", "--json")
    found.append([json.loads(status)["keeperPid"], home.strip(), notes])
    if early and not number:
        login()
run(starts[0], "shutdown")
print(json.dumps(found))
"""


def in_empty_places(script, *arguments, home=False):
    """Run a script of Python with empty `/tmp` and `/run/user`; return what it prints as JSON.

    With `home`, the user's `.config` and `.local` are empty, too.
    """
    private = ["--tmpfs", "/run/user", "--tmpfs", "/tmp"]
    if home:
        private += ["--tmpfs", f"{THE_HOME}/.config", "--tmpfs", f"{THE_HOME}/.local"]
    seen = [word for path in {str(ROOT), sys.prefix} for word in ("--bind", path, path)]
    alone = ["--unshare-pid", "--proc", "/proc", "--die-with-parent", "--chdir", str(ROOT)]
    python = [sys.executable, "-c", script, *arguments]
    command = ["bwrap", "--dev-bind", "/", "/", *private, *seen, *alone, *python]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.parametrize("early", [False, True], ids=["after the login", "before the login"])
def test_all_starts_have_one_daemon_and_the_users_home(early):
    starts = list(STARTS.values())
    if early:
        # Such as a line of cron with @reboot: there is no directory in /run/user yet.
        starts = [STARTS["cron"], *starts]
    found = in_empty_places(SCRIPT, json.dumps([early, starts]))
    assert found == [[found[0][0], THE_HOME, ""]] * len(starts)


NOTED = """
import json, os, subprocess, sys
acpterm = [sys.executable, "-P", "-m", "acpterm"]
os.mkdir("/tmp/own")
plain = {"PATH": os.environ["PATH"]}
own = {**plain, "XDG_RUNTIME_DIR": "/tmp/own"}

def run(env, *words):
    return subprocess.run([*acpterm, *words], env=env, capture_output=True, text=True).stderr

run(plain, "run", "-d", "sleep", "60")
noted = [run(own, *words) for words in (["ls"], ["status"], ["run", "-d", "true"])]
noted += [run(plain, "ls"), run({**own, "ACPTERM_SOCKET": "/tmp/own/a.sock"}, "ls")]
for env in plain, own:
    run(env, "shutdown")
noted.append(run(own, "ls"))
print(json.dumps(noted))
"""


@pytest.mark.long
def test_command_says_that_the_user_has_a_second_daemon():
    path = f"/tmp/acpterm-{UID}/agent.sock"
    note = f"acpterm: another daemon of yours, with other terminals: --socket {path}\n"
    assert in_empty_places(NOTED) == [note, note, note, "", "", ""]


ATTACK = """
import json, os, pwd, subprocess, sys
acpterm = [sys.executable, "-P", "-m", "acpterm"]
plain = {"PATH": os.environ["PATH"]}

def run(env, *words):
    return subprocess.run([*acpterm, *words], env=env, capture_output=True, text=True)

def put(directory, profile):
    os.makedirs(f"{directory}/acpterm")
    with open(f"{directory}/acpterm/config.toml", "w") as file:
        file.write(f"profile = '{profile}'")
    with open(f"{directory}/acpterm/rules.toml", "w") as file:
        file.write("[[rule]]\\nprefix = ['rm']\\naction = 'allow'\\n")

home = os.path.expanduser("~" + pwd.getpwuid(os.getuid()).pw_name)
put("/tmp/evil/.config", "open")
attacks = [
    {**plain, "HOME": "/tmp/evil"},
    {**plain, "XDG_CONFIG_HOME": "/tmp/evil/.config"},
    {**plain, "XDG_CONFIG_HOME": "/tmp/evil/later"},
]
named = ["run", "--config", "/tmp/evil/.config/acpterm/config.toml", "-d", "true"]
found = []
for has_own in False, True:
    if has_own:
        put(f"{home}/.config", "confirm")
    for env in attacks:
        tried = run(env, "run", "-d", "true")
        tried = tried if env is not attacks[0] or has_own else run(plain, *named)
        if env is attacks[2] and not has_own:
            # The file is made after the daemon has started.
            put("/tmp/evil/later", "open")
            run(env, "restart")
        run(plain, "run", "-d", "true")
        status = json.loads(run(plain, "status", "--json").stdout)
        found.append([status["profile"], tried.stderr])
        run(plain, "shutdown")
print(json.dumps(found))
"""


@pytest.mark.long
def test_environment_of_the_agent_that_starts_the_daemon_chooses_no_settings_file():
    found = in_empty_places(ATTACK, home=True)
    assert [profile for profile, _ in found] == 3 * ["guarded"] + 3 * ["confirm"]
    for number, (_, error) in enumerate(found):
        whose = "the environment's XDG_CONFIG_HOME or HOME has" if number else "--config names"
        assert (f"no daemon is started: {whose} the settings" in error) == (number != 2), error


STATE = """
import json, os, subprocess, sys
acpterm = [sys.executable, "-P", "-m", "acpterm"]
plain = {"PATH": os.environ["PATH"]}
named = {**plain, "XDG_STATE_HOME": "/tmp/named"}

def run(env, *words):
    return subprocess.run([*acpterm, *words], env=env, capture_output=True, text=True).stdout

found = []
for first, then in (named, plain), (plain, named):
    run(first, "run", "-d", "sleep", "60")
    found.append([json.loads(run(then, "status", "--json"))["auditDir"]])
    for env in first, then:
        found[-1].append("sleep" in run(env, "audit"))
    found[-1].append("sleep" in run({**then, "ACPTERM_AUDIT_DIR": "/tmp/archive"}, "audit"))
    run(then, "shutdown")
    found[-1].append("sleep" in run({**named, "HOME": "/tmp/elsewhere"}, "audit"))
found.append(os.path.exists("/tmp/named"))
serve = subprocess.Popen([*acpterm, "serve"], env=named, stderr=subprocess.PIPE)
serve.stderr.readline()
found += [json.loads(run(plain, "status", "--json"))["auditDir"], "sleep" in run(plain, "audit")]
run(plain, "shutdown")
serve.wait()
print(json.dumps(found))
"""


@pytest.mark.long
def test_environment_of_the_first_start_does_not_choose_where_the_audit_log_is():
    *started, is_named, served, is_mixed = in_empty_places(STATE, home=True)
    usual = f"{THE_HOME}/.local/state/acpterm/audit"
    assert started == 2 * [[usual, True, True, False, True]]
    assert not is_named
    assert (served, is_mixed) == ("/tmp/named/acpterm/audit", False)
