"""Texts with fake secrets, and texts without any, for the tests of redaction.

The secrets are put together here, so that no scanner finds one in this file.
"""

import itertools
import string
from collections.abc import Iterator

_DIGITS = "0123456789"
_HEX = "0123456789abcdef"
_WORD = string.ascii_letters + _DIGITS
_LOWER = string.ascii_lowercase + _DIGITS
_CAPITALS = string.ascii_uppercase + _DIGITS
_UUID = "123e4567-e89b-12d3-a456-426614174000"


def fake(length: int, alphabet: str = _WORD) -> str:
    """Return `length` characters that look random, and are always the same."""
    return "".join(alphabet[(i * i * 7 + i * 13 + 5) % len(alphabet)] for i in range(length))


def _hex(length: int) -> str:
    return fake(length, _HEX)


# The prefix that is kept, and the secret after it.
TOKENS = [
    *(("gh" + f"{kind}_", fake(36)) for kind in "oprsu"),
    ("ghs" + "_", f"{fake(20)}{_DIGITS}{fake(10)}.{fake(40)}_{fake(9)}"),
    ("github" + "_pat_", f"{fake(22)}_{fake(59)}"),
    ("glpat" + "-", fake(20)),
    ("glptt" + "-", _hex(40)),
    ("gldt" + "-", fake(20)),
    ("glrt" + "-", fake(20)),
    ("GR1348" + "941", fake(20)),
    ("AK" + "IA", fake(16, string.ascii_uppercase)),
    ("AS" + "IA", fake(16, string.ascii_uppercase)),
    ("AI" + "za", fake(35)),
    ("ya" + "29.", fake(60)),
    ("GOC" + "SPX-", fake(28)),
    ("1/" + "/0", fake(43)),
    ("xo" + "xb-", f"{fake(12, _DIGITS)}-{fake(12, _DIGITS)}-{fake(24)}"),
    ("xo" + "xp-", f"{fake(12, _DIGITS)}-{fake(12, _DIGITS)}-{_hex(32)}"),
    ("xa" + "pp-", f"1-{fake(11)}-{fake(13, _DIGITS)}-{_hex(64)}"),
    ("hooks.slack.com/" + "services/", f"T{fake(8)}/B{fake(8)}/{fake(24)}"),
    ("sk" + "_live_", fake(24)),
    ("rk" + "_live_", fake(24)),
    ("sk" + "_test_", fake(24)),
    ("wh" + "sec_", fake(32)),
    ("sk" + "-", fake(20) + "T3Blbk" + "FJ" + fake(20)),
    ("sk-" + "proj-", f"{fake(70)}_{fake(20)}-{fake(10)}"),
    ("sk-" + "svcacct-", fake(60)),
    ("sk-" + "ant-", f"api03-{fake(80)}-AA"),
    ("sk-" + "ant-", f"oat01-{fake(80)}"),
    ("sk-" + "or-", f"v1-{_hex(64)}"),
    ("hf" + "_", fake(34)),
    ("gs" + "k_", fake(52)),
    ("r8" + "_", fake(37)),
    ("np" + "m_", fake(36)),
    ("py" + "pi-Ag", f"EIcHlwaS5vcmc{fake(90)}"),
    ("ruby" + "gems_", _hex(48)),
    ("dckr" + "_pat_", fake(27)),
    ("SG" + ".", f"{fake(22)}.{fake(43)}"),
    ("S" + "K", _hex(32)),
    ("key" + "-", _hex(32)),
    ("1234567890:" + "AA", fake(33)),
    ("https://discord.com/api/web" + "hooks/123456789012345678/", fake(68)),
    ("dop" + "_v1_", _hex(64)),
    ("doo" + "_v1_", _hex(64)),
    ("abc8" + "Q~", fake(34)),
    ("sig" + "=", f"{fake(43)}%3D"),
    ("da" + "pi", _hex(32)),
    ("hv" + "s.", fake(90)),
    ("tskey" + "-", f"auth-{fake(12)}1-{fake(32)}"),
    ("sb" + "p_", _hex(40)),
    ("pscale" + "_tkn_", fake(43)),
    ("shp" + "at_", _hex(32)),
    ("lin" + "_api_", fake(40)),
    ("ntn" + "_", fake(46)),
    ("gl" + "sa_", f"{fake(32)}_{_hex(8)}"),
    ("sntrys" + "_", f"eyJ{fake(60)}"),
    ("ATATT" + "3x", fake(180)),
    ("AGE-SECRET-" + "KEY-1", fake(58, string.ascii_uppercase)),
    ("ey" + "J", f"{fake(33)}.eyJ{fake(70)}.{fake(43)}"),
    ("ey" + "J", f"{fake(33)}.{fake(40)}.{fake(16)}.{fake(40)}.{fake(22)}"),
    ("AB" + "SK", fake(109)),
    ("bedrock-" + "api-key-", fake(80)),
    ("AQ" + ".Ab", fake(48)),
    ("gl" + "wt-", fake(20)),
    ("xo" + "xd-", fake(100)),
    ("sk_org" + "_live_", fake(60)),
    ("s" + "k_", _hex(48)),
    ("cs" + "k-", fake(48)),
    ("api_" + "org_", fake(34)),
    ("tvly" + "-dev-", fake(32)),
    ("ke" + "y_", _hex(64)),
    ("cr" + "sr_", _hex(64)),
    ("dt" + "n_", _hex(64)),
    ("sl" + "k_", _hex(64)),
    ("f" + "c-", _hex(32)),
    ("KG" + "AT_", _hex(32)),
    ("p8" + "e-", _hex(32)),
    ("p" + "a-", fake(43)),
    ("n" + "k-", fake(43)),
    ("m" + "0-", fake(40)),
    ("wand" + "b_v1_", fake(77)),
    ("a" + "k-", fake(22)),
    ("a" + "s-", fake(22)),
    ("a" + "k_", fake(20)),
    ("e2" + "b_", _hex(40)),
    ("js" + "rp_", _hex(40)),
    ("sq" + "u_", _hex(40)),
    ("sq" + "p_", _hex(40)),
    ("sq" + "a_", _hex(40)),
    ("bb_l" + "ive_", fake(27)),
    ("CLOJ" + "ARS_", fake(60, _LOWER)),
    ("o" + "y2", fake(43, _LOWER)),
    ("c" + "io", fake(32)),
    ("AK" + "Cp", fake(69)),
    ("cm" + "Vmd", fake(59)),
    ("LT" + "AI", fake(20)),
    ("ST" + "S.", fake(24)),
    ("S" + "CW", fake(17, _CAPITALS)),
    ("v1" + ".0-", f"{_hex(24)}-{_hex(146)}"),
    ("cf" + "ut_", fake(40)),
    ("cf" + "at_", fake(40)),
    ("pu" + "l-", _hex(40)),
    ("sha" + "256~", fake(43)),
    ("fo" + "1_", fake(43)),
    ("vc" + "p_", fake(56)),
    ("vercel_" + "blob_rw_", f"{fake(16)}_{fake(30)}"),
    ("t" + "1.", f"{fake(60)}.{fake(86)}"),
    ("y" + "0_", fake(55)),
    ("_gitlab_" + "session=", _hex(32)),
    ("hv" + "r.", fake(90)),
    ("E" + "AA", f"G{fake(150)}"),
    ("dt0" + "s16.", f"{fake(8, _CAPITALS)}.{fake(64, _CAPITALS)}"),
    ("ai" + "o_", fake(28)),
    ("p" + "at", f"{fake(14)}.{_hex(64)}"),
    ("pat-" + "na1-", _UUID),
    ("pa" + "t.", f"{fake(22)}.{_hex(24)}.{fake(20)}"),
    ("access-" + "sandbox-", _UUID),
    ("dnk" + "ey-", f"{fake(26)}-{fake(52)}"),
    ("dda" + "pp_", fake(34)),
    ("EZ" + "AK", fake(54)),
    ("EZ" + "TK", fake(54)),
    ("fio" + "-u-", fake(64)),
    ("eyJr" + "Ijoi", fake(70)),
    ("ic" + "o-", fake(32)),
    ("s-s4" + "t2ud-", _hex(64)),
    ("lin_o" + "auth_", _hex(64)),
    ("li" + "ve_", fake(40)),
    ("NR" + "II-", fake(32)),
    ("NR" + "JS-", _hex(19)),
    ("AP" + "I-", fake(26, _CAPITALS)),
    ("SS" + "WS ", fake(42)),
    ("pn" + "u_", fake(36)),
    ("rd" + "me_", fake(70, _LOWER)),
    ("r" + "e_", f"{fake(8)}_{fake(24)}"),
    ("tk-" + "us-", fake(48)),
    ("sm_" + "pat_", fake(16)),
    ("snyk" + "_uat.", f"{_hex(8)}.{fake(80)}"),
    ("oau" + "th:", fake(30, _LOWER)),
    ("tf" + "p_", fake(59)),
    ("zp" + "ka_", fake(40)),
    ("p" + "k_", f"{fake(8, _DIGITS)}_{fake(32, _CAPITALS)}"),
    ("hooks.zapier.c" + "om/hooks/catch/", f"123456/{fake(7)}"),
    ("xsmt" + "psib-", f"{_hex(64)}-{fake(16)}"),
    ("sl" + ".u.", fake(140)),
    (":AP" + "A91b", fake(134)),
    ("ti" + "d=", f"{_hex(32)};exp=17;sku=free;8kp=1:{_hex(64)}"),
    ("", f"{fake(76)}AZ" + f"DO{fake(4)}"),
    ("AZURE_DEVOPS_EXT_PAT=", fake(52, string.ascii_lowercase + "234567")),
    ("", "MTIz" * 6 + f".{fake(6)}.{fake(38)}"),
    *(
        (
            f"-----BEGIN {kind}PRIVATE" + " KEY-----",
            f"\n{fake(64)}\n{fake(64)}\n-----END {kind}PRIVATE" + " KEY-----",
        )
        for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")
    ),
]

