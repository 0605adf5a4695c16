// The view of one terminal: its screen, what is known about it, and what the user can do with it.
//
// The daemon sends a picture of the screen, then output. A terminal of the user gets the size of
// this window. A terminal of an agent keeps its size, is read-only, and is drawn smaller if it does
// not fit.
//
// The window is attached until the program exits or the terminal is released; then the last screen
// stays. On the next connection after a loss the window is attached and painted again. If the page
// draws more slowly than the program prints, output is skipped until the received output is drawn; then
// the daemon sends another picture of the screen.
//
// This module is longer than others, since the size, the keys and the attached stream of one screen
// depend on each other. Actions on a terminal as a whole are in terminal_actions.js.

import { copyText } from "./clipboard.js";
import { announce, confirm, notify, notifyError } from "./dialog.js";
import { el, setAttribute, setText } from "./dom.js";
import { Emulator, fromBase64 } from "./emulator.js";
import { addShortcuts, KeyRow } from "./keys.js";
import { ScreenMatches, TextMatches } from "./matches.js";
import { showNotice } from "./notices.js";
import { Output } from "./output.js";
import { LostError, REQUEST_CANCELLED } from "./rpc.js";
import { SearchBar } from "./search.js";
import { openShare } from "./share_dialog.js";
import { killProgram, removeTerminal, restartProgram, takeOver, undo } from "./terminal_actions.js";
import { factsOf } from "./terminal_facts.js";
import { Typing } from "./typing.js";
import { cleanPaste, oneLine, visible, visibleText } from "./text.js";
import { backgroundNumber, dotOf, isActive, state, title } from "./words.js";

const FONT_SIZE = "acpterm.font-size";
const SIZES = { min: 7, normal: 13, max: 30 };
const RESIZE_MS = 80;
const TICK_MS = 1000;
const SCREEN_READER = "acpterm.screen-reader";

/** Mount the view of the terminal `params[0]`; see main.js. */
export function mount(container, { rpc, store, navigate, params, share = null }) {
  const view = new TerminalView(container, { rpc, store, navigate, id: params[0], share });
  view.start();
  return () => view.stop();
}

class TerminalView {
  constructor(container, { rpc, store, navigate, id, share }) {
    this._container = container;
    this._rpc = rpc;
    this._store = store;
    this._navigate = navigate;
    this._id = id;
    this._share = share;
    this._ends = [];
    this._isStopped = false;
    this._emulator = null;
    this._stream = null;
    this._isAnswering = false;
    this._typing = new Typing(rpc, id, (text) => this._say(text));
    this._ends.push(() => this._typing.stop());
    this._isOver = false;
    this._fontSize = Number(localStorage.getItem(FONT_SIZE)) || SIZES.normal;
    this._build();
  }

  get info() {
    return this._store.terminals.get(this._id) ?? null;
  }

  /** Whether the window sets the size: only of a terminal of the user whose program has not ended. */
  get isUsers() {
    const { info } = this;
    if (!info || info.owner !== "user" || !isActive(info) || this._isOver) return false;
    return this._share === null || this._share.write;
  }

  /** Whether the user can type: into a terminal of the user, or into an agent's to answer it. */
  get canWrite() {
    return this.isUsers || (this._isAnswering && this._canAnswer);
  }

  get _canAnswer() {
    const { info } = this;
    return this._share === null && info?.owner === "agent" && isActive(info) && !this._isOver;
  }

