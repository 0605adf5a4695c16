// The recordings of terminals: their list, and the player.
//
// `#/recordings` is the list, `#/recordings/NAME` the player. A recording is read in pieces, until the
// user leaves the view. A recording that is still being written is played up to its present end.

import { CastError, CastParser } from "./cast.js";
import { el, newId, setText } from "./dom.js";
import { Emulator, loadLibraries } from "./emulator.js";
import { addShortcuts } from "./keys.js";
import { clampSize, Player, SPEED_MAX, SPEED_MIN } from "./player.js";
import { LostError } from "./rpc.js";
import { localTime } from "./shown.js";
import { oneLine, visible } from "./text.js";
import { duration, memory } from "./words.js";

const REFRESH_MS = 700;
const SKIP_S = 5;
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64];
const IDLE_LIMITS = { "": "Keep pauses", 5: "Cut pauses to 5 s", 2: "Cut pauses to 2 s", 1: "Cut pauses to 1 s" };
const DEFAULT_IDLE_S = "2";
// Sizes of the text in pixels, and the ratio of a character's width to the size.
const FONT_MAX = 15;
const FONT_MIN = 4;
const READABLE = 11;
const READABLE_MIN = 7;
const CHAR_WIDTH = 0.6021;
const LINE_HEIGHT = 1.22;
const FRAME_PX = 20;
// Resets an emulator, even if it shows the alternate screen.
const RESET = new TextEncoder().encode("\x1b[?1049l\x1bc");

/** Mount the view; see main.js. */
export function mount(container, context) {
  const [name] = context.params ?? [];
  return name ? mountPlayer(container, context, name) : mountList(container, context);
}

