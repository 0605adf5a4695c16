"""A terminal's output as plain text, without escape sequences: what agents read.

- `stream`: the text of the whole output, built while the output is consumed; uses all modules below
  but `slices`;
- `utf8`: cuts bytes into whole characters;
- `controls`: removes escape sequences;
- `line`: the current line, which CR, BS and EL change;
- `tail`: the finished lines, of which the last ones are kept;
- `simple_output`: recognises output without cursor movements, which takes a fast path;
- `slices`: the text of a part of the output, for readers that follow it.
"""
