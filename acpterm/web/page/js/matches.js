// Finds text in what a view shows, and marks it: in the buffer of an emulator, and in an element.
//
// Both have `find(pattern)`, which finds all matches and returns their number, `nearest()`, the index
// of the match to begin with, `show(index)`, and `clear()`. `onChange(fn)` calls `fn()` after changes
// of what is searched, and returns a function that ends this.

const PIECE_LINES = 10000;
const MARKED_MAX = 5000;
const MARK = "#e8c36a";
const PLAIN = /^[\x20-\x7e]*$/;

/** Return the matches of a global pattern in text, as pairs of begin and end; none is empty. */
export function matchesOf(pattern, text) {
  const found = [];
  for (const match of text.matchAll(pattern)) {
    if (match[0]) found.push([match.index, match.index + match[0].length]);
  }
  return found;
}

/** Return the cell at which the character at the index `at` of a row of a buffer begins. */
function cellAt(line, text, at) {
  if (PLAIN.test(text)) return at;
  let cell = 0;
  for (let index = 0; index < at && cell < line.length; cell++) {
    const { length } = line.getCell(cell)?.getWidth() === 0 ? "" : line.getCell(cell)?.getChars() || " ";
    index += length;
  }
  while (line.getCell(cell)?.getWidth() === 0) cell += 1;
  return cell;
}

/** The matches in a buffer, as `{row, cell, cells}`; a line that is wrapped is searched as one. */
export class ScreenMatches {
  /** `load()` returns a promise that is kept once the buffer has all output. */
  constructor({ term }, load) {
    this._term = term;
    this._load = load;
    this._matches = [];
    this._marks = [];
    this._ends = [term.onRender(() => this._mark())];
  }

  async find(pattern) {
    await this._load();
    const matches = [];
    const { active } = this._term.buffer;
    for (let row = 0; row < active.length; ) {
      const until = Math.min(active.length, row + PIECE_LINES);
      while (row < until) row = this._findInLine(pattern, row, matches);
      // Let the page draw and take keys.
      if (row < active.length) await new Promise((resolve) => setTimeout(resolve));
    }
    this._matches = matches;
    this._marked = null;
    this._mark();
    return matches.length;
  }

  /** Add the matches in the line that begins in `row`; return the row after it. */
  _findInLine(pattern, row, matches) {
    const { cols } = this._term;
    const { active } = this._term.buffer;
    const [lines, texts, starts] = [[], [], []];
    let text = "";
    do {
      const line = active.getLine(row + lines.length);
      starts.push(text.length);
      lines.push(line);
      texts.push(line.translateToString(!active.getLine(row + lines.length)?.isWrapped));
      text += texts.at(-1);
    } while (active.getLine(row + lines.length)?.isWrapped);
    const placeOf = (at) => {
      const index = starts.findLastIndex((start) => start <= at);
      return index * cols + cellAt(lines[index], texts[index], at - starts[index]);
    };
    for (const [from, to] of matchesOf(pattern, text)) {
      const [begin, end] = [placeOf(from), placeOf(to)];
      matches.push({ row: row + Math.floor(begin / cols), cell: begin % cols, cells: end - begin });
    }
    return row + lines.length;
  }

  nearest() {
    const { viewportY } = this._term.buffer.active;
    const index = this._matches.findIndex(({ row }) => row >= viewportY);
    return index < 0 ? this._matches.length - 1 : index;
  }

  show(index) {
    const { row, cell, cells } = this._matches[index];
    const { active } = this._term.buffer;
    this._term.select(cell, row, cells);
    const isShown = row >= active.viewportY && row < active.viewportY + this._term.rows;
    if (!isShown) this._term.scrollToLine(Math.max(0, row - Math.floor(this._term.rows / 2)));
  }

  onChange(fn) {
    const listener = this._term.onWriteParsed(fn);
    return () => listener.dispose();
  }

  clear() {
    for (const end of this._ends) end.dispose();
    for (const mark of this._marks) mark.dispose();
    this._term.clearSelection();
  }

  /** Mark the matches that are in the window. */
  _mark() {
    const { rows } = this._term;
    const { viewportY, baseY, cursorY, type } = this._term.buffer.active;
    const key = `${viewportY} ${baseY} ${rows} ${type}`;
    if (this._marked === key) return;
    this._marked = key;
    for (const mark of this._marks) mark.dispose();
    this._marks = [];
    for (const { row, cell, cells } of this._matches) {
      if (row < viewportY || row >= viewportY + rows || this._marks.length >= MARKED_MAX) continue;
      const marker = this._term.registerMarker(row - baseY - cursorY);
      const width = Math.min(cells, this._term.cols - cell);
      const mark = this._term.registerDecoration({ marker, x: cell, width, backgroundColor: MARK, foregroundColor: "#000000" });
      this._marks.push(marker);
      if (mark) this._marks.push(mark);
    }
  }
}

/** The matches in the text of an element that has one text node. */
export class TextMatches {
  constructor(element) {
    this._element = element;
    this._matches = [];
  }

  find(pattern) {
    this._matches = matchesOf(pattern, this._element.textContent);
    // Without this interface only the selected match is marked.
    if (globalThis.CSS?.highlights) {
      CSS.highlights.set("found", new Highlight(...this._matches.slice(0, MARKED_MAX).map((match) => this._range(match))));
    }
    return this._matches.length;
  }

  /** The first match in the window, or the last one before it. */
  nearest() {
    const top = this._element.getBoundingClientRect().top;
    let [low, high] = [0, this._matches.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this._range(this._matches[middle]).getBoundingClientRect().bottom < top) low = middle + 1;
      else high = middle;
    }
    return Math.min(low, this._matches.length - 1);
  }

  show(index) {
    const range = this._range(this._matches[index]);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    const { top, bottom } = range.getBoundingClientRect();
    const box = this._element.getBoundingClientRect();
    if (top < box.top || bottom > box.bottom) this._element.scrollTop += top - box.top - this._element.clientHeight / 2;
  }

  onChange() {
    return () => {};
  }

  clear() {
    globalThis.CSS?.highlights?.delete("found");
  }

  _range([from, to]) {
    const range = document.createRange();
    range.setStart(this._element.firstChild, from);
    range.setEnd(this._element.firstChild, to);
    return range;
  }
}
