// Starts the page: logs in, connects, and shows the view of the URL's fragment.
//
// A view module exports `mount(container, {rpc, store, navigate, params})`, which returns
// `unmount()`. A view module is loaded when its view is first shown. The list of terminals stays
// mounted: on a wide window it is beside a terminal or a session, otherwise alone on the page.
//
// The page of a share has one terminal, and no list, store or other view.

import { announce, confirm, notifyError } from "./dialog.js";
import { el, setText } from "./dom.js";
import { addShortcuts, showShortcuts, startShortcuts } from "./keys.js";
import { connect, login, logOut, readAccess, takeToken } from "./login.js";
import { showNotice } from "./notices.js";
import { announceQuestions } from "./questions.js";
import { Rpc } from "./rpc.js";
import { counts, Store } from "./store.js";
import { oneLine } from "./text.js";
import { title as titleOf } from "./words.js";

const VIEWS = {
  terminals: { title: "Terminals" },
  terminal: { title: "Terminal", load: () => import("./terminal.js"), withList: true },
  session: { title: "Session", load: () => import("./sessions.js"), withList: true },
  approvals: { title: "Approvals", load: () => import("./approvals.js") },
  audit: { title: "Audit", load: () => import("./audit.js") },
  recordings: { title: "Recordings", load: () => import("./recordings.js") },
  policy: { title: "Policy", load: () => import("./policy.js") },
};
const STATES = { open: "", closed: "disconnected" };
const FAILURES_BEFORE_CHECK = 3;
// The code with which the server closes the connections of a login when the login ends.
const LOGIN_ENDED = 1008;

const main = document.getElementById("main");
const listPane = document.getElementById("list");
const viewPane = document.getElementById("view");
const connection = document.getElementById("connection");
const helpButton = document.getElementById("help");
const logOutButton = document.getElementById("log-out");

const rpc = new Rpc(connect);
const store = new Store(rpc);
let unmount = () => {};
let current = null;
let wasOpen = false;
// Whether the login has ended: then the page only shows a notice.
let isEnded = false;

/** Show another view at once: `navigate("#/approvals")`. */
function navigate(hash) {
  location.hash = hash;
  moved();
}

function moved() {
  if (current?.hash !== location.hash) show({ isMoved: true });
}

/** Return the view and its params: "#/terminal/ID" is ["terminal", ["ID"]]. */
function route() {
  try {
    const [name, ...params] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
    if (Object.hasOwn(VIEWS, name)) return [name, params];
  } catch {
    // The encoding of the fragment is not valid.
  }
  return ["terminals", []];
}

/** Show the view of the fragment, which has changed if `isMoved`. */
async function show({ isMoved = false } = {}) {
  if (isEnded || (location.hash && !location.hash.startsWith("#/"))) return;
  const [name, params] = route();
  const view = VIEWS[name];
  const shown = (current = { name, params, hash: location.hash });
  unmount();
  unmount = () => {};
  viewPane.replaceChildren();
  main.dataset.view = name;
  listPane.hidden = !(name === "terminals" || view.withList);
  viewPane.hidden = name === "terminals";
  for (const link of document.querySelectorAll(".nav a")) {
    const isCurrent = link.dataset.view === name || (view.withList && link.dataset.view === "terminals");
    if (isCurrent) {
      link.setAttribute("aria-current", "page");
      const nav = link.parentElement;
      nav.scrollLeft = link.offsetLeft - nav.offsetLeft - (nav.clientWidth - link.offsetWidth) / 2;
    } else link.removeAttribute("aria-current");
  }
  showTitle();
  if (!view.load) return;
  try {
    const module = await view.load();
    if (current === shown) {
      unmount = module.mount(viewPane, { rpc, store, navigate, params }) ?? unmount;
      if (isMoved) keepFocus();
    }
  } catch (error) {
    console.error(error);
    if (current === shown) showNotice(viewPane, "failed", error.message);
  }
}

/** Move the focus into the view, if the element that had it is no longer shown. */
function keepFocus() {
  const focused = document.activeElement;
  if (focused && focused !== document.body && focused.checkVisibility()) return;
  const heading = viewPane.querySelector("h1");
  if (heading) heading.tabIndex = -1;
  (heading ?? main).focus({ preventScroll: true });
}

function showTitle() {
  if (isEnded) return;
  const { waiting, approvals } = counts(store.state);
  const total = waiting + approvals;
  const { name = "terminals", params = [] } = current ?? {};
  const terminal = name === "terminal" ? store.terminals.get(params[0]) : null;
  const title = terminal ? titleOf(terminal) : VIEWS[name].title;
  setText(document.querySelector("title"), `${total ? `(${total}) ` : ""}${title} – acpterm`);
  for (const [name, count] of Object.entries({ terminals: waiting, approvals })) {
    const badge = document.querySelector(`[data-count="${name}"]`);
    badge.hidden = count === 0;
    setText(badge, String(count));
    badge.setAttribute("aria-label", name === "terminals" ? `${count} waiting` : `${count} pending`);
  }
}