  async start() {
    this._ends.push(this._store.subscribe(() => this._update()));
    const timer = setInterval(() => this._tick(), TICK_MS);
    const facts = new ResizeObserver(() => this._letKeyboardScroll());
    facts.observe(this._meta);
    this._ends.push(() => facts.disconnect());
    this._ends.push(() => clearInterval(timer));
    let emulator;
    try {
      emulator = await Emulator.create(this._host, {
        fontSize: this._fontSize,
        screenReaderMode: localStorage.getItem(SCREEN_READER) === "1",
      });
    } catch (error) {
      if (!this._isStopped) showNotice(this._container, "vendor", error.message);
      return;
    }
    if (this._isStopped) {
      emulator.dispose();
      return;
    }
    this._emulator = emulator;
    this._output = new Output(emulator, {
      read: (params) => this._rpc.request("_acpterm/terminal/read", { terminalId: this._id, ...params }),
      repaint: () => this._repaint(),
      onError: (error) => {
        if (!(error instanceof LostError) && !this._isStopped) this._say(error.message);
      },
    });
    this._search = new SearchBar(
      this._findBar,
      () => this._text.hidden ? new ScreenMatches(emulator, () => this._output.loadAll()) : new TextMatches(this._text),
      () => (this._text.hidden ? emulator.term : this._text).focus(),
    );
    this._ends.push(() => this._search.stop());
    this._setUpInput();
    const observer = new ResizeObserver(() => this._resizeSoon());
    observer.observe(this._frame);
    this._ends.push(() => observer.disconnect());
    this._ends.push(this._addShortcuts());
    this._ends.push(this._rpc.onOpen(() => this._attach()));
    this._ends.push(this._rpc.onState((value) => this._showConnection(value)));
    this._showConnection(this._rpc.state);
    this._update();
    // Unless the user types elsewhere meanwhile, as into the filter.
    if (!document.querySelector("dialog[open], input:focus")) emulator.term.focus();
  }

  stop() {
    this._isStopped = true;
    for (const end of this._ends) end();
    this._stream?.cancel();
    clearTimeout(this._resizeTimer);
    this._emulator?.dispose();
  }

  // ---- The parts around the screen.

  _build() {
    const button = (text, label, run, extra = {}) =>
      el("button", { class: "button button-tool", type: "button", "aria-label": label, title: label, onclick: run, ...extra }, text);
    this._dot = el("span", { class: "dot", "aria-hidden": "true" });
    this._title = el("h1", { class: "term-title" });
    this._command = el("span", { class: "term-command mono" });
    this._state = el("span", { class: "term-state" });
    this._meta = el("dl", { class: "term-meta" });
    this._programTitle = el("span", { class: "term-program-title muted" });
    this._notice = el("p", { class: "term-notice", role: "status", hidden: true });
    this._takeOver = button("Take over", "Take over from the agent, to type", () => this._act(takeOver));
    this._answer = button("Type", "Type into the agent's terminal, which stays the agent's", () => this._toggleAnswer(), { "aria-pressed": "false" });
    this._kill = button("Kill", "Kill the program", () => this._act(killProgram), { class: "button button-tool button-danger" });
    this._restart = button("Restart", "Run the same command again", () => this._act(restartProgram));
    this._undo = button("Undo", "Bring the directory back to what it was before this command", () => this._act(undo));
    this._remove = button("Remove", "Remove this terminal and its output", () => this._act(removeTerminal));
    this._shareButton = button("Share", "Share this terminal by a link", () => openShare({ rpc: this._rpc, info: this.info }));
    this._textButton = button("Text", "Show the output as text", () => this._toggleText(), { "aria-pressed": "false" });
    this._follow = button("Follow", "Follow the output: scroll to its end", () => this._emulator?.term.scrollToBottom(), { "aria-pressed": "true" });
    this._tools = el(
      "div",
      { class: "toolbar term-tools", role: "toolbar", "aria-label": "Terminal" },
      this._answer, this._takeOver, this._kill, this._restart, this._undo, this._remove,
      button("Find", "Find in the output (Ctrl+Shift+F)", () => this._find()),
      button("Copy", "Copy the selection, or the screen (Ctrl+Shift+C)", () => this._copy()),
      this._textButton,
      this._follow,
      button("", "Smaller text", () => this._setFontSize(this._size() - 1), { "data-symbol": "A−" }),
      button("", "Larger text", () => this._setFontSize(this._size() + 1), { "data-symbol": "A+" }),
      this._shareButton,
    );
    this._host = el("div", { class: "term-host" });
    this._frame = el("div", { class: "term-frame" }, this._host);
    this._text = el("pre", { class: "term-text", tabindex: "0", role: "region", "aria-label": "Output as text", hidden: true });
    this._findBar = el("div", { class: "term-find", hidden: true });
    this._keys = new KeyRow({
      send: (text) => this._type(text),
      isApplicationCursor: () => this._emulator?.term.modes.applicationCursorKeysMode ?? false,
      focus: () => this._emulator?.term.focus(),
    });
    this._container.replaceChildren(
      el(
        "header",
        { class: "term-head" },
        this._share ? null : el("a", { class: "button button-quiet term-back", href: "#/", "aria-label": "Back to the list" }, "‹"),
        el("div", { class: "term-heading" }, el("div", { class: "term-line" }, this._dot, this._title, this._state, this._programTitle), this._command),
        this._tools,
        this._meta,
      ),
      this._notice,
      // The bar is drawn over the screen, since it must not change the size of the program's screen.
      el("div", { class: "term-stage" }, this._findBar, this._frame, this._text),
      this._keys.element,
    );
  }

