"""The table of losses: what a command may throw away, publish or reveal, by kind.

`losses_of` returns the losses that the words of one command suggest. Some are certain; others hold
only if a fact does (`Need`), such as that a file exists. This module does no I/O: a host finds the
facts (`host.loss_facts`), and the judge is asked again with them.
"""

import enum
import itertools
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from acpterm.config.profiles import Kind
from acpterm.policy.syntax.command import SimpleCommand
from acpterm.policy.words import UNKNOWN_TEXT


class Need(enum.StrEnum):
    """What has to be so for a loss to hold; `Loss.operands` says of which paths or names."""

    NOTHING = "nothing"
    ALIAS = "alias"
    """git has an alias of this name. Its finding is the text of the alias."""
    BRANCH = "branch"
    """The branches have commits that no other branch and no remote has."""
    CHANGED = "changed"
    """git: tracked files below the paths have changes that are not staged."""
    CLEANED = "cleaned"
    """git: `git clean` with these arguments removes something."""
    DEFAULT = "default"
    """git: a forced push of these branches, or the current one, drops commits that are only there,
    or is to the default branch."""
    DELETED = "deleted"
    """A file or directory exists, and git cannot restore it."""
    MANY = "many"
    """Several of these files have changes that git cannot restore."""
    MISSING = "missing"
    """The package is not installed in the project."""
    OVERWRITTEN = "overwritten"
    """A file exists, and git cannot restore its content."""
    PUSHED = "pushed"
    """git: a commit that is rewritten (those after the operand, or HEAD) was pushed."""
    RESET = "reset"
    """git: tracked files have changes, staged or not, or commits after the operand would be lost."""
    UNSAVED = "unsaved"
    """git: there are files with changes, or untracked ones that no build makes."""
    STASH = "stash"
    """git: there is something in the stash."""
    TAG = "tag"
    """git: a tag exists, and no branch or remote has its commit."""


NOUNS: Final[Mapping[Need, str]] = {
    Need.BRANCH: "branches", Need.STASH: "stashes", Need.TAG: "tags", Need.PUSHED: "commits",
    Need.DEFAULT: "commits", Need.MISSING: "packages",
}  # fmt: skip
"""What the names of a finding are, if there are several; by default, files."""


class Loss(NamedTuple):
    """What a command may lose, and what has to be known to be certain."""

    kind: Kind
    reason: str
    """What the command does; `{}` stands for the names of what is lost."""
    need: Need = Need.NOTHING
    operands: tuple[str, ...] = ()
    directory: str | None = ""
    """Where the command runs, seen from the directory of the line; None if that is not known."""
    is_plain: bool = True
    """Whether the loss counts where the fact cannot be found out: the words say enough."""

    def text(self, names: Sequence[str] | None) -> str:
        """Return the reason, with the names of what is lost; None if they are not known."""
        noun = NOUNS.get(self.need, "files")
        if not names:
            return self.reason.format(noun)
        shown = ", ".join(names[:NAMES_SHOWN])
        if len(names) > NAMES_SHOWN:
            shown += f" and {len(names) - NAMES_SHOWN} more"
        return self.reason.format(shown if len(names) == 1 else f"{len(names)} {noun}: {shown}")


Finding: TypeAlias = tuple[str, ...] | None
"""The names of what is lost; empty if nothing is; None if it cannot be found out."""
NO_FINDINGS: Final[Mapping["Loss", Finding]] = MappingProxyType({})
NAMES_SHOWN: Final = 3
"""Maximum names of what is lost that a reason has."""
_WORDS_MAX: Final = 400

_THROWS: Final = "throws away changes in {}"
_REWRITES: Final = "rewrites commits that were pushed: {}"

# ---- Losses that the words alone decide: for each program, expressions of its arguments.