function showConnection(state) {
  if (isEnded) return;
  const text = STATES[state] ?? (wasOpen ? "reconnecting" : "connecting");
  if (state === "open" && wasOpen && connection.textContent) announce("connected again");
  wasOpen ||= state === "open";
  setText(connection, text);
  document.body.dataset.connection = state;
}

function announceEvent(event) {
  if (event.event !== "waiting" || !event.terminal || event.terminal.owner !== "agent") return;
  const name = event.terminal.name || event.terminal.command;
  announce(`${oneLine(event.terminal.agent ?? "agent", 40)}: ${oneLine(name, 60)} waits for input`);
}

function addPageShortcuts() {
  addShortcuts("Page", [
    { keys: "?", label: "Show this list", run: showShortcuts },
    { keys: "g t", label: "Terminals", run: () => navigate("#/") },
    { keys: "g p", label: "Pending approvals", run: () => navigate("#/approvals") },
    { keys: "g a", label: "Audit record", run: () => navigate("#/audit") },
    { keys: "g r", label: "Recordings", run: () => navigate("#/recordings") },
    { keys: "g y", label: "Policy", run: () => navigate("#/policy") },
  ]);
  startShortcuts();
  helpButton.hidden = false;
  helpButton.addEventListener("click", showShortcuts);
  logOutButton.hidden = false;
  logOutButton.addEventListener("click", askToLogOut);
}

function follow() {
  rpc.onState(showConnection);
  showConnection(rpc.state);
  window.addEventListener("online", () => rpc.hurry());
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) rpc.hurry();
  });
  document.querySelector(".skip-link").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  rpc.start();
}

/** While the connection fails, find out whether that is because the login has ended. */
function watchLogin(noticeName) {
  rpc.onState(async (state) => {
    const isDue = rpc.closeCode === LOGIN_ENDED || rpc.failures === FAILURES_BEFORE_CHECK;
    if (state !== "reconnecting" || !isDue) return;
    const access = await readAccess();
    if (access === "none" && !rpc.isOpen) end(noticeName);
  });
}

/** Show a notice instead of everything else, since the login has ended. */
function end(noticeName) {
  if (isEnded) return;
  isEnded = true;
  document.body.dataset.connection = "closed";
  rpc.close();
  unmount();
  unmount = () => {};
  current = null;
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  for (const element of [listPane, document.querySelector(".nav"), helpButton, logOutButton]) element.hidden = true;
  viewPane.hidden = false;
  setText(connection, "");
  setText(document.querySelector("title"), "acpterm");
  showNotice(viewPane, noticeName);
  keepFocus();
}

async function askToLogOut() {
  const isSure = await confirm({
    title: "Log out?",
    text: "All tabs of this browser lose the page. Terminals go on. To log in again you need another link, from acpterm open.",
    action: "Log out",
  });
  if (!isSure) return;
  try {
    await logOut();
    end("login");
  } catch (error) {
    notifyError(error);
  }
}

async function startShare(access) {
  const { startShare: mountShare } = await import("./share.js");
  setText(document.querySelector("title"), "Shared terminal – acpterm");
  document.querySelector(".brand").removeAttribute("href");
  main.dataset.view = "terminal";
  viewPane.hidden = false;
  startShortcuts();
  watchLogin("share");
  follow();
  unmount = mountShare(viewPane, { rpc, access, navigate });
}

async function startUser() {
  document.querySelector(".nav").hidden = false;
  addPageShortcuts();
  store.start();
  store.subscribe(showTitle);
  store.onEvent(announceEvent);
  announceQuestions(store);
  const { mount } = await import("./list.js");
  mount(listPane, { rpc, store, navigate });
  window.addEventListener("hashchange", moved);
  watchLogin("login");
  follow();
  await show();
}

async function start() {
  const isShare = location.pathname === "/share";
  const token = takeToken();
  let access;
  try {
    access = token === null ? await readAccess() : await login(token);
  } catch (error) {
    viewPane.hidden = false;
    showNotice(viewPane, isShare ? "share" : "refused", error.message);
    const isLoggedIn = !isShare && (await readAccess())?.access === "user";
    if (isLoggedIn) {
      const link = el("a", { href: "/" }, "This browser is logged in already: open the page");
      showNotice(viewPane, "refused", error.message, el("p", {}, link));
    }
    return;
  }
  if (access === "none") {
    viewPane.hidden = false;
    showNotice(viewPane, isShare ? "share" : "login");
  } else if (access === null && isShare) {
    viewPane.hidden = false;
    showNotice(viewPane, "failed");
  } else if (access?.access === "share") {
    history.replaceState(null, "", "/share");
    await startShare(access);
  } else {
    if (location.pathname !== "/") history.replaceState(null, "", `/${location.hash}`);
    await startUser();
  }
}

start();
