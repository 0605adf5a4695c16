"""Finds the paths that a sandboxed program must not read: credentials, histories and sockets.

The lists have the well-known paths. A program may store a secret at a path that is in no list:
docs/security.md says how to add a path. Only existing paths are returned, since a sandbox cannot
hide a path that does not exist. So a secret that is created later is readable by programs that were
started before.
"""

import contextlib
import os
import pwd
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

HOME_SECRETS: Final = (
    # Keys and passwords.
    *(".ssh", ".gnupg", ".pki", ".putty", ".age", ".password-store", ".local/share/pass"),
    *(
        ".1password",
        ".config/1Password",
        ".config/op",
        ".config/Bitwarden",
        ".config/Bitwarden CLI",
    ),
    *(".local/share/keyrings", ".local/share/kwalletd", ".kde/share/apps/kwallet"),
    *(".config/keepassxc", ".cache/keepassxc", ".config/sops", ".vault-token"),
    *(".netrc", ".git-credentials", ".config/git/credentials", ".pgpass", ".my.cnf"),
    *(".mylogin.cnf", ".Xauthority", ".ICEauthority"),
    # Clouds and services.
    *(".aws", ".azure", ".config/gcloud", ".kube", ".oci", ".bluemix", ".aliyun", ".boto"),
    *(".s3cfg", ".config/rclone", ".config/doctl", ".config/hcloud", ".config/heroku", ".fly"),
    *(".terraform.d", ".terraformrc", ".pulumi", ".config/configstore", ".vercel", ".railway"),
    *(".local/share/com.vercel.cli", ".wrangler", ".config/.wrangler", ".supabase"),
    *(".config/stripe", ".kaggle", ".huggingface", ".cache/huggingface/token"),
    *(".config/gh", ".config/glab-cli", ".config/hub", ".config/tea", ".config/sentry"),
    # Containers and packages.
    *(".docker/config.json", ".docker/contexts", ".docker/run", ".docker/desktop"),
    *(".config/containers/auth.json", ".colima", ".lima", ".rd", ".npmrc", ".yarnrc.yml"),
    *(".pypirc", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials"),
    *(".m2/settings.xml", ".m2/settings-security.xml", ".gradle/gradle.properties"),
    *(".composer/auth.json", ".config/composer/auth.json", ".nuget/NuGet"),
    # Browsers, mail and chat.
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/google-chrome-beta"),
    *(".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi"),
    *(".config/opera", ".librewolf", ".zen", ".var/app", "snap/firefox", "snap/chromium"),
    *(".config/Slack", ".config/discord", ".config/Signal", ".config/Element"),
    # Agents and editors.
    *(".claude", ".claude.json", ".config/claude", ".codex", ".gemini", ".config/github-copilot"),
    *(".copilot", ".cursor", ".config/Cursor", ".config/cursor", ".continue", ".aider.conf.yml"),
    *(".config/goose", ".config/opencode", ".local/share/opencode", ".local/share/goose"),
    *(".config/crush", ".config/amp", ".local/share/amp", ".qwen", ".kimi", ".grok", ".factory"),
    *(".codeium", ".windsurf", ".config/Windsurf", ".amazonq", ".kiro", ".vibe", ".openhands"),
    *(".config/Code/User/globalStorage", ".vscode-server/data/User/globalStorage"),
    # acpterm itself, if it uses the default directories.
    *(".config/acpterm", ".local/state/acpterm"),
    # Histories, which may hold passwords.
    *(".bash_history", ".zsh_history", ".zhistory", ".histfile", ".history", ".sh_history"),
    *(".local/share/fish/fish_history", ".python_history", ".node_repl_history", ".irb_history"),
    *(".psql_history", ".mysql_history", ".sqlite_history", ".rediscli_history", ".lesshst"),
    *(".viminfo", ".local/state/bash", ".local/state/zsh", ".local/state/python_history"),
)
"""The paths of secrets, relative to a home directory."""

SYSTEM_SECRETS: Final = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers"),
    *(
        "/etc/sudoers.d",
        "/etc/ssl/private",
        "/etc/wireguard",
        "/etc/kubernetes",
        "/etc/krb5.keytab",
    ),
    *("/etc/NetworkManager/system-connections", "/etc/rancher"),
    *("/etc/ssh/ssh_host_rsa_key", "/etc/ssh/ssh_host_ecdsa_key", "/etc/ssh/ssh_host_ed25519_key"),
    *("/var/lib/docker", "/var/lib/containers", "/var/lib/containerd", "/var/lib/kubelet"),
    *("/var/lib/lxd", "/var/snap/lxd", "/var/lib/incus", "/var/lib/NetworkManager"),
    *("/var/spool/cron", "/var/mail", "/var/log", "/sys/kernel/security", "/sys/kernel/debug"),
    *("/sys/kernel/tracing", "/sys/fs/bpf", "/sys/firmware/efi/efivars"),
)
"""The absolute paths of secrets outside of home directories; only root can read most of them."""

