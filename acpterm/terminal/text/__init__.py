"""A terminal's output as plain text, without escape sequences: what agents read.

- `stream`: the text of the whole output, built while the output is consumed; uses all modules below
  except `slices`;
- `utf8`: decodes bytes that arrive in any pieces, and finds where text may be cut (`boundary`);
- `controls`: removes escape sequences;
- `line`: the current line, which CR, BS and EL change;
- `redraw`: rows that a program draws again after moving the cursor up;
- `tail`: the text of the finished lines, of which the last bytes are kept, in whole characters;
- `simple_output`: recognises output that consists of ASCII text and colours, which takes a fast
  path;
- `slices`: the text of a slice of the output, for readers that follow the output.
"""
