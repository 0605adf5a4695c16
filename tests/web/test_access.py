"""Links, logins, shares and the bearer token, without a server."""

import errno
import stat
from pathlib import Path

import pytest
import trio
import trio.testing

from acpterm.web.access import (
    KEY_LENGTHS,
    LINK_LIFETIME_S,
    LOGIN_LIFETIME_S,
    SHARES_MAX,
    AccessStore,
    TooManySharesError,
)
from acpterm.web.access_file import AccessFile, AccessFileError

KEY = "k" * 43


class Clock:
    """Seconds since 1970, which the test sets."""

    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def file(tmp_path):
    return AccessFile(str(tmp_path / "web"))


@pytest.fixture
def access(file, clock):
    return AccessStore(file, clock)


def contents(file: AccessFile) -> str:
    return (Path(file.token_path).parent / "access.json").read_text()


def test_link_logs_in_once(access):
    token = access.new_link()
    login = access.exchange(token, KEY)
    assert login is not None
    assert access.of_cookie(login.cookie, KEY) == login.access
    assert not login.access.is_bearer
    assert access.exchange(token, KEY) is None


def test_link_expires(access, clock):
    token = access.new_link()
    clock.now += LINK_LIFETIME_S
    assert access.exchange(token, KEY) is None


def test_login_needs_its_own_key(access):
    login = access.exchange(access.new_link(), KEY)
    other = access.exchange(access.new_link(), "o" * 43)
    assert access.of_cookie(login.cookie, "o" * 43) is None
    assert access.of_cookie(other.cookie, KEY) is None
    assert access.of_cookie("", KEY) is None
    assert access.of_cookie(login.cookie, "\udcff") is None


def test_login_expires(access, clock):
    login = access.exchange(access.new_link(), KEY)
    clock.now += LOGIN_LIFETIME_S - 1
    assert access.of_cookie(login.cookie, KEY) is not None
    clock.now += 1
    assert access.of_cookie(login.cookie, KEY) is None


@pytest.mark.parametrize("length", [0, KEY_LENGTHS.start - 1, KEY_LENGTHS.stop])
def test_login_refuses_a_key_of_a_wrong_length_and_keeps_the_link(access, length):
    token = access.new_link()
    assert access.exchange(token, "k" * length) is None
    assert access.exchange(token, KEY) is not None


def test_store_knows_links_and_logins_of_the_previous_worker(access, file, clock):
    token = access.new_link()
    login = access.exchange(access.new_link(), KEY)
    share, shared = access.new_share("term_1", write=True, lifetime_s=60)
    access.set_last_address("127.0.0.1:8080")
    again = AccessStore(file, clock)
    assert again.of_cookie(login.cookie, KEY) == login.access
    assert again.exchange(token, KEY) is not None
    assert again.exchange(shared, KEY).access.share == share
    assert again.last_address == "127.0.0.1:8080"


def test_used_link_is_used_for_the_next_worker_too(access, file, clock):
    token = access.new_link()
    access.exchange(token, KEY)
    assert AccessStore(file, clock).exchange(token, KEY) is None


def test_file_contains_no_secret_and_is_private(access, file):
    token, unused = access.new_link(), access.new_link()
    login = access.exchange(token, KEY)
    _, shared = access.new_share("term_1", write=False, lifetime_s=60)
    text = contents(file)
    for secret in (token, unused, login.cookie, KEY, shared):
        assert secret not in text
    directory = Path(file.token_path).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for path in directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.parametrize("damaged", ["", "{", '{"logins": 5}', "\xff"])
def test_damaged_file_is_treated_as_empty(access, file, clock, damaged):
    access.new_link()
    (Path(file.token_path).parent / "access.json").write_bytes(damaged.encode("latin-1"))
    again = AccessStore(file, clock)
    assert again.exchange(again.new_link(), KEY) is not None


def test_bearer_token_is_created_once_and_is_private(access, file, clock):
    token = Path(file.token_path).read_text().strip()
    Path(file.token_path).chmod(0o644)
    again = AccessStore(file, clock)
    assert stat.S_IMODE(Path(file.token_path).stat().st_mode) == 0o600
    for store in (access, again):
        assert store.of_bearer(token).is_bearer
        for wrong in ("", token[:-1], token + "x", token.swapcase(), "\udcff"):
            assert store.of_bearer(wrong) is None