_S = "hunter" + "2"  # a password without a prefix
_K = fake(40)

# Lines, the secret in each, and what of the line must remain.
LINES = [
    (f"tool --password={_S} x", _S, "tool --password=[redacted] x"),
    (f"tool --password {_S} x", _S, "tool --password [redacted] x"),
    (f"tool --password '{_S} y' x", _S, "tool --password '[redacted]' x"),
    (f'tool --password "{_S} y" x', _S, 'tool --password "[redacted]" x'),
    (f"tool --db-password={_S}", _S, "tool --db-password=[redacted]"),
    (f"gpg --passphrase {_S} -d f", _S, "gpg --passphrase [redacted] -d f"),
    (f"tool --token {_S}", _S, "tool --token [redacted]"),
    (f"tool --token={_K}", _K, "tool --token=[redacted]"),
    (f"tool --api-key {_K}", _K, "tool --api-key [redacted]"),
    (f"tool --api_key={_K}", _K, "tool --api_key=[redacted]"),
    (f"tool --apikey {_K}", _K, "tool --apikey [redacted]"),
    (f"tool --client-secret={_S}", _S, "tool --client-secret=[redacted]"),
    (f"tool --auth-token {_K}", _K, "tool --auth-token [redacted]"),
    (f"keytool -storepass {_S} -list", _S, "keytool -storepass [redacted] -list"),
    (f"java -Ddb.password={_S} -jar x", _S, "java -Ddb.password=[redacted] -jar x"),
    (f"mvn -DapiKey={_K}", _K, "mvn -DapiKey=[redacted]"),
    (f"mysql -u root -p{_S} db", _S, "mysql -u root -p[redacted] db"),
    (f"mysqldump -p'{_S} x' db", _S, "mysqldump -p'[redacted]' db"),
    (f"docker exec db mysql -uroot -p{_S}", _S, "docker exec db mysql -uroot -p[redacted]"),
    (f"sshpass -p {_S} ssh h", _S, "sshpass -p [redacted] ssh h"),
    (f"curl -u me:{_S} https://h", _S, "curl -u me:[redacted] https://h"),
    (f"curl -sSu 'me:{_S}' https://h", _S, "curl -sSu 'me:[redacted]' https://h"),
    (f"curl --user me:{_S} https://h", _S, "curl --user me:[redacted] https://h"),
    (f"curl --proxy-user=me:{_S} https://h", _S, "curl --proxy-user=me:[redacted] https://h"),
    (f"redis-cli -h h -a {_S} ping", _S, "redis-cli -h h -a [redacted] ping"),
    (f"docker login -u me -p {_S} r", _S, "docker login -u me -p [redacted] r"),
    (f"ldapsearch -D cn=x -w {_S} -b y", _S, "ldapsearch -D cn=x -w [redacted] -b y"),
    (f"openssl rsa -passin pass:{_S} -in k", _S, "openssl rsa -passin pass:[redacted] -in k"),
    (f"7z x -p{_S} a.7z", _S, "7z x -p[redacted] a.7z"),
    (f"unzip -P {_S} a.zip", _S, "unzip -P [redacted] a.zip"),
    (f"http -a me:{_S} h", _S, "http -a me:[redacted] h"),
    (f"smbclient //h/s -U me%{_S}", _S, "smbclient //h/s -U me%[redacted]"),
    (f"curl -H 'Authorization: Bearer {_K}' h", _K, "'Authorization: Bearer [redacted]'"),
    (f'curl -H "authorization: token {_S}" h', _S, '"authorization: token [redacted]"'),
    (f"curl -H 'Authorization: Basic {_K}==' h", _K, "Basic [redacted]'"),
    (f"wget --header='X-Api-Key: {_S}' h", _S, "'X-Api-Key: [redacted]'"),
    (f"curl -H 'PRIVATE-TOKEN: {_S}' h", _S, "'PRIVATE-TOKEN: [redacted]'"),
    (f"curl -H 'Cookie: sid={_K}; a=b' h", _K, "'Cookie: [redacted]'"),
    (f"echo Bearer {_K}", _K, "echo Bearer [redacted]"),
    (f"MY_BEARER={_K} run", _K, "MY_BEARER=[redacted] run"),
    (f"git clone https://me:{_S}@h/r", _S, "git clone https://me:[redacted]@h/r"),
    (f"git clone https://{_K}@h/r", _K, "git clone https://[redacted]@h/r"),
    (f"psql postgres://me:{_S}@h:5432/db", _S, "psql postgres://me:[redacted]@h:5432/db"),
    (f"redis-cli -u redis://:{_S}@h", _S, "redis-cli -u redis://:[redacted]@h"),
    (f"curl https://me:p@{_S}@h/x", _S, "curl https://me:[redacted]@h/x"),
    (f"export API_TOKEN={_S}", _S, "export API_TOKEN=[redacted]"),
    (f"PGPASSWORD={_S} psql -h h", _S, "PGPASSWORD=[redacted] psql -h h"),
    (f'MYSQL_PWD="{_S}" mysql', _S, 'MYSQL_PWD="[redacted]" mysql'),
    (f"env MY_SECRET={_S} run", _S, "env MY_SECRET=[redacted] run"),
    (f"docker run -e DB_PASSWORD={_S} i", _S, "docker run -e DB_PASSWORD=[redacted] i"),
    (f"AWS_SECRET_ACCESS_KEY={_K} aws s3 ls", _K, "AWS_SECRET_ACCESS_KEY=[redacted] aws s3 ls"),
    (f"aws_secret_access_key = {_K}", _K, "aws_secret_access_key = [redacted]"),
    (
        f"aws configure set aws_secret_access_key {_K}",
        _K,
        "aws configure set aws_secret_access_key [redacted]",
    ),
    (f"OPENAI_API_KEY={_S} python x.py", _S, "OPENAI_API_KEY=[redacted] python x.py"),
    (f"DEPLOY_KEY={_S} make", _S, "DEPLOY_KEY=[redacted] make"),
    (f"$env:DB_PASS = '{_S}'", _S, "$env:DB_PASS = '[redacted]'"),
    (f"export PASSWORD=a\\ {_S}; ls", _S, "export PASSWORD=[redacted]; ls"),
    (f'sh -c "export PASSWORD={_S}" && ls', _S, 'sh -c "export PASSWORD=[redacted]" && ls'),
    (f'curl -d \'{{"password": "{_S}", "n": 1}}\' h', _S, '{"password": "[redacted]", "n": 1}'),
    (f'curl -d "{{\\"token\\":\\"{_S}\\"}}" h', _S, '{\\"token\\":\\"[redacted]\\"}'),
    (f"curl 'https://h/x?access_token={_S}&n=1'", _S, "?access_token=[redacted]&n=1"),
    (f"//registry.example/:_authToken={_K}", _K, "//registry.example/:_authToken=[redacted]"),
    (f"npm config set //r.example/:_authToken {_K}", _K, "//r.example/:_authToken [redacted]"),
    (f"npm publish --otp {fake(6, _DIGITS)}", fake(6, _DIGITS), "npm publish --otp [redacted]"),
    (f"kubectl create --from-literal=password={_S} x", _S, "--from-literal=password=[redacted] x"),
    (f"helm install --set auth.password={_S} x", _S, "--set auth.password=[redacted] x"),
    (f"echo {_S} | sudo -S apt install x", _S, "echo [redacted] | sudo -S apt install x"),
    (f"echo '{_S} y' | sudo -k -S ls", _S, "echo '[redacted]' | sudo -k -S ls"),
    (f"sudo -S ls <<< {_S}", _S, "sudo -S ls <<< [redacted]"),
    (
        f"echo {_K} | docker login -u me --password-stdin",
        _K,
        "echo [redacted] | docker login -u me --password-stdin",
    ),
    (f"echo {_K} | gh auth login --with-token", _K, "echo [redacted] | gh auth login --with-token"),
    (f"AccountName=x;AccountKey={_K}==;Endpoint=y", _K, "AccountKey=[redacted];Endpoint=y"),
    (f"Server=h;Uid=me;Pwd={_S};", _S, "Pwd=[redacted];"),
    (f"password: {_S}", _S, "password: [redacted]"),
]

