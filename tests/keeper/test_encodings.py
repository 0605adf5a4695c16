"""Output that is not UTF-8: explicit encodings, and what `auto` tells apart and leaves alone."""

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acpterm.config.encodings import Encoding
from acpterm.keeper.encodings import CODECS, ENCODINGS, GROWTH, encode_input
from acpterm.keeper.programs.decoding import Decoder, detect

CHINESE = "总计 24\n错误: 找不到文件或目录、请检查路径是否正确、然后再试一次。\n"
TAIWANESE = "總計 24\n錯誤: 找不到檔案或目錄、請檢查路徑是否正確、然後再試一次。\n"
JAPANESE = "合計 24\nエラー: ファイルまたはディレクトリが見つかりません。もう一度お試しください。\n"
KOREAN = "합계 24\n오류: 파일이나 디렉터리를 찾을 수 없습니다. 경로가 올바른지 확인하십시오.\n"
RUSSIAN = "итого 24\nэтот файл или каталог не найден, проверьте правильность пути.\n"  # noqa: RUF001  Cyrillic is meant
FRENCH = "Fichier non trouvé : vérifiez le chemin, réessayez. Déjà répété, même très près, où ça.\n"
POLISH = "Nie znaleziono pliku lub katalogu: sprawdź ścieżkę. Zażółć gęślą jaźń, błąd, części.\n"
SHORT = ("错误", "找不到", "文件", "目录", "检查", "路径", "正确")
TEXTS = {
    "gb18030": CHINESE,
    "big5": TAIWANESE,
    "shift_jis": JAPANESE,
    "euc-jp": JAPANESE,
    "euc-kr": KOREAN,
    "koi8-r": RUSSIAN,
    "windows-1251": RUSSIAN,
    "windows-1252": FRENCH,
}


def decoder(name):
    return Decoder(ENCODINGS.index(name))


def fed(name, data, cuts=()):
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    target = decoder(name)
    parts = [target.feed(data[begin:end]) for begin, end in pairwise(edges)]
    return b"".join(parts) + target.feed(b"", final=True)


def test_settings_offer_what_the_keeper_can_decode():
    assert get_args(Encoding) == ENCODINGS


@pytest.mark.parametrize("name", TEXTS)
def test_auto_finds_the_encoding_of_a_text(name):
    data = TEXTS[name].replace("\n", "\r\n").encode(CODECS[name])
    assert detect(data) == name
    assert fed("auto", data).decode() == TEXTS[name].replace("\n", "\r\n")
    # UTF-8 before and after it stays UTF-8.
    mixed = f"é {JAPANESE}".encode() + data + f"ß {CHINESE}".encode()
    shown = f"é {JAPANESE}".encode() + TEXTS[name].replace("\n", "\r\n").encode()
    assert fed("auto", mixed) == shown + f"ß {CHINESE}".encode()


@pytest.mark.parametrize(
    "data",
    [
        POLISH.encode("iso-8859-2"),
        RUSSIAN.encode("cp866"),
        CHINESE.encode("gb18030")[:16],
        bytes(range(256)) * 4,
        "──┐│└┘─".encode("cp437") * 10,
        b"\x00" + CHINESE.encode("gb18030"),
    ],
)
def test_auto_leaves_alone_what_is_not_clear(data):
    assert detect(data) is None
    assert fed("auto", data) == data


def test_auto_collects_short_lines_until_they_are_clear():
    lines = [f"{line}\n".encode("gb18030") for line in SHORT]
    target = decoder("auto")
    shown = [target.feed(line) for line in lines]
    assert shown[0] == lines[0]
    assert shown[-1].decode() == "正确\n"
    # The next keeper knows it too.
    assert Decoder(target.word).feed(lines[0]).decode() == "错误\n"


def found(name):
    """Return a decoder with `auto` that has found the encoding `name`."""
    target = decoder("auto")
    target.feed(TEXTS[name].encode(CODECS[name]))
    return target


@given(st.sampled_from(list(TEXTS)), st.text(), st.integers(0, 100))
@example("gb18030", "é", 1)
def test_auto_leaves_utf8_alone_when_it_has_found_another_encoding(name, text, cut):
    target, data = found(name), text.encode()
    assert target.feed(data[:cut]) + target.feed(data[cut:]) == data


def test_auto_decodes_the_rest_of_a_line_like_its_beginning():
    target = found("gb18030")
    assert target.feed(b"\x81") == b""
    assert target.feed(b"@").decode() == "丂"
    assert target.feed("é\n".encode("gb18030")).decode() == "é\n"
    assert target.feed("é\n".encode()).decode() == "é\n"


@given(st.text(), st.lists(st.integers(0, 100), max_size=5))
def test_auto_never_changes_utf8(text, cuts):
    assert fed("auto", text.encode(), cuts) == text.encode()


@given(st.sampled_from(list(TEXTS)), st.lists(st.integers(0, 200), max_size=8))
def test_explicit_encoding_does_not_depend_on_the_chunks(name, cuts):
    assert fed(name, TEXTS[name].encode(CODECS[name]), cuts).decode() == TEXTS[name]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.integers(0, 99), max_size=5))
@pytest.mark.parametrize("name", ["utf-16", "utf-16-be"])
def test_utf16_survives_the_line_ends_of_the_pty(name, text, cuts):
    text = text.replace("\ufeff", "")
    written = f"\ufeff{text}".encode(CODECS[name]).replace(b"\n", b"\r\n")
    assert fed(name, written, cuts).decode() == text.replace("\n", "\r\n")


@given(st.sampled_from(ENCODINGS), st.binary(max_size=300))
def test_output_grows_no_more_than_the_ring_has_room_for(name, data):
    assert len(fed(name, data)) <= GROWTH * (len(data) + 8)


def test_input_is_typed_in_the_encoding():
    word = ENCODINGS.index
    assert encode_input("错误\r".encode(), word("gb18030")) == "错误\r".encode("gb18030")
    assert encode_input("é".encode(), word("utf-8")) == "é".encode()
    assert encode_input("é".encode(), word("auto")) == "é".encode()
    assert encode_input("é".encode(), word("auto") + 256 * word("windows-1252")) == b"\xe9"
    assert encode_input(b"\xff\x1b[A", word("gb18030")) == b"\xff\x1b[A"