_OPTIONS: Final = r"(?:-\S+ (?:[^-\s]\S* )??)*"
_SQL: Final = (
    r"(?i).*\b(?:drop\s+(?:table|database|schema|view|index|role|user|keyspace|collection)\b"
    r"|truncate\s+(?:table\s+)?[\w.\"`]+|delete\s+from\s+[\w.\"`\[\]]+\s*(?:;|$|['\"]|--)"
    r"|update\s+[\w.\"`]+\s+set\b(?!.*\bwhere\b)|alter\s+table\b.*\bdrop\b|flushall|flushdb"
    r"|drop_?database\s*\(|\.drop\s*\(|delete_?many\s*\(\s*\{\s*\}|\.remove\s*\(\s*(?:\{\s*\})?\s*\))"
)
_Row: TypeAlias = tuple[str, Kind, str, str]
_ROWS: Final[tuple[_Row, ...]] = (
    # Programs; kind; reason; the arguments, from the first.
    ("npm pnpm yarn bun lerna", Kind.PUBLISH, "publishes a package", rf"{_OPTIONS}(?:npm )?publish\b"),
    ("cargo poetry flit hatch uv pdm rye maturin", Kind.PUBLISH, "publishes a package", rf"{_OPTIONS}(?:publish|upload)\b"),
    ("cargo", Kind.PUBLISH, "publishes a release", r"release\b.*(?:--execute|-\w*x)"),
    ("rake", Kind.PUBLISH, "publishes a release", r"(?:\S+ )*(?:release|gem:push)\b"),
    ("skopeo", Kind.PUBLISH, "publishes an image", r"(?:copy|sync)\b.* docker://\S+ *$"),
    ("crane ko oras regctl", Kind.PUBLISH, "publishes an image", r"(?:push|append|copy|publish|apply)\b"),
    ("huggingface-cli hf", Kind.PUBLISH, "publishes files", r"upload\S*"),
    ("conda mamba", Kind.STARTUP, "changes start-up files", r"init\b"),
    ("stow", Kind.STARTUP, "changes start-up files", r".*(?:-t ?|--target[ =])~"),
    ("argocd flux istioctl linkerd", Kind.REMOTE, "deletes from a cluster", r"(?:\w+ )?(?:delete|uninstall)\b"),
    ("wrangler", Kind.REMOTE, "deletes from the net", r"\S+ (?:\S+ )?delete\b"),
    ("wget", Kind.REMOTE, "deletes from a server", r".*--method[ =]DELETE\b"),
    ("nomad", Kind.REMOTE, "deletes from a cluster", r"job stop\b"),
    ("docker", Kind.REMOTE, "forgets a host", r"context rm\b"),
    ("minikube", Kind.REMOTE, "deletes from a cluster", r"kubectl -- delete\b"),
    ("mvn mvnw gradle gradlew", Kind.DATA, "destroys data in a database", r"(?:\S+ )*(?:flyway:?clean|flywayClean|liquibase:dropAll|dropAll)\b"),
    ("influx", Kind.DATA, "deletes stored values", r"\w+ delete\b"),
    ("heroku", Kind.SECRETS, "shows a token", r"auth:token"),
    ("npm", Kind.SECRETS, "shows tokens", r"token list|config get \S*(?:auth|token)"),
    ("npm pnpm yarn bun", Kind.DOWNLOADS, "runs a program from the net", r"(?:create|init|innit) [^-\s]"),
    ("pip pip3 uv python python3", Kind.DOWNLOADS, "runs code from the net", r"(?:-m )?(?:pip )?install\b.*(?:-i|--(?:extra-)?index-url)[ =]https?://(?!pypi\.org|download\.pytorch\.org|test\.pypi)"),
    ("go", Kind.DOWNLOADS, "runs code from the net", r"install \S+@\S+"),
    ("nix", Kind.DOWNLOADS, "runs a program from the net", r"(?:run|shell|develop)\b.* ?(?:github:|git\+|https?:)"),
    ("nix-shell", Kind.DOWNLOADS, "runs a program from the net", r".*https?://"),
    ("brew", Kind.DOWNLOADS, "runs code from the net", r"install\b.* https?://"),
    ("gem", Kind.DOWNLOADS, "runs code from the net", r"install\b.*(?:-s|--source)[ =]https?://(?!rubygems\.org)"),
    ("helm", Kind.DOWNLOADS, "applies what comes from the net", r"(?:install|upgrade)\b.* https?://"),
    ("docker podman nerdctl", Kind.DOWNLOADS, "gives an image all files of this machine", rf"{_OPTIONS}(?:run|create)\b.*(?:-v ?|--volume[ =]|source=)/:"),
    ("twine", Kind.PUBLISH, "publishes a package", "upload"),
    ("python python3", Kind.PUBLISH, "publishes a package", r"-m (?:twine upload|flit publish|poetry publish|build .*upload)|setup\.py .*upload"),
    ("gem", Kind.PUBLISH, "publishes a package", "push"),
    ("changeset", Kind.PUBLISH, "publishes packages", "publish"),
    ("semantic-release goreleaser release-it np", Kind.PUBLISH, "publishes a release", r"(?!--version|check|build|init)"),
    ("mvn mvnw", Kind.PUBLISH, "publishes artifacts", r"(?:\S+ )*(?:deploy|release:perform)\b"),
    ("gradle gradlew", Kind.PUBLISH, "publishes artifacts", r"(?:\S+ )*:?(?:\S*:)?publish(?!ToMavenLocal)\w*\b"),
    ("sbt", Kind.PUBLISH, "publishes artifacts", r"(?:\S+ )*publish(?:Signed)?\b"),
    ("dotnet", Kind.PUBLISH, "publishes a package", "nuget push"),
    ("nuget choco pod conan vsce ovsx anaconda hex", Kind.PUBLISH, "publishes a package", r"(?:trunk )?(?:push|upload|publish)\b"),
    ("mix", Kind.PUBLISH, "publishes a package", r"hex\.publish"),
    ("docker podman nerdctl buildah", Kind.PUBLISH, "publishes an image", rf"{_OPTIONS}(?:(?:image |manifest )?push\b|(?:buildx )?(?:build|bake)\b.* --push\b|compose {_OPTIONS}push\b)"),
    ("docker-compose", Kind.PUBLISH, "publishes images", rf"{_OPTIONS}push\b"),
    ("helm", Kind.PUBLISH, "publishes a chart", rf"{_OPTIONS}push\b"),
    ("gh glab", Kind.PUBLISH, "publishes a release", rf"{_OPTIONS}release (?:create|upload)\b"),
    ("gh", Kind.PUBLISH, "publishes a text", rf"{_OPTIONS}gist create\b"),
    ("gh", Kind.PUBLISH, "makes a repository public", rf"{_OPTIONS}repo (?:create\b.* --public|edit\b.* --visibility[ =]public)"),
    ("firebase netlify wrangler fly flyctl serverless sls eb surge modal railway", Kind.PUBLISH, "deploys to the net", rf"{_OPTIONS}(?:pages )?(?:deploy|publish|up)\b"),
    ("vercel", Kind.PUBLISH, "deploys to the net", r"(?:deploy\b.*)?.*--prod\b"),
    ("gcloud", Kind.PUBLISH, "deploys to the net", rf"{_OPTIONS}(?:alpha |beta )?(?:app|run|functions) deploy\b"),
    ("cdk", Kind.PUBLISH, "deploys to the net", rf"{_OPTIONS}deploy\b"),
    ("gh-pages", Kind.PUBLISH, "publishes a site", ""),
    ("mkdocs mike", Kind.PUBLISH, "publishes a site", r"(?:gh-)?deploy\b"),

    ("crontab", Kind.SCHEDULE, "changes the scheduled commands", r"(?!(?:-u \S+ )?-l\b)"),
    ("at batch", Kind.SCHEDULE, "schedules a command", r"(?:-[fmMqt]\b|now|noon|midnight|teatime|tomorrow|\d)|$"),
    ("systemctl", Kind.SCHEDULE, "changes what starts by itself", rf"{_OPTIONS}(?:(?:re)?enable|link|edit|mask|preset|add-wants|set-default)\b"),
    ("systemd-run", Kind.SCHEDULE, "schedules a command", r".*--(?:on-|timer-property)"),
    ("launchctl", Kind.SCHEDULE, "changes what starts by itself", "(?:load|bootstrap|submit|enable|kickstart)"),
    ("schtasks", Kind.SCHEDULE, "schedules a command", "(?i)/create"),
    ("loginctl", Kind.SCHEDULE, "changes what starts by itself", "enable-linger"),
    ("update-rc.d rc-update chkconfig", Kind.SCHEDULE, "changes what starts by itself", r"(?!--list|show)"),
    ("pm2", Kind.SCHEDULE, "changes what starts by itself", r"(?:startup|save)\b"),
    ("brew", Kind.SCHEDULE, "changes what starts by itself", r"services (?:start|restart)\b"),
    ("anacron", Kind.SCHEDULE, "schedules a command", ""),

    ("ssh-copy-id", Kind.STARTUP, "installs a key", ""),
    ("chsh usermod useradd userdel visudo passwd chpasswd", Kind.STARTUP, "changes accounts", ""),
    ("npm", Kind.STARTUP, "changes what npm executes", r"config set .*(?:script-shell|prefix|registry|node-options)"),

    ("kubectl oc k9s k microk8s", Kind.REMOTE, "deletes from a cluster", rf"{_OPTIONS}(?:kubectl )?(?:delete|drain|replace\b.* --force|rollout undo)\b"),
    ("kubectl oc", Kind.REMOTE, "deletes from a cluster", rf"{_OPTIONS}(?:scale\b.* --replicas[ =]0\b|apply\b.* --prune\b)"),
    ("helm", Kind.REMOTE, "deletes from a cluster", rf"{_OPTIONS}(?:uninstall|delete|del|un|rollback)\b"),
    ("terraform tofu terragrunt", Kind.REMOTE, "destroys infrastructure", rf"{_OPTIONS}(?:run-all |run )?(?:destroy|state (?:rm|push)|workspace delete|force-unlock|taint|apply\b.*-(?:auto-approve|destroy))\b"),
    ("pulumi", Kind.REMOTE, "destroys infrastructure", rf"{_OPTIONS}(?:destroy|down|dn|stack rm|state delete|up\b.*(?: -y\b| --yes\b))"),
    ("cdk cdktf sam copilot", Kind.REMOTE, "destroys infrastructure", rf"{_OPTIONS}(?:destroy|delete|\w+ delete)\b"),
    ("serverless sls eb", Kind.REMOTE, "destroys infrastructure", rf"{_OPTIONS}(?:remove|terminate)\b"),
    ("aws", Kind.REMOTE, "deletes from AWS", rf"{_OPTIONS}(?:s3 (?:rm|rb|mv)\b|s3 sync\b.* --delete\b|[a-z0-9-]+ (?:delete|terminate|remove|purge|deregister|destroy|batch-delete|empty|schedule-key-deletion|revoke|disable|stop)\b)"),
    ("gcloud", Kind.REMOTE, "deletes from Google Cloud", rf"{_OPTIONS}(?:[a-z0-9-]+ ){{1,4}}(?:delete|remove|rm|destroy|purge)\b"),
    ("gsutil", Kind.REMOTE, "deletes from Google Cloud", rf"{_OPTIONS}(?:rm|rb|mv|rsync\b.* -d)\b"),
    ("bq", Kind.REMOTE, "deletes from Google Cloud", rf"{_OPTIONS}rm\b"),
    ("az", Kind.REMOTE, "deletes from Azure", r"(?:[a-z0-9-]+ ){1,4}(?:delete|purge|remove|delete-batch)\b"),
    ("doctl linode-cli hcloud scw vultr-cli oci ibmcloud openstack eksctl civo exo", Kind.REMOTE, "deletes from a cloud", rf"{_OPTIONS}(?:[a-z0-9-]+ ){{0,4}}(?:delete|destroy|remove|rm|terminate)\b"),
    ("heroku", Kind.REMOTE, "deletes from Heroku", r"(?:\S+:)?(?:destroy|remove|reset|delete|unset)\b"),
    ("fly flyctl railway render", Kind.REMOTE, "deletes from the net", rf"{_OPTIONS}(?:\w+ ){{0,2}}(?:destroy|delete|down)\b"),
    ("vercel netlify firebase wrangler supabase", Kind.REMOTE, "deletes from the net", rf"{_OPTIONS}(?:[\w-]+ ){{0,2}}(?:[\w-]+:)?(?:rm|remove|delete|disable|\w+:delete)\b"),
    ("gh glab", Kind.REMOTE, "deletes from the remote", rf"{_OPTIONS}(?:[a-z-]+ (?:delete|archive|transfer|rename|remove)\b|(?:pr|mr) (?:close|merge)\b.*(?: --delete-branch\b| -d\b)|api\b.*(?:-X ?|--method[ =])(?:DELETE|delete)\b)"),
    ("curl http xh https", Kind.REMOTE, "deletes from a server", r"(?!.*(?:localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0))(?:.*(?:-X ?|--request[ =])DELETE\b|DELETE )"),
    ("rclone", Kind.REMOTE, "deletes from a remote", rf"{_OPTIONS}(?:delete|deletefile|purge|sync|cleanup|rmdirs?|move)\b"),
    ("s3cmd s5cmd mc mcli", Kind.REMOTE, "deletes from a store", rf"{_OPTIONS}(?:rm|del|rb|mirror\b.* --remove)\b"),
    ("npm pnpm yarn", Kind.REMOTE, "withdraws a package", rf"{_OPTIONS}(?:npm )?(?:unpublish|deprecate)\b"),
    ("cargo gem", Kind.REMOTE, "withdraws a package", "yank"),
    ("vagrant", Kind.DATA, "destroys machines", "destroy"),
    ("virsh VBoxManage vboxmanage multipass limactl incus lxc proxmox qm", Kind.DATA, "destroys machines", r"(?:undefine|destroy|unregistervm|delete|purge|\w+ delete)\b"),
    ("ansible", Kind.REMOTE, "deletes from other hosts", r".*state=absent"),

    ("dropdb dropuser", Kind.DATA, "deletes a database", ""),
    ("mysqladmin", Kind.DATA, "deletes a database", r".*\bdrop\b"),
    ("psql mysql mariadb sqlite3 duckdb clickhouse clickhouse-client cockroach sqlcmd sqlplus usql pgcli mycli litecli cqlsh mongo mongosh redis-cli valkey-cli sqlite bq snowsql trino presto influx wp turso", Kind.DATA, "destroys data in a database", _SQL),
    ("redis-cli valkey-cli", Kind.DATA, "destroys data in a database", r"(?i).*\b(?:flush(?:all|db)|(?:del|unlink) \S)"),
    ("docker podman nerdctl", Kind.DATA, "deletes containers, images or volumes", rf"{_OPTIONS}(?:(?:system|volume|container|image|builder|network) prune\b|volume (?:rm|remove)\b|(?:container )?rm\b.* ?(?:-\w*[vf]|--force|--volumes)|rmi\b.*-\w*f|compose {_OPTIONS}(?:down\b.*(?: -v\b| --volumes\b)|rm\b.* -\w*v)|machine (?:rm|reset)\b|system reset\b|swarm leave\b|stack rm\b|service rm\b)"),
    ("docker-compose podman-compose", Kind.DATA, "deletes volumes", rf"{_OPTIONS}(?:down\b.*(?: -v\b| --volumes\b)|rm\b.* -\w*v)"),
    ("rails rake", Kind.DATA, "destroys data in a database", r".*\bdb:(?:drop|reset|schema:load|purge|truncate_all|migrate:reset|setup|rollback)"),
    ("prisma", Kind.DATA, "destroys data in a database", r"migrate reset|db push\b.*(?:--force-reset|--accept-data-loss)"),
    ("php artisan", Kind.DATA, "destroys data in a database", r"(?:artisan )?(?:migrate:(?:fresh|reset|refresh|rollback)|db:wipe)|bin/console doctrine:(?:database|schema):drop"),
    ("python python3 manage.py django-admin", Kind.DATA, "destroys data in a database", r"(?:\S*manage\.py )?(?:flush|reset_db|sqlflush \||migrate \S+ zero)\b"),
    ("alembic flask", Kind.DATA, "destroys data in a database", r"(?:db )?downgrade\b"),
    ("knex sequelize sequelize-cli typeorm drizzle-kit", Kind.DATA, "destroys data in a database", r".*(?:migrate:rollback --all|db:drop|schema:drop|migrate:undo:all|\bdrop\b)"),
    ("dotnet", Kind.DATA, "destroys data in a database", "ef database drop"),
    ("mix", Kind.DATA, "destroys data in a database", r"ecto\.(?:drop|reset|rollback)"),
    ("diesel sqlx", Kind.DATA, "destroys data in a database", r"database (?:reset|drop)|migration (?:revert|redo)"),
    ("supabase", Kind.DATA, "destroys data in a database", r"db reset"),
    ("flyway liquibase", Kind.DATA, "destroys data in a database", r".*\b(?:clean|drop-?all|rollback\S*)\b"),
    ("hasura goose dbmate migrate", Kind.DATA, "destroys data in a database", r".*\b(?:drop|reset|down-to 0|down)\b"),
    ("pg_restore", Kind.DATA, "destroys data in a database", r".*(?:--clean|-\w*c\b)"),
    ("pg_dropcluster", Kind.DATA, "deletes a database", ""),
    ("zfs zpool lvremove vgremove pvremove", Kind.DATA, "destroys a file system", r"(?:destroy|rollback|labelclear)\b|[^-\s]|-[fy]"),
    ("btrfs", Kind.DATA, "destroys a file system", r"subvolume delete"),
    ("parted sgdisk sfdisk cfdisk mkswap blkdiscard hdparm cryptsetup nvme mdadm", Kind.DATA, "changes a disk", r".*(?:mklabel|mkpart|\brm\b|--zap|-[oZ]\b|/dev/\S+ *$|--security-erase|luksFormat|luksErase|erase|format|--zero)"),
    ("kafka-topics kafka-topics.sh", Kind.DATA, "deletes topics", r".*--delete"),
    ("rabbitmqctl rabbitmqadmin", Kind.DATA, "deletes queues", r"(?:delete\S*|purge_queue|purge|reset|force_reset)\b"),
    ("etcdctl", Kind.DATA, "deletes stored values", r"del\b"),
    ("consul vault nomad", Kind.REMOTE, "deletes stored values", r"(?:kv )?(?:del|delete|destroy|metadata delete|secrets disable|stop)\b"),
    ("restic borg duplicity", Kind.DATA, "deletes backups", rf"{_OPTIONS}(?:forget|prune|delete|remove-)"),
    ("tmutil", Kind.DATA, "deletes backups", "(?:delete|disable)"),
    ("minikube kind k3d colima", Kind.DATA, "deletes a cluster", r"(?:cluster )?delete\b"),
    ("curl", Kind.DATA, "deletes from a server", r".*(?:-X ?|--request[ =])DELETE\b.*:(?:9200|5984|8086|6333|8983)\b"),
    ("ipcrm", Kind.DATA, "destroys data", ""),
    ("nix-collect-garbage", Kind.DATA, "deletes earlier generations", r".*(?:-d\b|--delete)"),

    ("ps", Kind.SECRETS, "shows the environment of other programs", r"(?:-\S+ )*[axuwflj]*e[axuwflj]*(?: |$)"),
    ("security", Kind.SECRETS, "reads secrets of the keychain", r"(?:find-(?:generic|internet)-password\b.* -[wg]|dump-keychain|export)"),
    ("secret-tool", Kind.SECRETS, "reads a secret", "(?:lookup|search)"),
    ("pass gopass", Kind.SECRETS, "reads a secret", r"(?:show|-c|otp)\b"),
    ("gpg gpg2", Kind.SECRETS, "reads a private key", r".*--export-secret"),
    ("gh", Kind.SECRETS, "shows a token", r"auth (?:token\b|status\b.*(?: -t\b| --show-token))"),
    ("glab", Kind.SECRETS, "shows a token", r"auth status\b.*(?: -t\b| --show-token)"),
    ("gcloud", Kind.SECRETS, "shows a token", r"auth (?:application-default )?print-\S*token|secrets versions access"),
    ("az", Kind.SECRETS, "shows a token", r"account get-access-token|keyvault secret (?:show|download)"),
    ("aws", Kind.SECRETS, "shows a secret", r"configure (?:export-credentials|get \S*(?:secret|key|token))|secretsmanager get-secret-value|ssm get-parameters?\b.*--with-decryption|(?:ecr|codeartifact) get-\S*(?:password|token)|sts get-session-token"),
    ("kubectl oc", Kind.SECRETS, "shows secrets", rf"{_OPTIONS}(?:get secrets?\b.*(?:-o|--output|--template)|config view\b.*--raw)"),
    ("op bw lpass", Kind.SECRETS, "reads a secret", r"(?:read|item get|get|show|export|document get)\b"),
    ("vault", Kind.SECRETS, "reads a secret", r"(?:kv )?(?:read|get)\b|print token"),
    ("doppler infisical heroku", Kind.SECRETS, "shows secrets", r"(?:secrets|export|config(?!:(?:set|unset)))\b"),
    ("sops age", Kind.SECRETS, "reads secrets", r".*(?:-d\b|--decrypt)|exec-env|decrypt"),
    ("ansible-vault", Kind.SECRETS, "reads secrets", "(?:view|decrypt|edit)"),
    ("docker-credential-desktop docker-credential-secretservice docker-credential-osxkeychain", Kind.SECRETS, "reads a secret", "get"),
    ("keyctl", Kind.SECRETS, "reads a secret", "(?:print|pipe|read)"),
    ("getent", Kind.SECRETS, "reads passwords", "g?shadow"),
    ("unshadow mimipenguin", Kind.SECRETS, "reads passwords", ""),

    ("npx bunx uvx", Kind.DOWNLOADS, "runs a program from the net", r"(?:-\S+ )*(?:github:|gist:|gitlab:|git\+|https?://|--from (?:git\+|https?:))"),
    ("pip pip3 uv pipx python python3", Kind.DOWNLOADS, "runs code from the net", r"(?:-m )?(?:pip )?(?:install|add|run|tool install)\b.* (?:'|\")?(?:\S+ ?@ ?)?(?:git\+|https?://(?!\S*/simple\b|download\.pytorch\.org/whl\b|\S*pypi))"),
    ("npm pnpm yarn bun", Kind.DOWNLOADS, "runs code from the net", r"(?:install|i|add|global add)\b.* (?:git\+|git://|https?://|github:)"),
    ("deno", Kind.DOWNLOADS, "runs a program from the net", r"(?:run|install)\b.* https?://"),
    ("go", Kind.DOWNLOADS, "runs a program from the net", r"run (?:-\S+ )*\S+@\S+"),
    ("cargo", Kind.DOWNLOADS, "runs code from the net", r"install\b.* --git\b"),
    ("kubectl", Kind.DOWNLOADS, "applies what comes from the net", rf"{_OPTIONS}(?:apply|create)\b.*(?:-f|--filename)[ =]?https?://"),
    ("bash sh zsh source .", Kind.DOWNLOADS, "runs a program from the net", r"(?:-\S+ )*https?://"),
    ("iex Invoke-Expression", Kind.DOWNLOADS, "runs what it is given", ".*(?:iwr|irm|http)"),

    ("hg", Kind.WORK, "throws away changes", r"(?:update|up|checkout|co)\b.*(?: -C\b| --clean)|revert\b.*(?: --all| -a\b|--no-backup)|purge|strip|(?:--config \S+ )?(?:histedit|rollback)"),
    ("svn", Kind.WORK, "throws away changes", r"revert\b|cleanup\b.*--remove"),
    ("jj", Kind.WORK, "throws away changes", r"(?:abandon|restore|op (?:restore|abandon))\b"),
    ("rimraf del-cli trash-empty", Kind.WORK, "deletes files", r"[^-]|--glob|$"),
    ("rsync", Kind.REMOTE, "deletes files of another machine", r"(?!.*(?: -\w*n\w* |--dry-run))(?:.* )?--del\S*.* \S+:\S*$"),
    ("rsync", Kind.WORK, "deletes files that the source does not have", r"(?!.*(?: -\w*n\w* |--dry-run))(?:.* )?(?:--del\S*|--remove-source-files)"),
    ("robocopy", Kind.WORK, "deletes files that the source does not have", "(?i).*/(?:mir|purge)"),
    ("bfg git-filter-repo git-filter-branch", Kind.HISTORY, "rewrites history", ""),
    ("fsutil cipher", Kind.DATA, "destroys data", "(?i).*(?:/w|setzerodata)"),
)  # fmt: skip
_DRY: Final = re.compile(r"(?:^| )--?dry-?run(?!=(?:none|false))|(?:^| )--help\b")
# Code of other languages that deletes directories.
_CODE: Final = re.compile(
    r"rmtree\s*\(|\brm(?:dir)?(?:Sync)?\s*\([^)]*recursive|remove_tree\s*\(|rm_rf?\b|rm_r\s*\(|rimraf"
    r"|FileUtils\.(?:rm|remove)|Dir\.delete|unlink_tree|File::Path|\bunlink\s+glob|File\.delete"
    r"|\bos\.(?:remove|unlink|removedirs)\s*\(|\.unlink\s*\(|unlinkSync\s*\(|\.truncate\s*\(\s*0|\bunlink\s*\(?\s*['\"]"
)
_CODE_SECRET: Final = re.compile(
    r"(?:open|read\w*|File|load\w*|Path)\W[^;\n]*?(\.ssh/id_\w+|\.aws/credentials|/etc/shadow|/proc/\w+/environ"
    r"|\.git-credentials|\.netrc|(?<![\w.])\.env(?![\w.]))"
)
_CODE_DOWNLOAD: Final = re.compile(
    r"(?:exec|eval)\s*[(`][^;\n]*(?:urlopen|requests\.get|fetch|urllib|http|curl |wget )|(?:open-uri|Net::HTTP).*eval"
)

