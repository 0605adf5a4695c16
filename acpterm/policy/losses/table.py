"""The table of losses that the words of a command decide, and the names of files and programs."""

import re
from typing import Final, TypeAlias

from acpterm.config.profiles import Kind


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPTIONS: Final = r"(?:-\S+ (?:[^-\s]\S* )??)*"
SQL: Final = (
    r"(?i)(?!(?:-\S+ )*(?::memory:|/tmp/\S+\.(?:db|sqlite3?|duckdb)\b))"
    r".*\b(?:drop\s+(?:table|database|schema|view|index|role|user|keyspace|collection)\b"
    r"|truncate\s+(?:table\s+)?[\w.\"`]+|delete\s+from\s+[\w.\"`\[\]]+\s*(?:;|$|['\"]|--)"
    r"|update\s+[\w.\"`]+\s+set\b(?!.*\bwhere\b)|alter\s+table\b.*\bdrop\b|flushall|flushdb"
    r"|drop_?database\s*\(|\.drop\s*\(|delete_?many\s*\(\s*\{\s*\}|\.remove\s*\(\s*(?:\{\s*\})?\s*\))"
)
_Row: TypeAlias = tuple[str, Kind, str, str]
ROWS: Final[tuple[_Row, ...]] = (
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
    ("ssh", Kind.REMOTE, "deletes on another machine", r".*\b(?:rm (?:-\w+ )*-\w*[rR]|(?:system|volume) prune\b|compose\b.* down\b.* -v\b|dropdb\b)"),
    ("find", Kind.SECRETS, "reads files that have secrets", r".*(?:/\.ssh|/\.aws|\.env)\b.* -exec\w* (?:cat|head|tail|grep|base64|cp|strings)\b"),
    ("find", Kind.WORK, "deletes the files that it finds", r".* -delete\b"),
    ("batch", Kind.SCHEDULE, "schedules a command", ""),
    ("python python3", Kind.DATA, "destroys data in a database", r".*\.objects\.all\(\)\.delete\(\)"),
    ("rails", Kind.DATA, "destroys data in a database", r".*\.(?:delete|destroy)_all\b"),
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
    ("systemctl", Kind.SCHEDULE, "changes what starts by itself", rf"{_OPTIONS}(?:(?:re)?enable|disable|link|edit|mask|preset|add-wants|set-default)\b"),
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

    ("kubectl oc k9s k microk8s", Kind.REMOTE, "deletes from a cluster", rf"{_OPTIONS}(?:kubectl )?(?:delete|drain|replace\b.* --force)\b"),
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
    ("gh glab", Kind.REMOTE, "deletes from the remote", rf"{_OPTIONS}(?:[a-z-]+ (?:delete|archive|transfer|rename|remove|disable)\b|(?:pr|mr) (?:close|merge)\b.*(?: --delete-branch\b| -d\b)|api\b.*(?:-X ?|--method[ =])(?:DELETE|delete)\b)"),
    ("curl http xh https", Kind.REMOTE, "deletes from a server", r"(?!.*(?:localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0))(?:.*(?:-X ?|--request[ =])DELETE\b|DELETE )"),
    ("rclone", Kind.REMOTE, "deletes from a remote", rf"{_OPTIONS}(?:delete|deletefile|purge|sync|cleanup|rmdirs?|move)\b"),
    ("s3cmd s5cmd mc mcli", Kind.REMOTE, "deletes from a store", rf"{_OPTIONS}(?:rm|del|rb|mirror\b.* --remove)\b"),
    ("npm pnpm yarn", Kind.REMOTE, "withdraws a package", rf"{_OPTIONS}(?:npm )?(?:unpublish|deprecate)\b"),
    ("cargo gem", Kind.REMOTE, "withdraws a package", "yank"),
    ("vagrant", Kind.DATA, "destroys machines", "destroy"),
    ("virsh VBoxManage vboxmanage multipass limactl incus lxc proxmox qm", Kind.DATA, "destroys machines", r"(?:undefine|destroy|unregistervm|delete|purge|\w+ delete)\b"),
    ("ansible", Kind.REMOTE, "deletes from other hosts", r".*state=absent"),

    ("mkfs mkfs.ext4 mkfs.xfs mkfs.btrfs mkfs.vfat", Kind.DATA, "destroys a file system", ""),
    ("fdisk wipefs", Kind.DATA, "changes a disk", r"(?!-l\b|--list)(?:/|.*-\w*[aof])"),
    ("dropdb dropuser", Kind.DATA, "deletes a database", ""),
    ("mysqladmin", Kind.DATA, "deletes a database", r".*\bdrop\b"),
    ("psql mysql mariadb sqlite3 duckdb clickhouse clickhouse-client cockroach sqlcmd sqlplus usql pgcli mycli litecli cqlsh mongo mongosh redis-cli valkey-cli sqlite bq snowsql trino presto influx wp turso", Kind.DATA, "destroys data in a database", SQL),
    ("redis-cli valkey-cli", Kind.DATA, "destroys data in a database", r"(?i).*\b(?:flush(?:all|db)|(?:del|unlink) \S)"),
    ("docker podman nerdctl", Kind.DATA, "deletes containers, images or volumes", rf"{_OPTIONS}(?:(?:system|volume|container) prune\b|volume (?:rm|remove)\b|(?:container )?rm\b.* (?:-\w*v|--volumes)|compose {_OPTIONS}(?:down\b.*(?: -v\b| --volumes\b)|rm\b.* -\w*v)|machine (?:rm|reset)\b|system reset\b|swarm leave\b|stack rm\b|service rm\b)"),
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
    ("rsync", Kind.REMOTE, "deletes files of another machine", r"(?!(?:.* )?(?:-\w*n\w* |--dry-run))(?:.* )?--del\S*.* \S+:\S*$"),
    ("rsync", Kind.WORK, "deletes files that the source does not have", r"(?!(?:.* )?(?:-\w*n\w* |--dry-run))(?:.* )?(?:--del\S*|--remove-source-files)"),
    ("robocopy", Kind.WORK, "deletes files that the source does not have", "(?i).*/(?:mir|purge)"),
    ("bfg git-filter-repo git-filter-branch", Kind.HISTORY, "rewrites history", ""),
    ("fsutil cipher", Kind.DATA, "destroys data", "(?i).*(?:/w|setzerodata)"),
)  # fmt: skip
DRY: Final = re.compile(r"(?:^| )--?(?:dry-?run(?!=(?:none|false))|help\b)")
# Code of other languages that deletes directories.
CODE: Final = re.compile(
    r"rmtree\s{0,9}\((?!\s{0,9}['\"]/tmp/)|\brm(?:dir)?(?:Sync)?\s{0,9}\([^)]{0,200}recursive|remove_tree\s{0,9}\(|rm_rf?\b|rm_r\s{0,9}\(|rimraf"
    r"|FileUtils\.(?:rm|remove)|Dir\.delete|unlink_tree|File::Path|\bunlink\s{1,9}glob|File\.delete"
    r"|\bos\.(?:remove|unlink|removedirs|truncate)\s{0,9}\((?!\s{0,9}['\"]/tmp/)|\.unlink\s{0,9}\(|unlinkSync\s{0,9}\(|\.truncate\s{0,9}\(\s{0,9}0|\bunlink\s{0,9}\(?\s{0,9}['\"]"
)
CODE_SECRET: Final = re.compile(
    r"(?:open|read\w*|File|load\w*|Path|dotenv_values)\W[^;\n]{0,200}?(\.ssh/id_\w+|\.aws/credentials|/etc/shadow|/proc/\w+/environ"
    r"|\.git-credentials|\.netrc|(?<![\w.])\.env(?![\w.]))"
)
CODE_DOWNLOAD: Final = re.compile(
    r"(?:exec|eval)\s{0,9}[(`][^;\n]{0,200}(?:urlopen|requests\.get|fetch|urllib|http|curl |wget )|(?:open-uri|Net::HTTP)[^\n]{0,200}eval"
)