def test_share_logs_in_several_browsers_to_its_terminal(access):
    share, token = access.new_share("term_1", write=False, lifetime_s=60)
    one, two = access.exchange(token, KEY), access.exchange(token, "o" * 43)
    assert one.access.share == two.access.share == share
    assert one.cookie != two.cookie
    assert access.shares == [share]


def test_share_ends_with_all_its_logins_when_it_expires(access, clock):
    _, token = access.new_share("term_1", write=False, lifetime_s=60)
    login = access.exchange(token, KEY)
    assert login.lifetime_s == 60
    clock.now += 60
    assert access.of_cookie(login.cookie, KEY) is None
    assert access.exchange(token, KEY) is None
    assert access.shares == []


def test_revoked_share_ends_and_leaves_others(access):
    share, token = access.new_share("term_1", write=False, lifetime_s=60)
    other, _ = access.new_share("term_1", write=True, lifetime_s=60)
    login = access.exchange(token, KEY)
    user = access.exchange(access.new_link(), KEY)
    assert access.revoke_share(share.id)
    assert not access.revoke_share(share.id)
    assert access.of_cookie(login.cookie, KEY) is None
    assert access.exchange(token, KEY) is None
    assert access.shares == [other]
    assert access.of_cookie(user.cookie, KEY) is not None


def full_disk(monkeypatch):
    """Make each replacement of a file fail. The file itself can still be overwritten."""

    def replace(source, target):
        raise OSError(errno.ENOSPC, "no space left", source)

    monkeypatch.setattr("acpterm.web.access_file.os.replace", replace)


def broken_disk(monkeypatch, file):
    """Make each write of the file fail: neither replacement nor overwriting is possible."""
    full_disk(monkeypatch)

    def overwrite(records):
        raise AccessFileError("input/output error")

    monkeypatch.setattr(file, "overwrite", overwrite)


def test_expiry_works_on_a_full_disk(access, file, clock, monkeypatch):
    _, token = access.new_share("term_1", write=False, lifetime_s=60)
    login = access.exchange(token, KEY)
    broken_disk(monkeypatch, file)
    clock.now += 60
    assert access.shares == []
    assert access.of_cookie(login.cookie, KEY) is None


def test_share_that_cannot_be_stored_does_not_exist(access, file, clock, monkeypatch):
    access.new_link()
    full_disk(monkeypatch)
    with pytest.raises(AccessFileError, match=r"no space left .*XDG_STATE_HOME"):
        access.new_share("term_1", write=False, lifetime_s=60)
    assert access.shares == []
    assert AccessStore(file, clock).shares == []
    assert not list(Path(file.token_path).parent.glob("*.new"))


def test_what_ends_on_a_full_disk_has_ended_for_the_next_worker(access, file, clock, monkeypatch):
    share, token = access.new_share("term_1", write=False, lifetime_s=3600)
    login = access.exchange(access.new_link(), KEY)
    kept = access.exchange(access.new_link(), KEY)
    link = access.new_link()
    full_disk(monkeypatch)
    assert access.revoke_share(share.id)
    access.log_out(login.access)
    with pytest.raises(AccessFileError, match="no space left"):
        access.exchange(link, KEY)
    again = AccessStore(file, clock)
    assert again.exchange(token, KEY) is None
    assert again.exchange(link, KEY) is None
    assert again.of_cookie(login.cookie, KEY) is None
    assert again.of_cookie(kept.cookie, KEY) is not None


async def test_share_that_is_revoked_on_a_broken_disk_ends_at_once_and_stays_revoked(
    access, file, clock, monkeypatch, autojump_clock
):
    share, token = access.new_share("term_1", write=False, lifetime_s=3600)
    login = access.exchange(token, KEY)
    with monkeypatch.context() as patch:
        broken_disk(patch, file)
        for _ in range(2):
            with pytest.raises(AccessFileError, match="input/output"):
                access.revoke_share(share.id)
            assert access.revoked_shares == {share.id}
        assert access.of_cookie(login.cookie, KEY) is None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(access.maintain)
            await trio.sleep(100)
            nursery.cancel_scope.cancel()
        assert AccessStore(file, clock).shares == [share]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(access.maintain)
        await trio.sleep(100)
        assert AccessStore(file, clock).shares == []
        nursery.cancel_scope.cancel()
    assert not access.revoked_shares
    assert not access.revoke_share(share.id)