_CODE_SQL: Final = re.compile(
    r"(?i)execute\w*\s*\(\s*[\"'`]{1,3}\s*(?:drop\s+(?:table|database|schema)|truncate\b|delete\s+from\s+\w+\s*[\"'`;])"
)
# The paths that `open(path, "w")` and the like write.
_CODE_WRITE: Final = re.compile(
    r"open\s*\((?:os\.path\.expanduser\s*\()?\s*['\"]([^'\"]+)['\"]\)?\s*,\s*['\"][wa]"
    r"|write\w*Sync\s*\(\s*['\"]([^'\"]+)['\"]|Path\s*\(['\"]([^'\"]+)['\"]\)\.write_|File\.write\s*\(?['\"]([^'\"]+)"
)
_FED: Final = re.compile(r"\b(?:echo|printf)\b[^|]*")

# ---- Files.

_SECRET: Final = re.compile(
    r"(?:^|/)(?:"
    r"\.ssh/(?!known_hosts|config$|authorized_keys|[^/]*\.pub$)[^/]*[^/]|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?"
    r"|\.aws/(?:credentials|(?:sso|cli)/cache/.*)|\.gnupg/(?:private-keys.*|secring.*|.*\.key)|\.netrc|_netrc|\.pgpass|\.pypirc"
    r"|\.docker/config\.json|\.kube/config|kubeconfig|\.git-credentials|\.config/(?:gh/hosts\.yml|glab-cli/config\.yml"
    r"|gcloud/(?:credentials\.db|application_default_credentials\.json|access_tokens\.db|legacy_credentials/.*)|hub|op/.*|git/credentials)"
    r"|\.azure/(?:accessTokens|msal_token_cache|azureProfile)\.\w+|\.vault-token|\.terraform\.d/credentials\.tfrc\.json|\.terraformrc"
    r"|\.cargo/credentials(?:\.toml)?|\.gem/credentials|\.m2/settings(?:-security)?\.xml|\.my\.cnf|\.mylogin\.cnf"
    r"|\.claude/\.credentials\.json|\.codex/auth\.json|\.gemini/oauth_creds\.json|\.config/anthropic/.*|\.huggingface/token|\.cache/huggingface/token"
    r"|\.(?:mozilla/firefox|thunderbird)/.*(?:logins\.json|key[34]\.db|cookies\.sqlite)|(?:google-chrome|chromium|Chrome|BraveSoftware|microsoft-edge)[^/]*/.*(?:Login Data|Cookies|Local State)"
    r"|(?:Keychains|keyrings|\.password-store|kwalletd)/.*|\.heroku/.*credentials.*|\.s3cfg|\.boto|rclone\.conf|\.wgetrc|\.dockercfg|master\.key"
    r"|\.env(?:\.(?!example|sample|template|dist|test|defaults?|schema|md|d\.ts)[\w.-]+)?"
    r"|(?:server|private|priv|tls|ssl|host|client)[\w-]*\.(?:key|pem)|[\w.-]*(?:private|_rsa|_ed25519)[\w-]*(?:\.pem|\.key)?"
    r"|[\w.-]*\.tfstate(?:\.backup)?|service[-_]?account[\w-]*\.json|client_secret[\w.-]*\.json|credentials\.json|secrets?\.(?:ya?ml|json|toml|env)|[\w.-]+\.(?:p12|pfx|jks|keystore|kdbx)"
    r")$|^/etc/(?:g?shadow-?|sudoers|krb5\.keytab|ssl/private/.*|ssh/ssh_host_\w+_key)$|^/proc/[^/]+/(?:task/[^/]+/)?environ$"
    r"|^(?:~|/root|/home/[^/]+)/\.(?:\w+_history|npmrc)$"
    r"|(?:^|/)\.(?:ssh|aws|gnupg|password-store)/?$|^/run/secrets/.*"
)
_HOME: Final = r"(?:~[\w-]*|/home/[^/]+|/root|/Users/[^/]+)"
_STARTUP: Final = re.compile(
    rf"(?:^{_HOME}/(?:\.(?:bash|zsh|ksh|csh|tcsh)(?:rc|_profile|_login|_logout|_aliases|env)|\.(?:profile|login|zprofile|zlogin|zshenv|xinitrc"
    r"|xprofile|xsession(?:rc)?|pam_environment|gitconfig|npmrc|pypirc|vimrc|inputrc|tmux\.conf|netrc|curlrc|wgetrc|rhosts|forward|envrc|mailcap|screenrc|gdbinit)"
    r"|\.config/(?:fish/(?:config\.fish|(?:conf\.d|functions)/.*)|autostart/.*|systemd/user/.*|environment\.d/.*|git/.*|nvim/init\.\w+|pip/pip\.conf|Code/User/\w+\.json)"
    r"|\.(?:claude|codex|gemini|cursor)/(?:settings\S*\.json|hooks/.*|config\.toml|mcp\.json)|\.claude\.json"
    r"|\.local/share/(?:systemd/user|applications)/.*|Library/Launch(?:Agents|Daemons)/.*|\.docker/config\.json|\.kube/config|\.aws/(?:config|credentials)"
    r"|\.oh-my-zsh/custom/.*|\.local/bin/(?:git|ls|sudo|ssh|python3?|node|npm))"
    r"|(?:^|/)\.ssh(?:/.*)?|(?:^|/)\.git/(?:hooks(?:/.*)?|config)"
    r"|^/etc/(?:cron.*|profile(?:\.d/.*)?|rc\.local|rc\d?\.d/.*|init\.d/.*|systemd/.*|ld\.so\..*|sudoers(?:\.d/.*)?|passwd|group|g?shadow|hosts(?:\.\w+)?"
    r"|ssh/.*|bash\.bashrc|bashrc|zsh/.*|zshrc|environment|pam\.d/.*|xdg/autostart/.*|apt/.*|crontab|anacrontab|fstab|sysctl.*|resolv\.conf|nsswitch\.conf|udev/.*)"
    r"|^/var/spool/(?:cron|at)/.*|^/Library/Launch(?:Agents|Daemons)/.*|^/(?:usr/(?:local/)?)?s?bin/[^/]+|^/(?:usr/)?lib/systemd/.*)$"
)
_NO_FILES: Final = re.compile(r"-|/dev/.*|/proc/self/fd/.*|&?\d+|")
# Programs that show or copy the content of the files among their arguments.
_READERS: Final = ["cat", "tac", "less", "more", "head", "tail", "bat", "batcat", "grep", "egrep", "fgrep", "rg", "ag", "zgrep", "awk", "gawk", "mawk", "nawk", "sed", "cut", "sort", "uniq", "tr", "xxd", "od", "hexdump", "hd", "strings", "base64", "base32", "openssl", "nl", "paste", "fold", "fmt", "rev", "pr", "diff", "cmp", "comm", "jq", "yq", "xmllint", "scp", "rsync", "curl", "wget", "nc", "ncat", "tar", "zip", "gzip", "7z", "gpg", "vim", "vi", "view", "nano", "emacs", "mail", "column", "dd", "pbcopy", "xclip", "xsel", "cp", "mv", "install", "ln", "expand", "look", "split", "ed", "code", "shuf", "dasel", "mlr", "bsdtar", "cpio", "python", "python3", "node", "ruby", "perl", "php", "ssh-keygen", "sqlite3", "source_", "zcat", "bzcat", "xzcat", "pygmentize", "glow", "tee_", "print", "cksum_", "ps_"]
_QUIET: Final = re.compile(r"-\w*[qclL]\w*|--(?:quiet|silent|count|files-with\S*)")
_CURL_FILE: Final = re.compile(r"(?:[\w.-]*=)?@(.+)|[\w.-]+=@(.+)|file://(.+)")
_GREPS: Final = frozenset(
    (
        "grep",
        "egrep",
        "fgrep",
        "rg",
        "ag",
        "zgrep",
        "sed",
        "awk",
        "gawk",
        "mawk",
        "nawk",
        "jq",
        "yq",
    )
)