_Q = "correct" + "horse"  # a password of letters only
_P = "Tr0ub4dor" + "&3"
_BASIC = "aHVudGVyMmh1" + "bnRlcjI="

_B = fake(52, string.ascii_lowercase + "234567")  # an older token of Azure DevOps

# Texts, and the secret in each.
FORMS = [
    (f"set -x GITHUB_TOKEN {_K}", _K),
    (f"fly secrets set API={_S}", _S),
    (f"gh secret set DEPLOY -b {_S}", _S),
    (f"gh secret set DEPLOY --body {_S}", _S),
    (f"KEY={_K} run", _K),
    (f"twine upload -u __token__ -p {_K} d/*", _K),
    (f"ssh-keygen -t ed25519 -N {_Q} -f k", _Q),
    (f"ssh-keygen -p -P {_Q} -N '{_P}' -f k", _P),
    (f"htpasswd -b .htpasswd me {_Q}", _Q),
    (f"htpasswd -bB -c f me {_S}", _S),
    (f"mosquitto_pub -u me -P {_Q} -t x", _Q),
    (f"impdp me/{_S}@db", _S),
    (f"sqlplus me/{_S}@db", _S),
    (f"sqlplus -S sys/{_S}@//h:1521/x as sysdba", _S),
    (f"redis-cli AUTH {_S}", _S),
    (f"redis-cli config set requirepass {_Q}", _Q),
    (f"kubectl config set users.admin@prod.token {_K}", _K),
    (f"aws configure set profile.x+y.aws_secret_access_key {_K}", _K),
    (f"set ${{X}}_TOKEN {_K}", _K),
    (f"git config set http.proxy%password {_K}", _K),
    (f"npm config set 2fa_secret {_K}", _K),
    (f"tmux set -g -q @x-api_key {_K}", _K),
    (f"client.set api_token {_K}", _K),
    (f"set no_password {_K}", _K),
    (f"-----BEGIN RSA PRIVATE KEY-----\nMIIE{_K}\nexport GITHUB_TOKEN=ghp_{'a1B2' * 9}", _K),
    (f"mysqladmin -u root password {_S}", _S),
    (f"mysql -e \"ALTER USER 'r'@'%' IDENTIFIED BY '{_Q}'\"", _Q),
    (f"psql -c \"ALTER USER r WITH PASSWORD '{_Q}'\"", _Q),
    (f"psql -c \"CREATE ROLE r PASSWORD '{_Q}'\"", _Q),
    (f"psql -c \"CREATE ROLE r LOGIN ENCRYPTED PASSWORD '{_P}'\"", _P),
    (f"cqlsh -u c -p {_Q} h", _Q),
    (f"podman login --creds me:{_Q} r", _Q),
    (f"skopeo copy --src-creds me:{_Q} a b", _Q),
    (f"skopeo copy --dest-creds=me:{_Q} a b", _Q),
    (f"kubectl create secret generic x --from-literal=foo={_S}", _S),
    (f"kubectl create secret generic x --from-literal foo={_S}", _S),
    (f"curl -b 'session={_K}' h", _K),
    (f"curl -x u:{_Q}@p:1 h", _Q),
    (f"curl -E cert.pem:{_Q} h", _Q),
    (f"http --auth me:{_Q} h", _Q),
    (f"http -A bearer -a {_K} h", _K),
    (f"http h X-API-Key:{_S}", _S),
    (f"usermod -p '$6$abc${fake(60)}' me", fake(60)),
    (f"useradd -p {_S} me", _S),
    (f"chpasswd <<< me:{_Q}", _Q),
    (f"echo -e '{_Q}\\n{_Q}' | passwd me", _Q),
    (f"echo {_Q} | su - root -c ls", _Q),
    (f"echo {_Q} | gpg --batch --passphrase-fd 0 -d f", _Q),
    (f"printf %s {_Q} | cryptsetup open /dev/x y -", _Q),
    (f"echo -n {_Q} | cryptsetup luksFormat /dev/x -", _Q),
    (f"gpg --passphrase-fd 0 -d f <<< {_Q}", _Q),
    (f'expect -c \'spawn ssh h; expect "assword:"; send "{_Q}\\r"\'', _Q),
    (f"docker login -u m --password-stdin <<< {_Q}", _Q),
    (f"gh auth login --with-token <<< {_K}", _K),
    (f"vault login {_K}", _K),
    (f"vault kv put secret/x value={_S}", _S),
    (f"bw unlock {_P}", _P),
    (f"aws ssm put-parameter --type SecureString --name /x --value {_S}", _S),
    (f"rar a -hp{_Q} a.rar f", _Q),
    (f"security add-generic-password -a me -s x -w {_Q}", _Q),
    (f"security unlock-keychain -p {_Q} k", _Q),
    (f"nmcli dev wifi connect Net password {_Q}", _Q),
    (f"wpa_passphrase Net {_Q}", _Q),
    (f"kinit me <<< {_Q}", _Q),
    (f"rabbitmqctl add_user me {_Q}", _Q),
    (f"rabbitmqctl change_password me {_Q}", _Q),
    (f"ldappasswd -s {_Q} cn=x", _Q),
    (f"smbpasswd -a me <<< {_Q}", _Q),
    (f"flyctl auth token; fly -t {_K} deploy", _K),
    (f"tailscale up --authkey {_K}", _K),
    (f"ngrok config add-authtoken {fake(27)}_{fake(21)}", fake(21)),
    (f"ngrok authtoken {fake(27)}_{fake(21)}", fake(21)),
    (f"wandb login {_hex(40)}", _hex(40)),
    (f"vercel -t {fake(24)} deploy", fake(24)),
    (f"snyk auth {_UUID}", _UUID),
    (f"git config --global user.password {_Q}", _Q),
    (f"composer config http-basic.repo.x me {_S}", _S),
    (f"composer config --global github-oauth.github.com {_hex(40)}", _hex(40)),
    (f"poetry config pypi-token.pypi {_K}", _K),
    (f"poetry config http-basic.x me {_S}", _S),
    (f"cargo login {_K}", _K),
    (f"dotnet nuget push x -k {_K}", _K),
    (f"doctl auth init -t {_K}", _K),
    (f"pulumi config set --secret dbPassword {_Q}", _Q),
    (f"ConvertTo-SecureString '{_P}' -AsPlainText", _P),
    (f"tool /password:{_Q}", _Q),
    (f"yt-dlp -u me -p {_Q} u", _Q),
    (f"rsync --password-file=<(echo {_Q}) a b", _Q),
    (f"restic --password-command 'echo {_Q}' x", _Q),
    (f"ssh h 'PGPASSWORD='\"'\"'{_S}'\"'\"' psql'", _S),
    (f'curl -H \'Authorization: Digest username="u", response="{_hex(32)}"\' h', _hex(32)),
    (f"curl -H Authorization:\\ Bearer\\ {_K} h", _K),
    (f"requests.get(u, auth=('me', '{_S}'))", _S),
    (f"cat > .netrc <<E\nmachine h login me password {_Q}\nE", _Q),
    (f"machine h\n  login me\n  password {_S}\n", _S),
    (f"[pypi]\nusername = me\npassword = {_Q}\n", _Q),
    (f"db:\n  password: {_Q}\n", _Q),
    (f"apiVersion: v1\nkind: Secret\ndata:\n  foo: {_BASIC}\n", _BASIC),
    (f"kind: Secret\nstringData:\n  foo: {_S}\n", _S),
    (f"password = '''{_Q}'''", _Q),
    (f"<password>{_Q}</password>", _Q),
    (f'<add key="ApiKey" value="{_S}"/>', _S),
    (f"<token>{_K}</token>", _K),
    (f"define('DB_PASSWORD', '{_Q}');", _Q),
    (f"define( 'AUTH_KEY', '{_K}' );", _K),
    (f"password: str = '{_Q}'", _Q),
    (f"let password: string = '{_Q}';", _Q),
    (f"os.environ['API_KEY'] = '{_S}'", _S),
    (f"api_key: {_Q}{_Q}", _Q),
    (f"user:\n  client-key-data: {fake(200)}", fake(200)),
    (f"<server><password>{_K}</password>", _K),
    (f"requirepass {_Q}", _Q),
    (f'psk="{_Q}"', _Q),
    (f"wpa_psk={_hex(64)}", _hex(64)),
    (f'<string name="api_key">{_S}</string>', _S),
    (f"password:{_Q}", _Q),
    (f"secretKey: {_Q}{_Q}", _Q),
    (f'\\\\\\"password\\\\\\": \\\\\\"{_S}\\\\\\"', _S),
    (f"https%3A%2F%2Fme%3A{_S}%40h%2F", _S),
    (f"?x=1%26password%3D{_S}", _S),
    (f"jdbc:oracle:thin:me/{_S}@h:1521:x", _S),
    (f"https://{_Q}:x-oauth-basic@github.com/o/r", _Q),
    (f"https://{_K}:x-oauth-basic@github.com/o/r", _K),
    (f"https://{_K}:@h/x", _K),
    (f"root:{_S}@tcp(127.0.0.1:3306)/db", _S),
    (f"EAAC{fake(100)}", fake(100)),
    (f"EAAA{fake(60)}", fake(60)),
    (f"amzn.mws.{_UUID}", _UUID),
    (f"figd_{fake(40)}", fake(40)),
    (f"rnd_{fake(32)}", fake(32)),
    (f"tvly-{fake(32)}", fake(32)),
    (f"CFPAT-{fake(43)}", fake(43)),
    (f"dt0c01.{fake(24, _CAPITALS)}.{fake(64, _CAPITALS)}", fake(64, _CAPITALS)),
    (f"rpa_{fake(44)}", fake(44)),
    (f"fly FlyV1 fm2_{fake(80)}", fake(80)),
    (f"FlyV1 fm1r_{fake(80)}", fake(80)),
    (f"lsv2_pt_{_hex(32)}_{_hex(10)}", _hex(32)),
    (f"phc_{fake(43)} phx_{fake(43)}", fake(43)),
    (f"sgp_{_hex(16)}_{_hex(40)}", _hex(40)),
    (f"CCIPAT_{fake(22)}_{_hex(40)}", _hex(40)),
    (f"bkua_{_hex(40)}", _hex(40)),
    (f"fw_{fake(24)}", fake(24)),
    (f"esecret_{fake(50)}", fake(50)),
    (f"tgp_v1_{fake(43)}", fake(43)),
    (f"pcsk_{fake(70)}", fake(70)),
    (f"jina_{_hex(32)}{fake(28)}", fake(28)),
    (f"napi_{fake(64)}", fake(64)),
    (f"nfp_{fake(36)}", fake(36)),
    (f"cio_{fake(40)}", fake(40)),
    (f"waka_{_UUID}", _UUID),
    (f"shippo_live_{_hex(40)}", _hex(40)),
    (f"rzp_live_{fake(14)}", fake(14)),
    (f"FLWSECK_TEST-{_hex(32)}-X", _hex(32)),
    (f"xkeysib-{_hex(64)}-{fake(16)}", _hex(64)),
    (f"sl.{fake(130)}", fake(130)),
    (f"duffel_live_{fake(43)}", fake(43)),
    (f"export \x1b[1mTOKEN\x1b[0m={_S}", _S),
    (f"ghp_\x1b[31m{fake(36)}\x1b[0m", fake(36)),
    (f"ghp_{fake(18)}\\\n{fake(36)[18:]}", fake(18)),
    (f"--password \\\n  {_Q}", _Q),
    (f"mysql \\\n -u root \\\n -p{_Q}", _Q),
    (f"supabase link -p {_S}", _S),
    (f"evil-winrm -i h -u me -p {_S}", _S),
    (f"ipmitool -H h -U me -P {_S} power status", _S),
    (f"snmpwalk -v3 -u me -A {_S} -X {_P} h", _S),
    (f"influx write -t {_K} f", _K),
    (f"etcdctl --user root:{_S} get k", _S),
    (f"choco apikey -k {_K}", _K),
    (f"echo {_K} | npx wrangler secret put NAME", _K),
    (f"printf {_S} | docker secret create db -", _S),
    (f"echo {_S} | secret-tool store --label=x y z", _S),
    (f"rclone config create r s3 secret_access_key {_K}", _K),
    (f"mc alias set m https://h {fake(20)} {_K}", _K),
    (f"xfreerdp /u:me /p:{_S} /v:h", _S),
    (f"Driver=x;UID=sa;PWD={_S};", _S),
    (f'{{"username": "me", "key": "{_hex(32)}"}}', _hex(32)),
    (f"Your API key: {_K}", _K),
    (f"the token is {_K}", _K),
    (f"password for me is {_P}", _P),
    (f"Authorization: SSWS 00{_K}", _K),
    (f"TOKEN%3D{_K}", _K),
    (f"password%3A%20{_S}", _S),
    (f"Bearer%20{_K}", _K),
    (f"tool --pat {_B}", _B),
    (f"tool --pat={_B}", _B),
    (f"pat: {_B}\n", _B),
    (f'{{"pat": "{_B}"}}', _B),
    (f"curl -u :{_B} https://dev.azure.com/o", _B),
]