async def test_what_could_not_be_stored_is_stored_when_the_worker_ends(
    access, file, clock, monkeypatch
):
    share, _ = access.new_share("term_1", write=False, lifetime_s=3600)
    with monkeypatch.context() as patch:
        broken_disk(patch, file)
        with pytest.raises(AccessFileError):
            access.revoke_share(share.id)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(access.maintain)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert AccessStore(file, clock).shares == []


def test_number_of_shares_is_limited(access):
    for _ in range(SHARES_MAX):
        access.new_share("term_1", write=False, lifetime_s=60)
    with pytest.raises(TooManySharesError):
        access.new_share("term_1", write=False, lifetime_s=60)


def test_oldest_links_and_logins_are_dropped_when_there_are_too_many(access, file):
    first_link = access.new_link()
    first = access.exchange(access.new_link(), KEY)
    for _ in range(40):
        last = access.exchange(access.new_link(), KEY)
        access.new_link()
    assert access.exchange(first_link, KEY) is None
    assert access.of_cookie(first.cookie, KEY) is None
    assert access.of_cookie(last.cookie, KEY) is not None
    assert len(contents(file)) < 256 * 1024


def test_logins_of_a_share_do_not_displace_those_of_the_user(access):
    _, token = access.new_share("term_1", write=False, lifetime_s=60)
    user = access.exchange(access.new_link(), KEY)
    for _ in range(100):
        access.exchange(token, KEY)
    assert access.of_cookie(user.cookie, KEY) is not None


async def test_visitor_who_logs_in_again_and_again_ends_no_other(access):
    _, token = access.new_share("term_1", write=False, lifetime_s=60)
    other = access.exchange(token, KEY)
    with access.cancelling(other.access):
        for number in range(100):
            last = access.exchange(token, f"{number:043}")
        assert access.of_cookie(other.cookie, KEY) is not None
        assert access.of_cookie(last.cookie, f"{99:043}") is not None
        await trio.lowlevel.checkpoint()


def test_browser_that_logs_in_again_with_a_share_replaces_its_own_login(access, file):
    _, token = access.new_share("term_1", write=False, lifetime_s=60)
    other = access.exchange(token, "o" * 43)
    first = access.exchange(token, KEY)
    for _ in range(40):
        last = access.exchange(token, KEY)
    assert access.of_cookie(first.cookie, KEY) is None
    assert access.of_cookie(last.cookie, KEY) is not None
    assert access.of_cookie(other.cookie, "o" * 43) is not None
    assert len(file.read().logins) == 2


async def test_expired_access_ends_although_the_clock_of_the_deadline_stood_still(
    access, clock, autojump_clock
):
    _, token = access.new_share("term_1", write=False, lifetime_s=3600)
    login = access.exchange(token, KEY)
    clock.now += 3600
    async with trio.open_nursery() as nursery:
        nursery.start_soon(access.maintain)
        with trio.fail_after(60), access.cancelling(login.access) as scope:
            # As after the system was suspended: more time has passed than the deadline knows.
            scope.deadline = trio.current_time() + 3600
            await trio.sleep_forever()
        nursery.cancel_scope.cancel()
    assert scope.cancelled_caught


@pytest.mark.parametrize("end", ["logout", "revoke", "removed"])
async def test_connections_of_an_access_are_cancelled_when_it_ends(access, end):
    share, token = access.new_share("term_1", write=False, lifetime_s=60)
    login = access.exchange(token, KEY)
    other = access.exchange(access.new_link(), KEY)
    ended = []

    async def connect(name, one):
        with access.cancelling(one) as scope:
            await trio.sleep_forever()
        ended.append((name, scope.cancelled_caught))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect, "a", login.access)
        nursery.start_soon(connect, "b", login.access)
        nursery.start_soon(connect, "other", other.access)
        await trio.testing.wait_all_tasks_blocked()
        if end == "logout":
            access.log_out(login.access)
        elif end == "revoke":
            access.revoke_share(share.id)
        else:
            assert access.end_shares(lambda one: one.terminal_id == "term_1") == [share]
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(ended) == [("a", True), ("b", True)]
        nursery.cancel_scope.cancel()


async def test_connections_of_a_share_are_cancelled_when_it_expires(access, autojump_clock):
    _, token = access.new_share("term_1", write=False, lifetime_s=60)
    login = access.exchange(token, KEY)
    with trio.fail_after(61), access.cancelling(login.access) as scope:
        await trio.sleep_forever()
    assert scope.cancelled_caught