def _operands(texts: Sequence[str], values: str = "") -> list[str]:
    """Return the arguments that are no options; letters in `values` are options with a value."""
    found: list[str] = []
    skip = False
    for at, text in enumerate(texts):
        if skip:
            skip = False
        elif text == "--":
            return [*found, *texts[at + 1 :]]
        elif text.startswith("-") and text != "-":
            skip = len(text) == 2 and text[1] in values
        else:
            found.append(text)
    return found


def _has(texts: Sequence[str], letters: str, *names: str) -> bool:
    """Return whether one of the short options `letters` or of the long options is given."""
    for text in texts:
        if text == "--":
            return False
        if text.startswith("--"):
            if text.partition("=")[0] in names:
                return True
        elif text.startswith("-") and any(letter in text[1:] for letter in letters):
            return True
    return False


def _value(texts: Sequence[str], short: str, *names: str) -> str | None:
    """Return the value of an option, such as `-o x`, `-ox` or `--output=x`."""
    for at, text in enumerate(texts):
        name, equals, value = text.partition("=")
        if name in names:
            return value if equals else "".join(texts[at + 1 : at + 2])
        if short and text.startswith(f"-{short}"):
            return text[2:] or "".join(texts[at + 1 : at + 2])
        if short and re.fullmatch(rf"-[a-zA-Z]+{short}", text):
            return "".join(texts[at + 1 : at + 2])
    return None