  _update() {
    const { info } = this;
    if (!info) {
      if (this._store.isLoaded && !this._title.textContent) showNotice(this._container, "gone");
      else if (this._store.isLoaded) this._say("This terminal was removed. Its last screen stays until you leave this page.");
      return;
    }
    setText(this._title, title(info));
    setText(this._command, oneLine(info.command, 400));
    setAttribute(this._dot, "data-state", dotOf(info));
    this._host.setAttribute("role", "group");
    setAttribute(this._host, "aria-label", `Terminal ${title(info)}`);
    const hasProgram = isActive(info);
    const isShared = this._share !== null;
    const isAlive = hasProgram || backgroundNumber(info) > 0;
    this._answer.hidden = !this._canAnswer;
    this._takeOver.hidden = isShared || !isAlive || info.owner === "user";
    this._kill.hidden = isShared || !isAlive;
    this._restart.hidden = isShared || info.connection != null || hasProgram;
    this._undo.hidden = isShared || isAlive || !info.isKept;
    this._remove.hidden = isShared || hasProgram || info.owner !== "user";
    this._shareButton.hidden = isShared || !hasProgram;
    this._textButton.hidden = isShared;
    this._keys.element.hidden = !this.canWrite;
    this._tick();
    if (!this._emulator) return;
    const { term } = this._emulator;
    term.options.disableStdin = !this.canWrite;
    term.options.cursorInactiveStyle = this.canWrite ? "outline" : "none";
    const mode = this.isUsers ? "write" : "read";
    if (this._stream && this._mode !== mode && !this._isOver) {
      // The user has taken the terminal over: this window now determines its size.
      this._attach();
    } else if (mode === "read" && (term.cols !== info.cols || term.rows !== info.rows) && hasProgram) {
      this._fit();
    }
  }

  _tick() {
    const { info } = this;
    if (!info) return;
    const now = Date.now() / 1000;
    const words = state(info, now);
    if (this._lastState !== undefined && this._lastState !== words && !words.includes("ago")) announce(words);
    this._lastState = words;
    setText(this._state, words);
    this._state.classList.toggle("is-waiting", info.state === "running" && Boolean(info.waitingForInput));
    const shown = factsOf(info, now);
    const text = JSON.stringify(shown);
    if (text === this._factsText) return;
    this._factsText = text;
    this._meta.replaceChildren(
      ...shown.map(([name, value]) =>
        el("div", {}, el("dt", {}, name), el("dd", name === "Level" ? { "data-level": value } : {}, this._fact(name, value)))),
    );
    this._letKeyboardScroll();
  }

  /** On a narrow window the facts are one line that scrolls: let the keyboard scroll it, too. */
  _letKeyboardScroll() {
    setAttribute(this._meta, "tabindex", this._meta.scrollWidth > this._meta.clientWidth ? "0" : null);
  }