/** Return seconds in the form of a clock: "1:05", "1:00:05". */
export function clock(seconds) {
  const whole = Math.floor(seconds);
  const two = (number) => String(number).padStart(2, "0");
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

function mountList(container, { rpc, store }) {
  let timer;
  let isCurrent = true;
  const status = el("p", { class: "muted", role: "status" });
  const problem = el("p", { class: "banner", hidden: true });
  const body = el("tbody");
  const columns = ["Command", "Started", "Duration", "Owner", "Terminal", "Window", "Size"];
  const table = el("table", { class: "table table-recordings", "aria-label": "Recordings, the newest first", hidden: true },
    el("thead", {}, el("tr", {}, columns.map((text) => el("th", { scope: "col" }, text)))), body);
  const empty = el("div", { class: "empty", hidden: true }, "No recordings.");
  container.replaceChildren(
    el("div", { class: "panel panel-wide" },
      el("div", { class: "panel-head" }, el("h1", {}, "Recordings"), status), problem, empty, table),
  );

  async function read() {
    clearTimeout(timer);
    if (!rpc.isOpen) return;
    try {
      const found = await rpc.request("_acpterm/recording/list");
      if (isCurrent) show(found);
    } catch (error) {
      if (isCurrent && !(error instanceof LostError)) showProblem(error.message);
    }
  }

  function show({ recordings, omitted, enabled }) {
    const focused = document.activeElement?.closest?.("tr")?.dataset.name;
    body.replaceChildren(...recordings.map(rowOf));
    if (focused) [...body.rows].find((row) => row.dataset.name === focused)?.querySelector("a").focus({ preventScroll: true });
    const count = `${recordings.length} ${recordings.length === 1 ? "recording" : "recordings"}`;
    setText(status, omitted ? `${count}, and ${omitted} older ones` : count);
    table.hidden = recordings.length === 0;
    empty.hidden = recordings.length > 0;
    showProblem(enabled ? "" : "Terminals are not recorded: set record = true in the settings, and run acpterm restart.");
  }

  function showProblem(text) {
    problem.hidden = !text;
    setText(problem, text);
  }

  const endEvents = store.onEvent((event) => {
    if (["created", "exited", "released"].includes(event.event)) {
      clearTimeout(timer);
      timer = setTimeout(read, REFRESH_MS);
    }
  });
  const endOpen = rpc.onOpen(read);
  return () => {
    isCurrent = false;
    clearTimeout(timer);
    endEvents();
    endOpen();
  };
}

function rowOf(info) {
  const command = info.command === null ? "cannot be read" : oneLine(info.command, 300) || "-";
  const length = info.durationMs === null ? "-" : duration(info.durationMs / 1000);
  const id = info.terminalId.replace(/^term_/, "").slice(0, 8);
  return el("tr", { dataset: { name: info.name } },
    el("td", { class: "recording-command" },
      info.command === null ? el("span", { class: "muted" }, command)
        : el("a", { class: "mono", href: `#/recordings/${encodeURIComponent(info.name)}` }, command),
      info.recording ? el("span", { class: "badge badge-warn" }, "recording") : null),
    el("td", { class: "recording-started" }, localTime(info.startedAt) ?? "-"),
    el("td", { class: "recording-duration" }, length),
    el("td", { class: "recording-owner" }, info.owner),
    el("td", { class: "recording-terminal mono" }, visible(id)),
    el("td", { class: "recording-window" }, info.cols === null ? "-" : `${info.cols}x${info.rows}`),
    el("td", { class: "recording-size" }, memory(info.bytes)));
}

function mountPlayer(container, { rpc }, name) {
  const status = el("p", { class: "muted", role: "status" }, "Loading");
  const title = el("h1", {}, "Recording");
  const stage = el("div", { class: "player", tabindex: "-1", role: "group", "aria-label": "Player" });
  const player = el("div", { class: "panel panel-wide panel-player" },
    el("div", { class: "panel-head" }, el("a", { href: "#/recordings" }, "Recordings"), title, status), stage);
  container.replaceChildren(player);
  let isCurrent = true;
  let playback = null;

  async function start() {
    try {
      const cast = await readCast(rpc, name, () => isCurrent, (done) => setText(status, `Loading ${done} %`));
      if (!isCurrent) return;
      setText(title, oneLine(cast.header.title || name, 500));
      title.title = title.textContent;
      const when = cast.header.timestamp === null ? "" : localTime(cast.header.timestamp * 1000);
      const skipped = cast.unread ? `, ${cast.unread} damaged lines left out` : "";
      setText(status, `${when}${skipped}`);
      playback = await startPlayback(stage, cast, () => isCurrent);
      if (!isCurrent) playback?.end();
    } catch (error) {
      if (isCurrent) showFailure(error);
    }
  }

  function showFailure(error) {
    if (!(error instanceof CastError || error instanceof LostError) && error.code === undefined) console.error(error);
    setText(status, "");
    stage.replaceChildren(el("p", { class: "banner", role: "alert" }, visible(error.message)),
      el("button", { class: "button", type: "button", onclick: () => {
        stage.replaceChildren();
        start();
      } }, "Try again"));
  }

  // The first connection may not be open yet.
  let endOpen = () => {};
  let isStarted = false;
  endOpen = rpc.onOpen(() => {
    if (!isStarted) start();
    isStarted = true;
  });
  const removeShortcuts = addShortcuts("Player", [
    { keys: "Space", label: "Play or pause" },
    { keys: ".", label: "Show the next output, and pause" },
    { keys: "→", label: `${SKIP_S} seconds forward; ← back` },
    { keys: "↑", label: "Twice as fast; ↓ half as fast" },
    { keys: "Home", label: "To the start; End to the end" },
  ]);
  return () => {
    isCurrent = false;
    playback?.end();
    endOpen();
    removeShortcuts();
  };
}

/** Read a recording. `onProgress(percent)` is called after each piece. */
async function readCast(rpc, name, isCurrent, onProgress) {
  const parser = new CastParser();
  let offset = 0;
  while (isCurrent()) {
    const piece = await rpc.request("_acpterm/recording/read", { name, offset });
    parser.feed(piece.data);
    offset = piece.offset;
    onProgress(Math.min(100, Math.floor((100 * offset) / Math.max(1, piece.bytes))));
    if (!piece.data || offset >= piece.bytes) break;
  }
  parser.finish();
  return parser;
}

/** Build the player in `stage`; return `{end()}`, or undefined if the user has left the view. */
async function startPlayback(stage, cast, isCurrent) {
  await loadLibraries();
  if (!isCurrent()) return undefined;
  const screen = el("div", { class: "player-screen", role: "group", "aria-label": "Recorded screen" });

  const play = el("button", { class: "button button-primary player-play", type: "button" }, "Play");
  const position = el("input", { class: "player-position", type: "range", min: "0", step: "0.01", value: "0", "aria-label": "Position" });
  const time = el("span", { class: "player-time" });
  const speed = el("select", { class: "field", "aria-label": "Speed" },
    SPEEDS.map((value) => el("option", { value: String(value), selected: value === 1 }, `${value}×`)));
  const idle = el("select", { class: "field", "aria-label": "Pauses" },
    Object.entries(IDLE_LIMITS).map(([value, text]) => el("option", { value, selected: value === DEFAULT_IDLE_S }, text)));
  const whole = el("button", { class: "button", type: "button", "aria-pressed": "true", title: "Show all of the window, however small" }, "Fit");
  const marker = el("span", { class: "player-marker muted", role: "status" });
  const controls = el("div", { class: "toolbar player-controls" }, play, position, time, speed, idle, whole, marker);
  stage.replaceChildren(screen, controls);
  const options = { ...clampSize(cast.header), fontSize: FONT_MAX, scrollback: 0, disableStdin: true };
  const emulator = await Emulator.create(screen, options);
  const terminal = emulator.term;
  terminal.textarea.tabIndex = -1;
  terminal.attachCustomKeyEventHandler(() => false);
  const bytes = new TextEncoder();
  const player = new Player(cast, {
    write: (text) => new Promise((resolve) => emulator.write(bytes.encode(text), resolve)),
    // Unlike `term.reset()`, this takes effect after the output that is still being written.
    clear: () => emulator.paint(RESET),
    resize: ({ cols, rows }) => {
      terminal.resize(cols, rows);
      fit();
    },
  }, render);

  let isWhole = null;
  function fit() {
    const [width, height] = [stage.clientWidth - FRAME_PX, stage.clientHeight - controls.offsetHeight - FRAME_PX];
    const fitting = Math.min(width / (terminal.cols * CHAR_WIDTH), Math.max(height / (terminal.rows * LINE_HEIGHT), 0));
    // On a phone the text of a whole window is too small to read: show a part, unless the user chooses.
    isWhole ??= fitting >= READABLE_MIN;
    whole.setAttribute("aria-pressed", String(isWhole));
    const wanted = isWhole ? fitting : READABLE;
    const fontSize = Math.max(FONT_MIN, Math.min(FONT_MAX, Math.floor(4 * wanted) / 4));
    if (terminal.options.fontSize !== fontSize) terminal.options.fontSize = fontSize;
  }

  function render() {
    const text = player.isPlaying ? "Pause" : player.isAtEnd && player.duration > 0 ? "Again" : "Play";
    setText(play, text);
    if (Number(position.max) !== player.duration) position.max = String(player.duration);
    if (!isDragging) position.value = String(player.time);
    const words = `${clock(player.time)} of ${clock(player.duration)}`;
    setText(time, `${clock(player.time)} / ${clock(player.duration)}`);
    position.setAttribute("aria-valuetext", words);
    if (speed.value !== String(player.speed)) speed.value = String(player.speed);
    setText(marker, oneLine(player.marker, 120));
  }

  let isDragging = false;
  let isEnded = false;
  play.addEventListener("click", () => player.toggle());
  position.addEventListener("input", () => {
    isDragging = true;
    player.seek(Number(position.value));
  });
  position.addEventListener("change", () => {
    isDragging = false;
    render();
  });
  whole.addEventListener("click", () => {
    isWhole = !isWhole;
    fit();
  });
  speed.addEventListener("change", () => player.setSpeed(Number(speed.value)));
  idle.addEventListener("change", () => player.setIdleLimit(idle.value ? Number(idle.value) : Infinity));

  const keys = {
    " ": () => player.toggle(),
    ".": () => player.step(),
    ArrowRight: () => player.seek(player.time + SKIP_S),
    ArrowLeft: () => player.seek(player.time - SKIP_S),
    ArrowUp: () => player.setSpeed(Math.min(SPEED_MAX, player.speed * 2)),
    ArrowDown: () => player.setSpeed(Math.max(SPEED_MIN, player.speed / 2)),
    Home: () => player.seek(0),
    End: () => player.seek(player.duration),
  };
  stage.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || !(event.key in keys)) return;
    const { target } = event;
    if (target.matches("select") || (target.matches("button") && event.key === " ")) return;
    event.preventDefault();
    keys[event.key]();
  });
  screen.addEventListener("click", () => {
    if (!getSelection().toString()) play.focus();
  });

  const observer = new ResizeObserver(fit);
  observer.observe(stage);
  const frame = (now) => {
    if (isEnded) return;
    player.frame(now);
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  fit();
  player.setIdleLimit(Number(DEFAULT_IDLE_S));
  play.focus({ preventScroll: true });
  player.play();
  return {
    end: () => {
      isEnded = true;
      observer.disconnect();
      emulator.dispose();
    },
  };
}