def _targets(name: str, texts: list[str]) -> tuple[str, list[str]]:  # noqa: C901, PLR0911, PLR0912  one for each form
    """Return how a program changes files, as a reason, and the files; none for other programs."""
    if name in (">", ">|", "&>", ">&", "<>"):
        return "overwrites {}", texts[:1]
    if name in (">>", "&>>"):
        return "", texts[:1]
    if name in ("rm", "unlink", "trash", "srm"):
        return "deletes {}", _operands(texts)
    if name in ("cp", "mv", "install", "ln", "gcp", "gmv"):
        if _has(
            texts, "n" if name in ("cp", "mv") else "", "--no-clobber", "--backup", "--update"
        ) or (name == "install" and _has(texts, "d")):
            return "", []
        directory = _value(texts, "t", "--target-directory")
        operands = _operands(texts, "tSmog" if name == "install" else "tS")
        if directory:
            operands = [one for one in operands if one != directory]
            return "overwrites {}", [
                posixpath.join(directory, posixpath.basename(one)) for one in operands
            ]
        if len(operands) < 2:
            return "", []
        *sources, last = operands
        inside = [posixpath.join(last, posixpath.basename(one.rstrip("/"))) for one in sources]
        is_kept = name == "ln" and not _has(texts, "f", "--force")
        return "" if is_kept else "overwrites {}", [last, *inside]
    if name in ("tee", "sponge"):
        is_added = _has(texts, "a", "--append")
        return "" if is_added else "overwrites {}", _operands(texts)
    if name == "truncate":
        size = _value(texts, "s", "--size") or ""
        return "" if size.startswith(("+", ">", "%")) else "empties {}", _operands(texts, "srI")
    if name == "dd":
        return "overwrites {}", [one[3:] for one in texts if one.startswith("of=")]
    if name in ("curl", "wget"):
        output = _value(texts, "o" if name == "curl" else "O", "--output", "--output-document")
        return "overwrites {}", [output] if output else []
    if name in ("scp", "rsync"):
        operands = _operands(texts, "eiPp")
        last = operands[-1] if len(operands) > 1 else ""
        # Into the home directory: the start-up files.
        last = "~/.profile" if last in ("~", "~/") else last
        return "", [] if ":" in last else [last]
    if name in ("sed", "gsed") and any(re.match(r"-[a-zA-Z]*i|--in-place", one) for one in texts):
        has_script = _has(texts, "ef", "--expression", "--file")
        return "", _operands(texts, "efl")[0 if has_script else 1 :]
    if (
        name == "tar"
        and texts
        and re.match(r"-?\w*c\w*f|-?\w*f\w*c", texts[0])
        and "--remove-files" not in texts
    ):
        output = _value(texts, "f", "--file") or "".join(texts[1:2])
        return "overwrites {}", [output]
    if name in ("ssh-keygen",) and not _has(texts, "lyRFHBLA"):
        output = _value(texts, "f")
        return "overwrites {}", [output] if output else []
    if name == "sort":
        output = _value(texts, "o", "--output")
        inputs = _operands(texts, "oktST")
        return "overwrites {}", [output] if output and output not in inputs else []
    if name == "uniq":
        return "overwrites {}", _operands(texts, "fsw")[1:2]
    if name == "ffmpeg":
        return "overwrites {}", texts[-1:] if "-y" in texts else []
    if name == "qemu-img":
        return "overwrites {}", _operands(texts, "fo")[1:2] if texts[:1] == ["create"] else []
    if name == "chmod":
        is_private = any(
            re.fullmatch(r"0?[67]00|0?[46][04]0|0?[67]44|go[-=]\S*|u\S*|400", one) for one in texts
        )
        return "", [] if is_private else [one for one in _operands(texts)[1:] if ".ssh" in one]
    if name in ("zip", "7z", "tar"):
        # Archives whose sources are removed.
        is_moved = (
            _has(texts, "m" if name == "zip" else "", "--move", "--remove-files")
            or "-sdel" in texts
        )
        return "deletes {}", _operands(texts, "f")[1 if name != "tar" else 0 :] if is_moved else []
    if name in ("split", "csplit", "patch", "touch", "mkdir"):
        return "", _operands(texts)
    if name in ("sqlite3", "pg_dump", "mysqldump"):
        output = _value(texts, "f", "--file", "--result-file") if name != "sqlite3" else None
        return "overwrites {}", [output] if output else []
    return "", []


def _in_place(name: str, texts: list[str]) -> list[str] | None:
    """Return the files that a program edits in place, with `UNKNOWN_TEXT`; None if it does not."""
    if name in ("sed", "gsed") and any(re.match(r"-[a-zA-Z]*i|--in-place", one) for one in texts):
        has_script = _has(texts, "ef", "--expression", "--file")
        return _operands(texts, "efl")[0 if has_script else 1 :]
    if name in ("perl", "ruby") and any(re.fullmatch(r"-[a-zA-Z0-9]*i\S*", one) for one in texts):
        return _operands(texts, "eE")
    return None