  _fact(name, value) {
    if (name !== "Tool calls" || this._share) return value;
    const { connection, sessionId } = this.info;
    return el("a", { href: `#/session/${encodeURIComponent(connection ?? "")}/${encodeURIComponent(sessionId ?? "")}` }, value);
  }

  /** Show a line above the screen; an empty text removes it. */
  _say(text) {
    this._notice.hidden = !text;
    setText(this._notice, visible(text));
  }

  _showConnection(value) {
    this._frame.classList.toggle("is-lost", value !== "open");
  }

  // ---- Attaching.

  _attach() {
    this._stream?.cancel();
    const { info } = this;
    if (!info) {
      // The list was not read yet.
      const end = this._store.subscribe(() => {
        if (!this.info || this._isStopped) return;
        queueMicrotask(() => end());
        if (!this._stream) this._attach();
      });
      this._ends.push(() => end());
      return;
    }
    this._mode = this.isUsers ? "write" : "read";
    const size = this._fit({ report: false });
    this._output.restart();
    const stream = this._rpc.stream(
      "_acpterm/terminal/attach",
      { terminalId: this._id, cols: size.cols, rows: size.rows, readOnly: this._mode === "read" },
      (params) => {
        if (stream === this._stream) this._output.receive(params);
      },
    );
    this._stream = stream;
    stream.done.then(
      () => this._detached(stream),
      (error) => this._failed(stream, error),
    );
  }

  _detached(stream) {
    if (stream !== this._stream || this._isStopped) return;
    this._stream = null;
    this._isOver = true;
    // Hide the cursor: no program reads input.
    this._emulator.write(new TextEncoder().encode("\x1b[?25l"));
    this._update();
  }

  _failed(stream, error) {
    if (stream !== this._stream || this._isStopped) return;
    this._stream = null;
    if (error instanceof LostError || error.code === REQUEST_CANCELLED) return;
    this._say(error.message);
  }

  /** Request the daemon to paint the window again, in its present size. */
  _repaint() {
    if (!this._rpc.isOpen) return;
    if (!this._stream) {
      this._attach();
      return;
    }
    const { cols, rows } = this._emulator.term;
    // An error only means that the window is not attached any more.
    this._rpc.request("_acpterm/terminal/window", { token: this._stream.token, cols, rows }).catch(() => {});
  }

  // ---- Size.

  _resizeSoon() {
    clearTimeout(this._resizeTimer);
    this._resizeTimer = setTimeout(() => {
      if (this._emulator && !this._isStopped && !this._frame.hidden) this._fit();
    }, RESIZE_MS);
  }

  /** Set the emulator's size; report a new size to the daemon (`report`). Return the size. */
  _fit({ report = true } = {}) {
    const { term, fit } = this._emulator;
    const { info } = this;
    const before = { cols: term.cols, rows: term.rows };
    if (this._mode === "write" && !this._isOver) {
      term.options.fontSize = this._fontSize;
      const size = fit.proposeDimensions();
      if (size?.cols > 0 && size?.rows > 0) term.resize(Math.min(size.cols, 1000), Math.min(size.rows, 1000));
    } else if (info) {
      term.resize(Math.min(info.cols, 2000), Math.min(info.rows, 1000));
      this._shrinkToWidth();
    }
    if (report && (before.cols !== term.cols || before.rows !== term.rows)) this._repaint();
    return { cols: term.cols, rows: term.rows };
  }

  /** Draw a terminal that keeps its size with smaller text if it is wider than the window. */
  _shrinkToWidth() {
    const { term } = this._emulator;
    term.options.fontSize = this._fontSize;
    if (this._isExactSize) return;
    const screen = this._host.querySelector(".xterm-screen");
    const width = this._frame.clientWidth - 16;
    if (!screen || width <= 0) return;
    while (term.options.fontSize > SIZES.min && screen.offsetWidth > width) term.options.fontSize -= 0.5;
  }