# A program, its arguments, and the arguments as they are recorded.
ARGS = [
    ("tool", ["--password", f"{_S} y z", "x"], ["--password", "[redacted]", "x"]),
    ("tool", [f"--password={_S} y z", "x"], ["--password=[redacted]", "x"]),
    ("tool", ["--token", _S], ["--token", "[redacted]"]),
    ("/usr/bin/mysql", ["-u", "root", f"-p{_S}", "db"], ["-u", "root", "-p[redacted]", "db"]),
    ("curl", ["-u", f"me:{_S}", "h"], ["-u", "me:[redacted]", "h"]),
    ("curl", ["-s", f"-ume:{_S}", "h"], ["-s", "-ume:[redacted]", "h"]),
    ("curl", ["-su", f"me:{_S}", "h"], ["-su", "me:[redacted]", "h"]),
    ("curl", ["--user", f"me:{_S}", "h"], ["--user", "me:[redacted]", "h"]),
    ("curl", [f"--user=me:{_S}", "h"], ["--user=me:[redacted]", "h"]),
    ("sudo", ["mysql", f"-p{_S}"], ["mysql", "-p[redacted]"]),
    ("env", [f"PGPASSWORD={_S}", "psql"], ["PGPASSWORD=[redacted]", "psql"]),
    ("bash", ["-c", f"mysql -p{_S} x"], ["-c", "mysql -p[redacted] x"]),
    ("docker", ["login", "-p", _S, "r"], ["login", "-p", "[redacted]", "r"]),
    ("docker", ["run", "-p", "80:80", "r"], ["run", "-p", "80:80", "r"]),
    ("openssl", ["rsa", "-passin", f"pass:{_S}"], ["rsa", "-passin", "pass:[redacted]"]),
    ("curl", ["-H", f"Authorization: Bearer {_K}"], ["-H", "Authorization: Bearer [redacted]"]),
    ("tool", ["--pat", _B, "--path", _B], ["--pat", "[redacted]", "--path", _B]),
    ("tool", ["--token", "$TOKEN"], ["--token", "$TOKEN"]),
    ("tool", ["--password", "--verbose", "x"], ["--password", "--verbose", "x"]),
    ("tool", ["--no-password", "x"], ["--no-password", "x"]),
    ("tool", ["--token-count", "5"], ["--token-count", "5"]),
    ("mysql", ["-p", "db"], ["-p", "db"]),
    ("tool", ["-u", "a:b"], ["-u", "a:b"]),
]