def _files(name: str, texts: list[str], directory: str | None) -> Iterator[Loss]:
    """Yield the losses of writing files: start-up files, and what exists."""
    reason, paths = _targets(name, texts)
    edited = _in_place(name, texts)
    for path in (*paths, *(edited or ())):
        full = _full(path, directory)
        if name not in ("touch", "mkdir") and full and _STARTUP.search(posixpath.normpath(full)):
            what = "a key file" if ".ssh" in full else "a start-up or system file"
            kind = Kind.SCHEDULE if "/cron" in full or "/spool/" in full else Kind.STARTUP
            yield Loss(kind, f"writes {_shown(full)}, {what}")
            break
    if edited:
        known = tuple(one for one in edited if UNKNOWN_TEXT not in one)
        is_open = len(known) < len(edited)
        yield Loss(
            Kind.WORK, _THROWS, Need.MANY, (".",) if is_open else known, directory, is_plain=False
        )
    known = tuple(one for one in paths if UNKNOWN_TEXT not in one and not _NO_FILES.fullmatch(one))
    if (
        reason
        and paths
        and not known
        and paths[0] == UNKNOWN_TEXT
        and name in ("rm", "truncate", "unlink")
    ):
        # The names come from another command.
        yield Loss(Kind.WORK, reason, Need.UNSAVED, (), directory, is_plain=False)
    elif reason and known:
        need = Need.DELETED if reason.startswith("deletes") else Need.OVERWRITTEN
        yield Loss(Kind.WORK, reason, need, known[:_WORDS_MAX], directory, is_plain=False)


def _full(path: str, directory: str | None) -> str:
    if path.startswith(("/", "~")) or not directory:
        return path
    return posixpath.join(directory, path)


def _shown(path: str) -> str:
    return path.replace(UNKNOWN_TEXT, "…").replace("{", "").replace("}", "")


def _secrets(name: str, texts: list[str], directory: str | None) -> Iterator[Loss]:
    if name in _GREPS and _has(texts, "qcl" if name.endswith("grep") else "", "--quiet", "--count"):
        return
    paths = list(texts)
    if name in ("cp", "mv", "install", "ln", "rsync", "scp"):
        paths = _operands(texts, "teiSP")[:-1]
        # A copy of the project's own file stays in the project.
        is_inside = (
            bool(texts) and not texts[-1].startswith(("/", "~", "..")) and ":" not in texts[-1]
        )
        paths = [
            one for one in paths if not is_inside or not posixpath.basename(one).startswith(".env")
        ]
    elif name == "ssh-keygen":
        paths = [] if not _has(texts, "y") else texts
    elif name in ("curl", "wget", "http"):
        paths = [
            next(filter(None, match.groups())) for one in texts if (match := _CURL_FILE.search(one))
        ]
        for option in ("-T", "--upload-file", "--post-file", "--body-file"):
            paths += [b for a, b in zip(texts, texts[1:], strict=False) if a == option]
            paths += [one.partition("=")[2] for one in texts if one.startswith(f"{option}=")]
    elif name in ("sed", "awk", "gawk", "mawk", "nawk", "grep", "egrep", "fgrep", "rg", "jq", "yq"):
        paths = _operands(texts, "ef" if "grep" in name else "e")[0 if _has(texts, "ef") else 1 :]
        if name == "sed" and _in_place(name, texts) is not None:
            paths = []
    elif name in ("tar", "zip", "7z"):
        paths = [one for one in texts if not re.fullmatch(r"\.env\S*", one)]
    elif name in ("python", "python3", "node", "php"):
        paths = []
    for path in paths:
        full = _full(path, directory)
        if _SECRET.search(posixpath.normpath(full) if full else ""):
            yield Loss(Kind.SECRETS, f"reads {_shown(full)}, which has secrets")
            return


# ---- git.

_GIT_COMMANDS: Final = frozenset(
    ["add", "am", "annotate", "apply", "archive", "bisect", "blame", "branch", "bugreport", "bundle", "cat-file", "check-attr", "check-ignore", "check-mailmap", "check-ref-format", "checkout", "checkout-index", "cherry", "cherry-pick", "citool", "clean", "clone", "column", "commit", "commit-graph", "commit-tree", "config", "count-objects", "credential", "daemon", "describe", "diagnose", "diff", "diff-files", "diff-index", "diff-tree", "difftool", "fast-export", "fast-import", "fetch", "fetch-pack", "filter-branch", "filter-repo", "fmt-merge-msg", "for-each-ref", "for-each-repo", "format-patch", "fsck", "gc", "grep", "gui", "hash-object", "help", "hook", "index-pack", "init", "instaweb", "interpret-trailers", "lfs", "log", "ls-files", "ls-remote", "ls-tree", "mailinfo", "mailsplit", "maintenance", "merge", "merge-base", "merge-file", "merge-index", "merge-tree", "mergetool", "mktag", "mktree", "mv", "name-rev", "notes", "pack-objects", "pack-redundant", "pack-refs", "patch-id", "prune", "prune-packed", "pull", "push", "quiltimport", "range-diff", "read-tree", "rebase", "receive-pack", "reflog", "remote", "repack", "replace", "request-pull", "rerere", "reset", "restore", "rev-list", "rev-parse", "revert", "rm", "send-email", "send-pack", "shortlog", "show", "show-branch", "show-index", "show-ref", "sparse-checkout", "stage", "stash", "status", "stripspace", "submodule", "subtree", "svn", "switch", "symbolic-ref", "tag", "unpack-file", "unpack-objects", "update-index", "update-ref", "update-server-info", "var", "verify-commit", "verify-pack", "verify-tag", "version", "whatchanged", "worktree", "write-tree"]
)  # fmt: skip
_GIT_CONFIG: Final = re.compile(
    r"(?i)(?:core\.(?:hookspath|pager|editor|sshcommand|fsmonitor|askpass|attributesfile|gitproxy|alternaterefscommand)|alias\..*|credential\..*helper"
    r"|include(?:if\..*)?\.path|filter\..*|diff\..*\.(?:command|textconv)|diff\.external|merge\..*\.driver|pager\..*|gpg\..*program|init\.templatedir"
    r"|url\..*\.(?:insteadof|pushinsteadof)|sequence\.editor|(?:http\.)?sslverify|http\..*proxy)"
)
_Git: TypeAlias = Callable[[list[str], str | None], Iterator[Loss]]


def _git(texts: list[str], directory: str | None) -> Iterator[Loss]:
    at = 0
    while at < len(texts) and texts[at].startswith("-"):
        option = texts[at]
        at += 1
        if option in (
            "-C",
            "-c",
            "--git-dir",
            "--work-tree",
            "--namespace",
            "--exec-path",
            "--config-env",
        ):
            if option == "-C" and texts[at : at + 1]:
                directory = enter(directory, texts[at])
            at += 1
        if option.startswith(("--git-dir", "--work-tree")):
            directory = None
    if at >= len(texts):
        return
    command, rest = texts[at], texts[at + 1 :]
    if command == "clean" and any("requireforce=false" in one.lower() for one in texts[:at]):
        rest = ["-f", *rest]
    found = _GIT.get(command)
    if found is not None:
        yield from found(rest, directory)
    elif command not in _GIT_COMMANDS and re.fullmatch(r"[\w-]+", command):
        yield Loss(
            Kind.WORK, "runs an alias of git", Need.ALIAS, (command,), directory, is_plain=False
        )