CODE_SQL: Final = re.compile(
    r"(?i)execute\w*\s{0,9}\(\s{0,9}[\"'`]{1,3}\s{0,9}(?:drop\s{1,9}(?:table|database|schema)|truncate\b|delete\s{1,9}from\s{1,9}\w+\s{0,9}[\"'`;])"
)
# The paths that `open(path, "w")` and the like write.
CODE_WRITE: Final = re.compile(
    r"open\s{0,9}\((?:os\.path\.expanduser\s{0,9}\()?\s{0,9}['\"]([^'\"]{1,200})['\"]\)?\s{0,9},\s{0,9}['\"][wa]"
    r"|write\w*Sync\s{0,9}\(\s{0,9}['\"]([^'\"]{1,200})['\"]|Path\s{0,9}\(['\"]([^'\"]{1,200})['\"]\)\.write_|File\.write\s{0,9}\(?['\"]([^'\"]{1,200})|open\s{0,9}\(\s{0,9}\w+\s{0,9},\s{0,9}['\"]>\s{0,9}([^'\"]{1,200})"
    r"|(?:os\.(?:rename|replace)|shutil\.(?:copy\w*|move)|copyFileSync|renameSync)\s{0,9}\([^,]{1,200},\s{0,9}['\"]([^'\"]{1,200})['\"]"
)
FED: Final = re.compile(r"\b(?:echo|printf)\b[^|]*|<<.*", re.DOTALL)


