"""Pieces of output, for tests that feed combinations of them."""

SEQUENCES = [
    *(b"\x1b[>4m", b"\x1b[>4;2m", b"\x1b[?4m", b"\x1b[?1;2c", b"\x1b[>c", b"\x1b[=c", b"\x1b[c"),
    *(b"\x1b[?5r", b"\x1b[?2;3H", b"\x1b[6n", b"\x1b[?6n", b"\x1b[!p", b"\x1b[4:3m", b"\x1b[<u"),
    *(b"\x1b[2 q", b"\x1b[?25$p", b"\x1b[99J", b"\x1b[99K", b"\x1b[?2K", b"\x1b[9999999999b"),
    *(b"\x1b[" + b"1;" * 90 + b"H", "\x1b[²m".encode(), b"\x1b[38;5;999m", b"\x1b[48;2m"),
    *(b"\x1bP$q q\x1b\\", b"\x1b_Ga=q\x1b\\", b"\x1bXsos\x1b\\", b"\x1b]11;?\a", b"\x1b]0;t\x1b\\"),
    *(
        b"\x1b F",
        b"\x1b*0",
        b"\x1b%G",
        b"\x1b#3",
        b"\x1b=",
        b"\x1b>",
        b"\x1bZ",
        b"\x1bN",
        b"\x1b\\",
    ),
]
COLOURS = [
    *(b"\x1b[m", b"\x1b[1m", b"\x1b[2;3m", b"\x1b[4m", b"\x1b[4:3m", b"\x1b[5;7m", b"\x1b[8;9m"),
    *(b"\x1b[31m", b"\x1b[42m", b"\x1b[97;104m", b"\x1b[38;5;208m", b"\x1b[48;2;1;2;3m"),
    *(b"\x1b[38:2::255:0:9m", b"\x1b[48:5:17m", b"\x1b[58:2::1:2:3m", b"\x1b[39;49;22;24m"),
    *(b"\x1b[38m", b"\x1b[38;2m", b"\x1b[38:m", b"\x1b[48:2:1m", b"\x1b[58:5m", b"\x1b[4:9m"),
]
STATE = [
    *(b"\x1b[?1h", b"\x1b[?1l", b"\x1b=", b"\x1b>", b"\x1b[?2004h", b"\x1b[?1000h", b"\x1b[?1006h"),
    *(b"\x1b[?1002;1015h", b"\x1b[?1003l", b"\x1b[?25l", b"\x1b[?25h", b"\x1b[?12h", b"\x1b[?5h"),
    *(b"\x1b[5 q", b"\x1b[ q", b"\x1b]2;a title\a", b"\x1b]0;another\x1b\\", b"\x1b[!p"),
    *(b"\x1b]8;;http://a\a", b"\x1b]8;id=1;http://b\x1b\\", b"\x1b]8;;\a"),
    *(b"\x1b[>1u", b"\x1b[>15u", b"\x1b[<u", b"\x1b[<2u", b"\x1b[=5;2u", b"\x1b[=1;3u"),
    *(b"\x1b[>4;2m", b"\x1b[?69h", b"\x1b[2;7s", b"\x1b[?69l", b"\x1b[?1004h", b"\x1b[?2048h"),
]
MOVES = [
    *(b"\x1b[H", b"\x1b[3;4H", b"\x1b[99;99H", b"\x1b[A", b"\x1b[9B", b"\x1b[C", b"\x1b[3D"),
    *(b"\x1b[2J", b"\x1b[J", b"\x1b[1J", b"\x1b[K", b"\x1b[1K", b"\x1b[2K", b"\x1b[3X", b"\x1b[2P"),
    *(b"\x1b[2@", b"\x1b[2L", b"\x1b[2M", b"\x1b[2;3r", b"\x1b[r", b"\x1b[?6h", b"\x1b[?6l"),
    *(b"\x1b[?7l", b"\x1b[?7h", b"\x1b[4h", b"\x1b[4l", b"\x1b[20h", b"\x1b[?3h", b"\x1b[?3l"),
    *(
        b"\x1b[2d",
        b"\x1b[4G",
        b"\x1b7",
        b"\x1b8",
        b"\x1b[s",
        b"\x1b[u",
        b"\x1bD",
        b"\x1bM",
        b"\x1bE",
    ),
    *(b"\x1bc", b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?47h", b"\x1b[?47l", b"\x1b[96h", b"\x1b#8"),
    *(b"\x1b[?1047h", b"\x1b[?1047l", b"\x1b[?1048h", b"\x1b[?1048l", b"\x1b[?40h", b"\x1b[3;5r"),
    *(b"\x1b[3S", b"\x1b[2T", b"\x1b[5b", b"\x1b[2I", b"\x1b[Z", b"\x1bH", b"\x1b[3g", b"\x1b(0"),
    *(b"\x1b(B", b"\x0e", b"\x0f", b"\r", b"\n", b"\b", b"\t", b"\v", b"\x18", b"\x1b", b"\x1b["),
]
TEXT = [
    text.encode()
    for text in (
        *("a", "hello world", "é", "日本語", "e\u0301", "\u0301", "🙂", "\u200d", "\ufe0f"),
        *("👩\u200d👩\u200d👧", "🇩🇪", "❤\ufe0f", "👍🏽", "한", "\u1112\u1161"),
    )
]
ALL = [*SEQUENCES, *COLOURS, *STATE, *MOVES, *TEXT]

MARKER = b"MaRkEr"
QUERIES = [
    *(b"\x1b[6n", b"\x1b[5n", b"\x1b[?6n", b"\x1b[c", b"\x1b[>c", b"\x1b[=c", b"\x1bZ", b"\x05"),
    *(
        b"\x1b[?2004$p",
        b"\x1b[4$p",
        b"\x1b[?31337$p",
        b"\x1b[>q",
        b"\x1b[18t",
        b"\x1b[14t",
        b"\x1b[16t",
    ),
    *(b"\x1b[?u", b"\x1b]4;1;?\a", b"\x1b]10;?;?\x1b\\", b"\x1b]11;?\a", b"\x1b]12;?\a"),
    *(
        b"\x1b]2;" + MARKER + b"\a\x1b[21t",
        b"\x1b[20t",
        b"\x1b]52;c;?\a",
        b"\x1b]52;c;" + MARKER + b"\a",
    ),
    *(b"\x1bP$q" + MARKER + b"\x1b\\", b"\x1bP$qm\x1b\\", b"\x1bP$q q\x1b\\", b'\x1bP$q"p\x1b\\'),
    *(b"\x1bP+q544e;" + MARKER.hex().encode() + b"\x1b\\", b"\x1bP+q536D756C78\x1b\\"),
    *(b"\x1b]5522;type=read:id=" + MARKER + b";\a", b"\x1b]5522;type=write:id=" + MARKER + b"\a"),
    *(b"\x1b]21;" + MARKER + b"=?;foreground=?\a", b"\x1b]99;i=" + MARKER + b":p=?;\x1b\\"),
    *(b"\x1b_Gi=31,a=q,s=1,v=1,f=24;AAAA\x1b\\", b"\x1b_25a1;s;" + MARKER + b"\x1b\\"),
    *(
        b"\x1b]7;" + MARKER + b"\a",
        b"\x1b]50;?" + MARKER + b"\a",
        b"\x1b]1337;ReportVariable=" + MARKER + b"\a",
    ),
    *(
        b"\x1b[?996n",
        b"\x1b[?2048h",
        b"\x1b[?2033h",
        b"\x1b[x",
        b"\x1b[1;1;1;1;2;2*y",
        b"\x1b[?1;1;0S",
    ),
]