def _paths(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the paths; the whole directory if some are not known."""
    return (".",) if any(UNKNOWN_TEXT in one for one in texts) else tuple(texts[:_WORDS_MAX])


def _git_checkout(rest: list[str], directory: str | None) -> Iterator[Loss]:
    operands = _operands([one for one in rest[: rest.index("--")]] if "--" in rest else rest, "bB")
    created = _value(rest, "B")
    if created:
        yield Loss(
            Kind.HISTORY, "drops commits of {}", Need.BRANCH, (created,), directory, is_plain=False
        )
    if _has(rest, "p", "--patch"):
        return
    if _has(rest, "f", "--force"):
        yield Loss(Kind.WORK, _THROWS, Need.RESET, (), directory)
    elif "--" in rest:
        if paths := rest[rest.index("--") + 1 :]:
            need = Need.RESET if operands else Need.CHANGED
            yield Loss(
                Kind.WORK,
                _THROWS,
                need,
                ("", *_paths(paths)) if operands else _paths(paths),
                directory,
            )
    elif any(one.startswith("--pathspec-from-file") for one in rest):
        yield Loss(Kind.WORK, _THROWS, Need.CHANGED, (), directory)
    elif operands and not _has(rest, "bBt", "--orphan", "--track", "--detach"):
        is_path = operands[0] in (".", ":/", "*") or operands[0].startswith(("./", "../", ":"))
        if len(operands) > 1 and not is_path:
            # The first may be a branch.
            yield Loss(
                Kind.WORK,
                _THROWS,
                Need.RESET,
                ("", *_paths(operands[1:])),
                directory,
                is_plain=False,
            )
        yield Loss(Kind.WORK, _THROWS, Need.CHANGED, _paths(operands), directory, is_plain=is_path)


def _git_restore(rest: list[str], directory: str | None) -> Iterator[Loss]:
    is_staged, is_worktree = _has(rest, "S", "--staged"), _has(rest, "W", "--worktree")
    if _has(rest, "p", "--patch") or (is_staged and not is_worktree):
        return
    paths = _paths(_operands(rest, "s"))
    if is_staged or _has(rest, "s", "--source"):
        yield Loss(Kind.WORK, _THROWS, Need.RESET, ("", *paths), directory)
    elif paths or any(one.startswith("--pathspec-from-file") for one in rest):
        yield Loss(Kind.WORK, _THROWS, Need.CHANGED, paths, directory)


def _git_reset(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if _has(rest, "", "--hard", "--merge", "--keep"):
        commit = next((one for one in _operands(rest) if UNKNOWN_TEXT not in one), "")
        yield Loss(Kind.WORK, _THROWS, Need.RESET, (commit,) if commit else (), directory)


def _git_clean(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if _has(rest, "f", "--force") and not _has(rest, "ni", "--dry-run", "--interactive"):
        words = [re.sub("f", "", one) if re.fullmatch(r"-[a-zA-Z]+", one) else one for one in rest]
        kept = tuple(
            one for one in words if one not in ("-", "--force") and UNKNOWN_TEXT not in one
        )
        yield Loss(Kind.WORK, "deletes {}", Need.CLEANED, kept, directory)


def _git_stash(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if rest[:1] in (["drop"], ["clear"]):
        operands = tuple(_operands(rest[1:])[:1]) if rest[0] == "drop" else ("--all",)
        if any(UNKNOWN_TEXT in one for one in operands):
            operands = ("--all",)
        yield Loss(Kind.WORK, "throws away {}", Need.STASH, operands, directory)


def _git_switch(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if _has(rest, "f", "--force", "--discard-changes"):
        yield Loss(Kind.WORK, _THROWS, Need.RESET, (), directory)
    if created := _value(rest, "C", "--force-create"):
        yield Loss(
            Kind.HISTORY, "drops commits of {}", Need.BRANCH, (created,), directory, is_plain=False
        )


def _git_branch(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if _has(rest, "r", "--remotes"):
        return
    operands = tuple("*" if UNKNOWN_TEXT in one else one for one in _operands(rest, "u"))
    is_forced = _has(rest, "f", "--force")
    if _has(rest, "D") or (is_forced and _has(rest, "d", "--delete")):
        yield Loss(Kind.HISTORY, "deletes commits of {}", Need.BRANCH, operands, directory)
    elif is_forced or _has(rest, "MC"):
        changed = operands[-1:] if _has(rest, "MC") else operands[:1]
        yield Loss(
            Kind.HISTORY, "drops commits of {}", Need.BRANCH, changed, directory, is_plain=False
        )


def _git_tag(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if _has(rest, "df", "--delete", "--force"):
        operands = _operands(rest, "mFu")
        names = tuple(operands if _has(rest, "d", "--delete") else operands[:1])
        yield Loss(Kind.HISTORY, "deletes {}", Need.TAG, names, directory)


def _git_push(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if _has(rest, "n", "--dry-run"):
        return
    operands = _operands(rest, "o")
    if _has(rest, "d", "--delete", "--mirror", "--prune") or any(
        one.startswith(":") and one != ":" for one in operands[1:]
    ):
        names = [one.lstrip(":") for one in operands[1:]]
        yield Loss(
            Kind.REMOTE,
            f"deletes {_shown(', '.join(names[:NAMES_SHOWN])) or 'branches'} from the remote",
        )
    elif _has(rest, "f", "--force") or any(one.startswith("+") for one in operands):
        yield Loss(Kind.HISTORY, "overwrites commits of the remote")
    elif _has(rest, "", "--force-with-lease", "--force-if-includes"):
        branches = tuple(one.rpartition(":")[2] for one in operands[1:] if UNKNOWN_TEXT not in one)
        yield Loss(
            Kind.HISTORY,
            "overwrites on the remote {}",
            Need.DEFAULT,
            branches,
            directory,
            is_plain=False,
        )


def _git_commit(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if _has(rest, "", "--amend") and not _has(rest, "", "--dry-run"):
        yield Loss(Kind.HISTORY, _REWRITES, Need.PUSHED, (), directory, is_plain=False)


def _git_rebase(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if not _has(
        rest, "", "--abort", "--continue", "--skip", "--quit", "--edit-todo", "--show-current-patch"
    ):
        operands = _operands(rest, "sXxC")
        upstream = next((one for one in operands if UNKNOWN_TEXT not in one), "@{upstream}")
        if _has(rest, "", "--root"):
            upstream = ""
        yield Loss(
            Kind.HISTORY, _REWRITES, Need.PUSHED, ("rebase", upstream), directory, is_plain=False
        )


def _git_always(kind: Kind, reason: str, *words: str, options: str = "") -> _Git:
    """Return a check: a loss if the first operand is one of `words`, or an option is given."""

    def check(rest: list[str], directory: str | None) -> Iterator[Loss]:
        del directory
        if (
            (not words and not options)
            or (rest[:1]
            and rest[0] in words)
            or any(re.fullmatch(options, one) for one in rest if options)
        ):
            yield Loss(kind, reason)

    return check


def _git_changed(letters: str, *names: str) -> _Git:
    def check(rest: list[str], directory: str | None) -> Iterator[Loss]:
        if _has(rest, letters, *names) and not _has(rest, "", "--dry-run", "--cached"):
            yield Loss(Kind.WORK, _THROWS, Need.RESET, ("", *_paths(_operands(rest))), directory)

    return check


def _git_config(rest: list[str], directory: str | None) -> Iterator[Loss]:
    del directory
    is_query = _has(
        rest,
        "l",
        "--get",
        "--get-all",
        "--get-regexp",
        "--list",
        "--get-urlmatch",
        "--show-origin",
        "--unset",
        "--unset-all",
    )
    operands = _operands(rest, "f")
    if operands[:1] == ["set"]:
        operands = operands[1:]
    if not is_query and len(operands) > 1 and _GIT_CONFIG.fullmatch(operands[0]):
        yield Loss(Kind.STARTUP, f"changes what git executes: {_shown(operands[0])}")


def _git_read_tree(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if _has(rest, "", "--reset") and not _has(rest, "n", "--dry-run"):
        yield Loss(Kind.WORK, _THROWS, Need.RESET, (), directory)


def _git_apply(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if _has(rest, "R", "--reverse") and not _has(rest, "", "--check", "--stat", "--cached"):
        yield Loss(Kind.WORK, _THROWS, Need.CHANGED, (), directory, is_plain=False)


def _git_pull(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if _has(rest, "r", "--rebase") and "--rebase=false" not in rest:
        operands = [one for one in _operands(rest, "sXjo") if UNKNOWN_TEXT not in one]
        if len(operands) > 1:
            upstream = "/".join(operands[:2])
            yield Loss(
                Kind.HISTORY,
                _REWRITES,
                Need.PUSHED,
                ("rebase", upstream),
                directory,
                is_plain=False,
            )


def _git_update_ref(rest: list[str], directory: str | None) -> Iterator[Loss]:
    operands = _operands(rest, "m")
    if _has(rest, "d", "--delete", "--stdin"):
        yield Loss(Kind.HISTORY, "deletes a reference")
    elif operands and operands[0].startswith("refs/heads/"):
        name = operands[0].removeprefix("refs/heads/")
        yield Loss(
            Kind.HISTORY, "drops commits of {}", Need.BRANCH, (name,), directory, is_plain=False
        )


def _git_worktree(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if rest[:1] == ["remove"] and _has(rest, "f", "--force"):
        yield Loss(
            Kind.WORK,
            "throws away the changes of a worktree",
            Need.DELETED,
            tuple(_operands(rest[1:])),
            directory,
        )


_GIT: Final[Mapping[str, _Git]] = {
    "apply": _git_apply,
    "branch": _git_branch,
    "checkout": _git_checkout,
    "checkout-index": _git_changed("f", "--force"),
    "clean": _git_clean,
    "commit": _git_commit,
    "config": _git_config,
    "credential": _git_always(Kind.SECRETS, "shows a password", "fill"),
    "filter-branch": _git_always(Kind.HISTORY, "rewrites history"),
    "filter-repo": _git_always(Kind.HISTORY, "rewrites history"),
    "gc": _git_always(
        Kind.HISTORY, "deletes lost commits for ever", options=r"--prune(?:=(?:now|all|0.*))?"
    ),
    "prune": _git_always(Kind.HISTORY, "deletes lost commits for ever", options=r"(?!-n|--dry).*"),
    "push": _git_push,
    "pull": _git_pull,
    "read-tree": _git_read_tree,
    "rebase": _git_rebase,
    "reflog": _git_always(
        Kind.HISTORY, "deletes the record of earlier commits", "expire", "delete"
    ),
    "reset": _git_reset,
    "restore": _git_restore,
    "rm": _git_changed("f", "--force"),
    "stash": _git_stash,
    "submodule": _git_always(
        Kind.WORK, "throws away the changes of a submodule", options=r"deinit"
    ),
    "switch": _git_switch,
    "tag": _git_tag,
    "replace": _git_always(Kind.HISTORY, "replaces commits", options=r"(?!-l|--list).+"),
    "symbolic-ref": _git_always(Kind.HISTORY, "deletes a reference", options="-d|--delete"),
    "update-ref": _git_update_ref,
    "worktree": _git_worktree,
}

# Tools that are commonly run by npx and that most projects have.
_TOOLS: Final = frozenset(
    ["tsc", "tsx", "ts-node", "eslint", "prettier", "jest", "vitest", "mocha", "ava", "tap", "c8", "nyc", "playwright", "cypress", "vite", "next", "nuxt", "astro", "webpack", "rollup", "esbuild", "swc", "parcel", "turbo", "nx", "lerna", "prisma", "drizzle-kit", "knex", "sequelize", "sequelize-cli", "typeorm", "tailwindcss", "postcss", "sass", "stylelint", "markdownlint", "markdownlint-cli2", "svelte-check", "vue-tsc", "ng", "react-scripts", "storybook", "husky", "lint-staged", "commitlint", "changeset", "biome", "@biomejs/biome", "oxlint", "tsup", "unbuild", "rimraf", "cross-env", "concurrently", "nodemon", "pm2", "serve", "http-server", "json-server", "wrangler", "vercel", "netlify", "firebase", "expo", "react-native", "cap", "electron", "electron-builder", "knip", "depcheck", "madge", "npm-check-updates", "ncu", "license-checker", "typedoc", "jsdoc", "graphql-codegen", "ruff", "black", "mypy", "pytest", "isort", "flake8", "pyright", "pylint", "tox", "nox", "pre-commit", "uvicorn", "poetry", "twine", "hatch", "build", "mkdocs", "sphinx-build", "bandit", "pip-audit", "ty", "basedpyright", "cspell", "publint", "attw", "@arethetypeswrong/cli", "size-limit", "zx", "ajv", "openapi-typescript", "orval", "shadcn", "shadcn-ui", "tree-sitter", "node-gyp", "semantic-release", "release-it", "np", "bun", "deno"]
)  # fmt: skip
_RUN_VALUES: Final = frozenset(
    ("-p", "--package", "--from", "--with", "--python", "-c", "--call", "--with-requirements")
)


def _package(name: str, texts: list[str], directory: str | None) -> Iterator[Loss]:
    """Yield the loss of running a package that the project does not have."""
    if name in ("pnpm", "yarn") and texts[:1] != ["dlx"]:
        return
    if name == "npm" and texts[:1] not in (["exec"], ["x"]):
        return
    if (
        (name in ("bun", "pipx")
        and texts[:1] not in (["x"], ["run"]))
        or (name == "bun" and texts[:1] == ["run"])
    ):
        return
    if name == "uv" and texts[:2] != ["tool", "run"]:
        return
    rest = texts[2:] if name == "uv" else texts if name in ("npx", "bunx", "uvx") else texts[1:]
    if any(one in ("--no", "--no-install", "--offline") for one in rest):
        return
    at = 0
    package = ""
    while at < len(rest) and rest[at].startswith("-"):
        if rest[at] in ("-p", "--package", "--from"):
            package = package or "".join(rest[at + 1 : at + 2])
        at += 2 if rest[at] in _RUN_VALUES else 1
    package = package or "".join(rest[at : at + 1])
    plain = re.sub(r"(?<=.)@[^/]*$|\[.*|[=<>~!].*", "", package)
    if (
        package
        and UNKNOWN_TEXT not in package
        and plain not in _TOOLS
        and not package.startswith(".")
    ):
        yield Loss(
            Kind.DOWNLOADS, "runs {} from the net", Need.MISSING, (plain,), directory, is_plain=True
        )


def _row_checks() -> dict[str, list[tuple[re.Pattern[str], Kind, str]]]:
    found: dict[str, list[tuple[re.Pattern[str], Kind, str]]] = {}
    for programs, kind, reason, pattern in _ROWS:
        for program in programs.split():
            found.setdefault(program, []).append((re.compile(pattern, re.DOTALL), kind, reason))
    return found


_CHECKED: Final = _row_checks()
_PACKAGES: Final = frozenset(("npx", "bunx", "uvx", "pnpm", "yarn", "bun", "npm", "pipx", "uv"))
_WRITERS: Final = frozenset(
    [">", ">|", ">>", "&>", "&>>", ">&", "<>", "rm", "unlink", "trash", "srm", "cp", "mv", "install", "ln", "gcp", "gmv", "tee", "sponge", "truncate", "dd", "curl", "wget", "scp", "rsync", "sed", "gsed", "perl", "ruby", "tar", "ssh-keygen", "split", "patch", "pg_dump", "mysqldump", "sort", "uniq", "ffmpeg", "qemu-img", "chmod", "zip", "7z"]
)
_SECRET_READERS: Final = frozenset((*_READERS, "<"))
_INTERPRETERS: Final = re.compile(r"python[0-9.]*|pypy[0-9.]*|perl|ruby|node|nodejs|deno|bun|php")
_FORK_BOMB: Final = re.compile(r"([\w:.]+)\s*\(\)\s*\{[^}]*?\1\s*\|\s*\1\s*&")


def losses_of(command: SimpleCommand, directory: str | None, line: str = "") -> list[Loss]:
    """Return what a command may lose, the surest first; empty for almost every command."""
    # `directory` is that of the command, seen from the directory of the line; None if not known.
    # `line` is the shell text that has the command.
    name = command.name
    rows = _CHECKED.get(name)
    is_code = name[:2] in ("py", "pe", "ru", "no", "de", "bu", "ph") and _INTERPRETERS.fullmatch(
        name
    )
    if not (
        rows
        or is_code
        or name == "git"
        or name in _WRITERS
        or name in _PACKAGES
        or name in _SECRET_READERS
    ):
        return []
    texts = [word.text for word in command.words[1:_WORDS_MAX]]
    found: list[Loss] = []
    if name == "git":
        return list(_git(texts, directory))
    if rows:
        words = " ".join(" ".join(texts).split())
        given = f"{words} {command.text}" if command.input == "text" else words
        if command.input == "pipe" and (fed := _FED.search(line)):
            given = f"{words} {fed[0]}"
        if not _DRY.search(words):
            found += (Loss(kind, reason) for pattern, kind, reason in rows if pattern.match(given))
    if is_code:
        found += _code(command, texts, directory)
    if name in _PACKAGES:
        found += _package(name, texts, directory)
    if name in _WRITERS:
        found += _files(name, texts, directory)
    if name in _SECRET_READERS:
        found += _secrets(name, texts, directory)
    return found


def _code(command: SimpleCommand, texts: list[str], directory: str | None) -> Iterator[Loss]:
    given = [
        text
        for at, text in enumerate(texts)
        if at and re.fullmatch(r"-\w*[ceEr]|--eval|--print|-p|eval", texts[at - 1])
    ]
    code = "\n".join([*given, command.text if command.input == "text" else ""])
    if _CODE.search(code):
        yield Loss(Kind.WORK, "deletes files by its code")
    if secret := _CODE_SECRET.search(code):
        yield Loss(Kind.SECRETS, f"reads {secret[1]}, which has secrets")
    if _CODE_SQL.search(code):
        yield Loss(Kind.DATA, "destroys data in a database")
    written = tuple(filter(None, itertools.chain.from_iterable(_CODE_WRITE.findall(code))))
    if any(_STARTUP.search(one) for one in written):
        yield Loss(Kind.STARTUP, "writes a start-up or key file by its code")
    if written and "read" not in code:
        # Code that reads files edits them.
        yield Loss(Kind.WORK, "overwrites {}", Need.OVERWRITTEN, written, directory, is_plain=False)
    if _CODE_DOWNLOAD.search(code):
        yield Loss(Kind.DOWNLOADS, "runs what it downloads")


def line_danger(text: str) -> str:
    """Return why a shell text is dangerous as a whole; empty if it is not."""
    bomb = "|" in text and _FORK_BOMB.search(text)
    return "it starts copies of itself without end" if bomb else ""


def enter(directory: str | None, target: str) -> str | None:
    """Return the directory that `cd target` leads to; None if that is not known."""
    if (
        UNKNOWN_TEXT in target
        or target == "-"
        or (target.startswith("~") and not re.match(r"~(?:/|$)", target))
    ):
        return None
    if target.startswith(("/", "~")):
        return target
    return None if directory is None else posixpath.normpath(posixpath.join(directory, target))