  _size() {
    return Math.round(this._emulator?.term.options.fontSize ?? this._fontSize);
  }

  _setFontSize(size) {
    this._fontSize = Math.max(SIZES.min, Math.min(SIZES.max, size));
    this._isExactSize = true;
    localStorage.setItem(FONT_SIZE, String(this._fontSize));
    if (this._emulator) this._fit();
    announce(`Text size ${this._fontSize}`);
  }

  // ---- Input.

  _setUpInput() {
    const { term } = this._emulator;
    this._emulator.onInput((data, isBinary) => {
      if (isBinary) this._type(btoa(data), "base64");
      else this._type(this._keys.apply(data));
    });
    term.onTitleChange((text) => setText(this._programTitle, oneLine(text, 80)));
    const follows = () => {
      const { buffer } = term;
      setAttribute(this._follow, "aria-pressed", String(buffer.active.viewportY >= buffer.active.baseY));
    };
    term.onRender(() => {
      follows();
      this._output.scrolled();
    });
    const scrollUp = ({ deltaY }) => deltaY < 0 && this._output.scrolled(true);
    this._host.addEventListener("wheel", scrollUp, { passive: true, capture: true });
    term.attachCustomKeyEventHandler((event) => this._onKey(event));
    this._host.addEventListener("paste", (event) => this._onPaste(event), { capture: true });
  }

  /** Return whether the emulator may handle a key; handle the page's combinations here. */
  _onKey(event) {
    if (event.type !== "keydown") return true;
    const isCombination = event.ctrlKey && event.shiftKey && !event.altKey && !event.metaKey;
    if (isCombination && ["KeyE", "KeyF", "KeyC"].includes(event.code)) return false;
    if (isCombination && event.code === "KeyV") return false;
    const isCopy = (event.ctrlKey || event.metaKey) && event.code === "KeyC" && !event.shiftKey;
    if (isCopy && this._emulator.term.hasSelection() && (event.metaKey || !this.canWrite)) return false;
    if (this.canWrite) return true;
    if (event.key === "Tab" || this._scrollByKey(event)) return false;
    const isTyping = event.key.length === 1 && !event.ctrlKey && !event.metaKey;
    if (isTyping || event.key === "Enter") this._explainReadOnly();
    return true;
  }

  /** Scroll, if the key says so; return whether it does. Only the keys of a terminal that is read. */
  _scrollByKey({ key }) {
    const { term } = this._emulator;
    if (key === "Home") term.scrollToTop();
    else if (key === "End") term.scrollToBottom();
    else if (key === "PageUp" || key === "PageDown") term.scrollPages(key === "PageUp" ? -1 : 1);
    else return false;
    this._output.scrolled(key === "Home" || key === "PageUp");
    return true;
  }

  _explainReadOnly() {
    const { info } = this;
    if (!info || !isActive(info)) return;
    if (this._share) this._say("This link can only read.");
    else if (info.owner === "agent") this._say("This terminal is the agent's, so you can only read. Press Type to answer it, or take it over.");
  }

  _toggleAnswer() {
    this._isAnswering = !this._isAnswering;
    setAttribute(this._answer, "aria-pressed", String(this._isAnswering));
    this._say(this._isAnswering ? "What you type goes to the program, until you press Type again. The terminal stays the agent's." : "");
    this._update();
    this._emulator?.term.focus();
  }

  async _onPaste(event) {
    event.preventDefault();
    event.stopImmediatePropagation();
    if (!this.canWrite) {
      this._explainReadOnly();
      return;
    }
    const text = cleanPaste(event.clipboardData?.getData("text/plain") ?? "");
    if (!text) return;
    const lines = text.replace(/\n$/, "").split("\n").length;
    const isConfirmed = !text.includes("\n") || (await confirm({
      title: lines > 1 ? `Paste ${lines} lines?` : "Paste a line with its line end?",
      text: "Each line end may run a command.",
      code: visibleText(text.length > 20000 ? `${text.slice(0, 20000)}\n…` : text),
      action: "Paste",
    }));
    if (!isConfirmed || this._isStopped) return;
    this._emulator.term.paste(text);
    this._emulator.term.focus();
  }