ORDINARY = [
    "git show 3f786850e387550fdab836ed7e6dc881de23001b",
    "git checkout 1a85c68 -- acpterm/config/paths.py",
    "sha256sum -c e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "docker pull x@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "curl https://h/items/123e4567-e89b-12d3-a456-426614174000",
    "echo bXkgZmlsZSBuYW1lLnR4dA== | base64 -d",
    "base64 -d <<< aGVsbG8gd29ybGQgaGVsbG8gd29ybGQgaGVsbG8gd29ybGQ=",
    "cat eyJmaWxlIjoibmFtZSJ9.txt",
    "cat eyJhbGciOiJub25l.tar.gz",
    "python train.py --token-count 5 --max-tokens 100000 --tokenizer gpt2",
    "pip install sk-learn-contrib sk-video sk-dist",
    "npm install sk-proj-template-generator sk-admin-dashboard-template-with-sidebar",
    "git checkout -b sk-ant-colony-optimization-for-routing",
    "npm_config_loglevel=warn npm_package_name_of_something=x npm run build",
    "hf_hub_download --help",
    "cd ghp_pages && ls ghs_files gho_st",
    "pip install pypi-publish-helper glpat-viewer",
    "ls -l ~/.ssh/id_ed25519.pub",
    "ssh -i ~/.ssh/deploy_key -p 2222 me@host",
    "SSH_KEY=~/.ssh/id_ed25519 make deploy",
    "export GOOGLE_APPLICATION_CREDENTIALS=/etc/app/credentials.json",
    "PASSWORD_FILE=/run/secrets/db TOKEN_URL=https://h/token make",
    "docker login --password-stdin -u me r",
    "docker run -u 1000:1000 -p 8080:80 -e TZ=UTC image",
    "docker run -e API_TOKEN image",
    "chown -R user:group .",
    'curl -u "$USER:$PASSWORD" https://h',
    "curl -u $AUTH https://h",
    'curl -H "Authorization: Bearer $TOKEN" https://h',
    "curl -H 'Authorization: Bearer ${TOKEN}' https://h",
    "curl http://localhost:3000?email=a@example.org",
    "curl http://localhost:8080/@scope/package",
    "git clone git@github.com:owner/repo.git",
    "git clone ssh://git@github.com:22/owner/repo",
    "git clone https://me@example.org/repo",
    "echo https://<user>:<password>@host",
    "export TOKEN=$(gh auth token)",
    "export PASSWORD=${PASSWORD}",
    "TOKEN= make",
    'if [ "$TOKEN" = "" ]; then exit; fi',
    "grep -rn 'password' src/ --include=*.py",
    "grep -rn 'token: str' src",
    "git commit -m 'fix token: handle expiry of the access key'",
    "git commit -m 'Require a password: the form was not checked'",
    "python -c 'def f(password: str, token=None): pass'",
    "python -c \"connect(password=os.environ['PW'], token=get_token())\"",
    "psql -c 'create table t (id int primary key, sort_key text)'",
    "sort --key=2,2 --key 3n data.csv",
    "redis-cli get cache_key=user:1",
    "SORT_KEY=created_at PRIMARY_KEY=user_id PUBLIC_KEY=abc make",
    "xdotool key ctrl+alt+t",
    "setxkbmap us -option ctrl:nocaps",
    "pytest -k 'test_token_is_refreshed or test_password_reset' -p no:cacheprovider",
    "make test PASS=3 FAIL=0",
    "pytest --tokens=5 --auth=none --pass-through",
    "PWD=/home/me OLDPWD=/tmp ls",
    "openssl req -new -key server.key -out server.csr",
    "openssl x509 -in cert.pem -noout -text",
    "ssh-keygen -t ed25519 -f key -C me@host",
    "kubectl get secrets -n default",
    "kubectl get secret my-secret -o yaml",
    "gh secret list --repo me/r",
    "aws secretsmanager list-secrets --max-items 10",
    "mysql -u root -p db",
    "7z x archive.7z -ooutput",
    "zip -r out.zip dir -x '*.pyc'",
    "npm run passwordless --if-present",
    "go test ./... -run TestSecretary -count=1",
    "echo 2026-11-23T00:16:08.123Z 192.168.0.1:8080",
    "ls AKIAVE ASIAN-FOOD.txt SKELETON.md SG.txt",
    "echo 12345678:AAPL",
    "cat key-value-store.md key-0123",
    "echo 'a@b.c' | mail -s x y@z.example",
    "echo hello | sudo tee /etc/motd",
    "sudo -u postgres psql",
    "cargo add secrecy && cargo doc --no-deps",
    "-----BEGIN CERTIFICATE-----",
    "ssh-add -l; ssh-rsa AAAAB3NzaC1yc2E",
    "node -e 'const key = keys[0]; const token = tokens.next()'",
    "const passport = require('passport'); app.use(auth)",
    "Module.exports.something = NewThing.method.call",
]