SECRET: Final = re.compile(
    r"(?:^|[/:=@])(?:"
    r"\.ssh/(?!known_hosts|config$|authorized_keys|[^/]*\.pub$)[^/]*[^/]|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?"
    r"|\.aws/(?:credentials|(?:sso|cli)/cache/.*)|\.gnupg/(?:private-keys.*|secring.*|.*\.key)|\.netrc|_netrc|\.pgpass|\.pypirc"
    r"|\.docker/config\.json|\.kube/config|kubeconfig|\.git-credentials|\.config/(?:gh/hosts\.yml|glab-cli/config\.yml"
    r"|gcloud/(?:credentials\.db|application_default_credentials\.json|access_tokens\.db|legacy_credentials/.*)|hub|op/.*|git/credentials)"
    r"|\.azure/(?:accessTokens|msal_token_cache|azureProfile)\.\w+|\.vault-token|\.terraform\.d/credentials\.tfrc\.json|\.terraformrc"
    r"|\.cargo/credentials(?:\.toml)?|\.gem/credentials|\.m2/settings(?:-security)?\.xml|\.my\.cnf|\.mylogin\.cnf"
    r"|\.claude/\.credentials\.json|\.codex/auth\.json|\.gemini/oauth_creds\.json|\.config/anthropic/.*|\.huggingface/token|\.cache/huggingface/token"
    r"|\.(?:mozilla/firefox|thunderbird)/.*(?:logins\.json|key[34]\.db|cookies\.sqlite)|(?:google-chrome|chromium|Chrome|BraveSoftware|microsoft-edge)[^/]*/.*(?:Login Data|Cookies|Local State)"
    r"|(?:Keychains|keyrings|\.password-store|kwalletd)/.*|\.heroku/.*credentials.*|\.s3cfg|\.boto|rclone\.conf|\.wgetrc|\.dockercfg|master\.key"
    r"|\.env(?:\.(?!example|sample|template|dist|test|defaults?|schema|md|d\.ts)[\w.*-]+|\*)?"
    r"|(?:server|private|priv|tls|ssl|host|client)[\w-]*\.(?:key|pem)|[\w.-]*(?:private|_rsa|_ed25519)[\w-]*(?:\.pem|\.key)?"
    r"|[\w.-]*\.tfstate(?:\.backup)?|service[-_]?account[\w-]*\.json|client_secret[\w.-]*\.json|credentials\.json|secrets?\.(?:ya?ml|json|toml|env)|[\w.-]+\.(?:p12|pfx|jks|keystore|kdbx)"
    r")$|^/etc/(?:g?shadow-?|sudoers|krb5\.keytab|ssl/private/.*|ssh/ssh_host_\w+_key)$|^/proc/[^/]+/(?:task/[^/]+/)?environ$"
    r"|^(?:~|/root|/home/[^/]+)/\.(?:\w+_history|npmrc)$"
    r"|(?:^|/)\.(?:ssh|aws|gnupg|password-store|kube|docker|config/(?:gh|gcloud|op))/?$|^/run/secrets/.*"
)
_HOME: Final = r"(?:~[\w-]*|/home/[^/]+|/root|/Users/[^/]+)"
STARTUP: Final = re.compile(
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
NO_FILES: Final = re.compile(r"-|/dev/.*|/proc/self/fd/.*|&?\d+|")
# Programs that show or copy the content of the files among their arguments.
SECRET_READERS: Final = _names(
    "< cat tac less more head tail bat batcat grep egrep fgrep rg ag zgrep awk gawk mawk nawk sed "
    "cut sort uniq tr xxd od hexdump hd strings base64 base32 openssl nl paste fold fmt rev pr "
    "diff cmp comm jq yq xmllint scp rsync curl wget nc ncat tar zip gzip 7z gpg vim vi view nano "
    "emacs mail column dd pbcopy xclip xsel cp mv install ln expand look split ed code shuf dasel "
    "mlr bsdtar cpio python python3 node ruby perl php ssh-keygen sqlite3 zcat bzcat xzcat "
    "pygmentize glow print"
)
CURL_FILE: Final = re.compile(r"(?:^|=)@(.+)|file://(.+)")
GREPS: Final = frozenset(
    [
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
    ]
)


GIT_COMMANDS: Final = _names(
    "add am annotate apply archive bisect blame branch bugreport bundle cat-file check-attr "
    "check-ignore check-mailmap check-ref-format checkout checkout-index cherry cherry-pick "
    "citool clean clone column commit commit-graph commit-tree config count-objects credential "
    "daemon describe diagnose diff diff-files diff-index diff-tree difftool fast-export "
    "fast-import fetch fetch-pack filter-branch filter-repo fmt-merge-msg for-each-ref "
    "for-each-repo format-patch fsck gc grep gui hash-object help hook index-pack init instaweb "
    "interpret-trailers lfs log ls-files ls-remote ls-tree mailinfo mailsplit maintenance merge "
    "merge-base merge-file merge-index merge-tree mergetool mktag mktree mv name-rev notes "
    "pack-objects pack-redundant pack-refs patch-id prune prune-packed pull push quiltimport "
    "range-diff read-tree rebase receive-pack reflog remote repack replace request-pull rerere "
    "reset restore rev-list rev-parse revert rm send-email send-pack shortlog show show-branch "
    "show-index show-ref sparse-checkout stage stash status stripspace submodule subtree svn "
    "switch symbolic-ref tag unpack-file unpack-objects update-index update-ref "
    "update-server-info var verify-commit verify-pack verify-tag version whatchanged worktree "
    "write-tree"
)
GIT_CONFIG: Final = re.compile(
    r"(?i)(?:core\.(?:hookspath|pager|editor|sshcommand|fsmonitor|askpass|attributesfile|gitproxy|alternaterefscommand)|alias\..*|credential\..*helper"
    r"|include(?:if\..*)?\.path|filter\..*|diff\..*\.(?:command|textconv)|diff\.external|merge\..*\.driver|pager\..*|gpg\..*program|init\.templatedir"
    r"|url\..*\.(?:insteadof|pushinsteadof)|sequence\.editor|(?:http\.)?sslverify|http\..*proxy)"
)
# Tools that are commonly run by npx and that most projects have.
TOOLS: Final = _names(
    "tsc tsx ts-node eslint prettier jest vitest mocha ava tap c8 nyc playwright cypress vite "
    "next nuxt astro webpack rollup esbuild swc parcel turbo nx lerna prisma drizzle-kit knex "
    "sequelize sequelize-cli typeorm tailwindcss postcss sass stylelint markdownlint "
    "markdownlint-cli2 svelte-check vue-tsc ng react-scripts storybook husky lint-staged "
    "commitlint changeset biome @biomejs/biome oxlint tsup unbuild rimraf cross-env concurrently "
    "nodemon pm2 serve http-server json-server wrangler vercel netlify firebase expo react-native "
    "cap electron electron-builder knip depcheck madge npm-check-updates ncu license-checker "
    "typedoc jsdoc graphql-codegen ruff black mypy pytest isort flake8 pyright pylint tox nox "
    "pre-commit uvicorn poetry twine hatch build mkdocs sphinx-build bandit pip-audit ty "
    "basedpyright cspell publint attw @arethetypeswrong/cli size-limit zx ajv openapi-typescript "
    "orval shadcn shadcn-ui tree-sitter node-gyp semantic-release release-it np bun deno"
)
RUN_VALUES: Final = frozenset(
    ("-p", "--package", "--from", "--with", "--python", "-c", "--call", "--with-requirements")
)


INTERPRETERS: Final = re.compile(r"python[0-9.]*|pypy[0-9.]*|perl|ruby|node|nodejs|deno|bun|php")
FORK_BOMB: Final = re.compile(
    r"(?<![\w:.])([\w:.]{1,32})\s{0,4}\(\)\s{0,4}\{[^}]{0,200}?\1\s{0,4}\|\s{0,4}\1\s{0,4}&"
)

# The commands of git that lose something by their arguments alone.
GIT_ROWS: Final[dict[str, tuple[Kind, str, str]]] = {
    "credential": (Kind.SECRETS, "shows a password", "fill"),
    "filter-branch": (Kind.HISTORY, "rewrites history", ""),
    "filter-repo": (Kind.HISTORY, "rewrites history", ""),
    "gc": (Kind.HISTORY, "deletes lost commits", r".*--prune(?:=(?:now|all|0\S*))?(?: |$)"),
    "prune": (Kind.HISTORY, "deletes lost commits", r"(?!-n|--dry)."),
    "reflog": (Kind.HISTORY, "deletes the record of earlier commits", "expire|delete"),
    "replace": (Kind.HISTORY, "replaces commits", r"(?!-l|--list)."),
    "submodule": (Kind.WORK, "throws away the changes of a submodule", "(?:.* )?deinit\\b"),
    "symbolic-ref": (Kind.HISTORY, "deletes a reference", "(?:.* )?(?:-d|--delete)\\b"),
}