  /** Send typed text, or bytes in base64, to the program. */
  _type(data, encoding) {
    if (!this.canWrite) return;
    if (!this._notice.hidden) this._say("");
    this._typing.type(data, encoding);
  }

  // ---- Actions.

  /** Call a function of terminal_actions.js. */
  async _act(action) {
    await action({ rpc: this._rpc, store: this._store, navigate: this._navigate, info: this.info });
    if (!this._isStopped && action === takeOver) this._emulator?.term.focus();
  }

  _find() {
    if (!this._emulator) return;
    const selected = this._text.hidden ? this._emulator.term.getSelection() : getSelection().toString();
    this._search.open(selected.split("\n")[0]);
  }

  async _copy() {
    const { term } = this._emulator ?? {};
    if (!term) return;
    const text = this._text.hidden ? term.getSelection() || screenText(term) : getSelection().toString() || this._text.textContent;
    if (await copyText(text)) notify("Copied");
    else notify("The browser does not allow to copy", { danger: true });
  }

  _toggleText() {
    if (this._text.hidden) {
      this._showText();
      return;
    }
    setAttribute(this._textButton, "aria-pressed", "false");
    this._text.hidden = true;
    this._frame.hidden = false;
    this._resizeSoon();
    this._search.restart();
  }

  async _showText() {
    setAttribute(this._textButton, "aria-pressed", "true");
    this._text.hidden = false;
    this._frame.hidden = true;
    setText(this._text, "");
    try {
      setText(this._text, await this._readText());
      this._text.scrollTop = this._text.scrollHeight;
      if (this._findBar.hidden) this._text.focus();
      this._search.restart();
    } catch (error) {
      notifyError(error);
    }
  }

  async _readText() {
    const { text, truncated } = await this._rpc.request("_acpterm/terminal/output", { terminalId: this._id });
    return `${truncated ? "[earlier output is no longer retained]\n" : ""}${visibleText(text)}`;
  }

  _leave() {
    const link = document.querySelector(".row-link[aria-current]") ?? this._container.querySelector(".term-back");
    const isVisible = link?.offsetParent;
    (isVisible ? link : this._container.querySelector(".term-back, .button"))?.focus();
  }

  _toggleScreenReader() {
    const { term } = this._emulator;
    term.options.screenReaderMode = !term.options.screenReaderMode;
    localStorage.setItem(SCREEN_READER, term.options.screenReaderMode ? "1" : "");
    notify(`Screen reader mode ${term.options.screenReaderMode ? "on" : "off"}`);
  }

  _addShortcuts() {
    return addShortcuts("Terminal", [
      { keys: "Ctrl+Shift+E", label: "Leave the terminal, to the list", run: () => this._leave() },
      { keys: "Ctrl+Shift+F", label: "Find in the output", run: () => this._find() },
      { keys: "Ctrl+Shift+C", label: "Copy the selection, or the screen", run: () => this._copy() },
      { keys: "Ctrl+Shift+V", label: "Paste" },
      { keys: "t", label: "Type: go to the terminal", run: () => this._emulator?.term.focus() },
      { keys: "o", label: "Output as text", run: () => this._toggleText() },
      { keys: "s", label: "Screen reader mode", run: () => this._toggleScreenReader() },
      { keys: "+", label: "Larger text", run: () => this._setFontSize(this._size() + 1) },
      { keys: "-", label: "Smaller text", run: () => this._setFontSize(this._size() - 1) },
    ]);
  }
}

function screenText(term) {
  const { active } = term.buffer;
  const lines = [];
  for (let y = 0; y < term.rows; y++) lines.push(active.getLine(active.viewportY + y)?.translateToString(true) ?? "");
  return lines.join("\n").replace(/\n+$/, "\n");
}