_FIRST_COMPONENTS: Final[dict[str, list[str]]] = {}
for _name in HOME_SECRETS:
    _FIRST_COMPONENTS.setdefault(_name.partition("/")[0], []).append(_name)
_HOMES_MAX: Final = 20
# Variables whose values are paths of files or directories with secrets.
_PATH_VARIABLES: Final = (
    *("HISTFILE", "GNUPGHOME", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "KUBECONFIG"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "NETRC", "NPM_CONFIG_USERCONFIG", "DOCKER_CONFIG"),
    *("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XAUTHORITY", "PGPASSFILE", "AZURE_CONFIG_DIR"),
    *("CLOUDSDK_CONFIG", "SSH_AUTH_SOCK", "PASSWORD_STORE_DIR", "VAULT_TOKEN_FILE"),
)


def secret_paths(env: Mapping[str, str]) -> list[str]:
    """Return the real paths of the secrets that exist, none below another."""
    names = list(SYSTEM_SECRETS)
    for home in _homes(env):
        names += _candidates(home)
    for variable in _PATH_VARIABLES:
        names += [path for path in env.get(variable, "").split(":") if os.path.isabs(path)]
    return outermost(existing(names))


def _candidates(home: str) -> list[str]:
    """Return the paths in `home` at which secrets may be."""
    # A path is left out if its first component, such as `.config`, does not exist.
    try:
        entries = set(os.listdir(home))
    except OSError:
        # A directory that cannot be listed may still be entered.
        entries = set(_FIRST_COMPONENTS)
    return [
        f"{home}/{name}"
        for first in _FIRST_COMPONENTS.keys() & entries
        for name in _FIRST_COMPONENTS[first]
    ]


def existing(paths: Iterable[str]) -> list[str]:
    """Return the real paths of those `paths` that exist."""
    found = []
    for path in paths:
        # lstat first: most paths do not exist, and realpath is much slower.
        with contextlib.suppress(OSError):
            os.lstat(path)
            found.append(os.path.realpath(path, strict=True))
    return found


def outermost(paths: Iterable[str]) -> list[str]:
    """Return the `paths` that are not below another one of them, sorted and without duplicates."""
    found: list[str] = []
    for path in sorted(set(paths), key=lambda path: path.rstrip("/") + "/"):
        if not (found and is_below(path, found[-1])):
            found.append(path)
    return found


def is_below(path: str, directory: str) -> bool:
    """Return whether `path` is `directory` or below it, without resolving symbolic links."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def listening_sockets() -> list[str]:
    """Return the paths of all Unix sockets of this network namespace."""
    # A sandbox must hide them: a program can connect even to a socket on a read-only mount.
    try:
        with open("/proc/net/unix", "rb") as file:
            lines = file.read().splitlines()[1:]
    except OSError:
        return []
    # The fields are separated by spaces; the eighth, the path, may contain spaces.
    names = {fields[7] for line in lines if len(fields := line.split(None, 7)) == 8}
    return [
        os.path.realpath(path)
        for path in map(os.fsdecode, names)
        if path.startswith("/") and _is_socket(path)
    ]


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def user_homes() -> list[str]:
    """Return the daemon's `HOME` and that in the user database, whatever a request sets."""
    homes = [os.path.expanduser("~")]
    with contextlib.suppress(KeyError):  # the user is not in the database, as in some containers
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    return [home for home in dict.fromkeys(homes) if os.path.isabs(home)]


def _homes(env: Mapping[str, str]) -> Iterator[str]:
    """Yield `HOME` of `env` and `user_homes`; for root, also `/root` and 20 in `/home`."""
    homes = [env.get("HOME", ""), *user_homes()]
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            homes += [f"/home/{name}" for name in sorted(os.listdir("/home"))[:_HOMES_MAX]]
        homes.append("/root")
    yield from dict.fromkeys(home for home in homes if os.path.isabs(home) and home != "/")