# Texts without a secret, a line each.
_HARMLESS_LINES = r"""
git commit -m "password: reset form"
git commit -m 'token: refresh before expiry'
git log --grep='IDENTIFIED BY'
docker pull nginx:1.25@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
docker pull ghcr.io/o/r:v1.2@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
npm i react@npm:preact@10.1/x
scp a.txt me@host:/tmp/b
rsync -a src/ me@host:22/dst
ssh -p 2222 me@host 'ls -la'
curl -x http://proxy:8080 https://h
curl --proxy proxy.local:3128 https://h
curl -b cookies.txt -c cookies.txt https://h
curl -E cert.pem --key key.pem https://h
curl -u me https://h
curl -u : --negotiate https://h
http -a me h
sqlplus / as sysdba
sqlplus /nolog @run.sql
htpasswd -c .htpasswd me
vault login -method=oidc
vault kv get secret/x
cargo login
wandb login --relogin
ngrok http 8080
gh auth login
snyk auth
bw unlock --check
kubectl create secret generic x --from-file=ca.crt
gh secret set DEPLOY < key.txt
echo hello | sudo tee x
echo passwd | grep x
cat /etc/passwd | grep me
su - me -c 'ls'
passwd me
ssh-keygen -t ed25519 -f k -C c
ssh-keygen -N "" -f k
twine upload dist/*
yt-dlp -f best https://h/v
fly deploy -a app
fly logs -a app
vercel --prod
codecov -f coverage.xml
docker push r/image:tag
git push -u origin main
git push --force-with-lease origin feature/token-refresh
useradd -m -s /bin/bash me
usermod -aG docker me
security find-certificate -a
security list-keychains
snmpwalk -v2c h
pdftotext -layout a.pdf
nmcli dev wifi list
mysqladmin status
redis-cli ping
redis-cli -h h -p 6379 info
kinit me@REALM
python -c "print('password')"
python -c "d['key'] = 'value'"
python -c "x = {'token': None, 'auth': True}"
python -c "import secrets; print(secrets.token_hex(8))"
sed -i 's/password/passphrase/' README.md
grep -rn "API_KEY" src
echo "password required"
echo 'enter the password: '
printf "%s\n" key
terraform apply -var region=eu-west-1
ansible-playbook site.yml -K
make KEY=value
make KEY=release-2024
make SIGN_KEY=
psql -c "select * from users where password is null"
psql -c "CREATE ROLE r LOGIN"
mysql -e "select user, authentication_string from mysql.user"
aws ssm get-parameter --name /x
aws ssm put-parameter --name /x --type String --value 5
composer config --list
git config user.name me
git config credential.helper store
poetry config virtualenvs.in-project true
pulumi config set aws:region eu-west-1
cat <xml> </xml>
echo '<token></token>'
echo '<title>Password</title>'
echo '<a href="x">y</a>'
jest -t 'token'
ls /run/secrets
date +%20s%3A
printf '%20s %3A %40d'
curl 'https://h/a%20b%3Ac'
curl 'https://h/?q=a%20key%20b'
echo AQUARIUS LTAIR EAAAAA
ls figd_x sgp_y nfp_z cio_a
cp sl.txt fw_update.bin
convert in.png -resize 50% out.png
pip install keyring passlib
cd keys && ls authkeys
npm run build:prod@1
uv run x:y@z
id me:group@host
tar czf - . | ssh me@h 'tar xz'
docker run --rm -p 127.0.0.1:8080:80 me/app:1
apt-key list
gpg --list-keys
gpg --passphrase-fd 0 -d f < pw.txt
openssl rand -hex 32
openssl dgst -sha256 -sign key.pem -out sig f
tree-sitter parse a.c | head
ping -c 1 h
7z a -mx9 out.7z dir
unzip -p a.zip f
rar a out.rar dir
hydra --help
skopeo inspect docker://r/i:t
podman ps --format json
ldapsearch -x -b dc=x
ipmitool -H h -U a sensor
mosquitto_sub -h h -t topic
evil-winrm --help
doctl compute droplet list
wpa_cli status
node -e "process.env.API_KEY || exit(1)"
def check(password: str = None): pass
token: Optional[str] = None
signature = inspect.signature(f)
key = keys[0]
password = getpass.getpass()
"""
HARMLESS = [
    *_HARMLESS_LINES.strip().splitlines(),
    "apiVersion: v1\nkind: ConfigMap\ndata:\n  a: b\n",
    "x:\n  keyName: y\n  password_file: /x\n",
    "password:\n  type: string\n",
    "cat <<E > x.py\nclass A:\n    password: str\n    token: Token\nE",
    "properties:\n  password:\n    type: string\n  token:\n    type: string\n",
    "secretKeyRef:\n  name: x\n  key: password\n",
    "docker compose -f a.yml \\\n  up -d",
    "cc \\\n -o x \\\n -p y",
    "echo \x1b[1mbold\x1b[0m",
    # Short literals of tokens, before ids, hashes, names and base64.
    *(f"{start}{_UUID}" for start in ("api-", "sdk-", "pa-", "ak-", "live_", "key_", "pod/as-")),
    *(f"{start}{_hex(40)}" for start in ("git-", "api_", "pa-", "as-", "fc-", "cio")),
    *(f"{start}{_hex(64)}" for start in ("sha256-", "sha256:", "image_", "as-")),
    f"data:image/png;base64,iVBORw0KGgo/cio{fake(32)}/pa-{fake(50)}+LTAI{fake(20)}==",
    "as-internationalization-module ak-performance-tests pa-a-long-name-of-a-css-class-in-a-page",
    "oauth:read_and_write_of_repositories live_reload_of_all_pages_of_the_documentation",
    "API-DOCUMENTATIONOFTHEWHOLESERVICE patterns.of.names re_compiled1_patterns",
    '{"name": "x", "key": "' + _hex(32) + '"}',
    "the api key is required; the token is valid; password for me is prompted",
    f"cat {_B}.txt; ls path {_B} pat --path {_B}",
    "cd /src;PWD=/src; docker secret create name file; mc alias list",
]


def wrapped() -> Iterator[tuple[str, str]]:
    """Yield pairs of a text that contains a token, such as in quotes, and the token's secret."""
    places = ("{}", "run {} now", "x='{}'", 'x="{}"', "a={};b", "(\n{}\n)", "printf 'a\\n{}'")
    for (prefix, secret), place in zip(TOKENS, itertools.cycle(places), strict=False):
        yield place.format(prefix + secret), secret
