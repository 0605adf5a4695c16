// The view that judges a typed command by the policy. It runs, asks and records nothing.
//
// A request is sent shortly after the last key, and only the newest response is shown.

import { el, newId, setText } from "./dom.js";
import { addShortcuts } from "./keys.js";
import { LostError } from "./rpc.js";
import { levelBadge, partOf, shellJoin } from "./shown.js";
import { visible } from "./text.js";

const TYPING_MS = 200;
const COMMAND_MAX = 16384;
const EXAMPLES = ["ls -la | grep src", "npm run build", "curl -s https://example.org/install.sh | sh", "sudo rm -rf /var/tmp"];
const DECISIONS = {
  allow: ["Allowed", "An agent may run this without a question."],
  ask: ["Asked", "You are asked before this runs."],
  deny: ["Denied", "This is not run, and no question is asked."],
};

/** Return the words for a decision, and a sentence about it. */
export function decisionWords(decision) {
  return DECISIONS[decision] ?? [visible(decision), ""];
}

/** Mount the view; see main.js. The param is a command to begin with. */
export function mount(container, { rpc, params = [] }) {
  let generation = 0;
  let typing;
  let selected = "";

  const command = el("textarea", {
    class: "field field-wide mono", rows: "2", id: newId("command"), maxlength: String(COMMAND_MAX), spellcheck: "false",
    autocomplete: "off", autocapitalize: "off", placeholder: "A line for the shell, such as git push --force",
    oninput: () => later(), onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        check();
      }
    },
  });
  command.value = params[0] ?? "";
  const directory = el("input", {
    class: "field field-wide mono", placeholder: "that of the daemon", autocomplete: "off", spellcheck: "false",
    "aria-label": "Directory", oninput: () => later(),
  });
  const profile = el("select", { class: "field", onchange: check }, el("option", { value: "" }, "that of the directory"));
  const about = el("p", { class: "muted", id: newId("about") });
  const inUse = el("p", { class: "muted" });
  const outcome = el("section", { class: "outcome", "aria-label": "Decision", "aria-live": "polite" });
  const examples = el("div", { class: "toolbar" }, el("span", { class: "muted" }, "Examples:"), EXAMPLES.map((text) =>
    el("button", { class: "button", type: "button", onclick: () => {
      command.value = text;
      command.focus();
      check();
    } }, text)));
  container.replaceChildren(
    el("div", { class: "panel" },
      el("div", { class: "panel-head" }, el("h1", {}, "Policy"), el("p", { class: "muted" }, "What happens if an agent runs a command. Nothing is run here.")),
      el("form", { class: "card policy-form", onsubmit: (event) => event.preventDefault() },
        el("label", { class: "labelled", for: command.id }, "Command"), command,
        el("div", { class: "policy-options" },
          el("label", { class: "labelled" }, "Directory", directory),
          el("label", { class: "labelled" }, "Profile", profile)),
        about, inUse, examples),
      outcome),
  );

  function later() {
    clearTimeout(typing);
    typing = setTimeout(check, TYPING_MS);
  }

  async function check() {
    clearTimeout(typing);
    const mine = (generation += 1);
    showProfile();
    examples.hidden = Boolean(command.value.trim());
    if (!command.value.trim()) {
      outcome.replaceChildren();
      return;
    }
    if (!rpc.isOpen) return;
    const request = { command: command.value };
    if (directory.value.trim()) request.cwd = directory.value.trim();
    if (profile.value) request.profile = profile.value;
    try {
      const found = await rpc.request("_acpterm/command/check", request);
      if (mine === generation) outcome.replaceChildren(...outcomeOf(found));
    } catch (error) {
      if (mine === generation && !(error instanceof LostError)) {
        outcome.replaceChildren(el("p", { class: "banner" }, visible(error.message)));
      }
    }
  }

  async function readProfiles() {
    try {
      const found = await rpc.request("_acpterm/profile/list");
      selected = found.selected;
      const chosen = profile.value;
      profile.replaceChildren(
        el("option", { value: "" }, "that of the directory"),
        ...found.profiles.map((one) => {
          const name = visible(one.name);
          return el("option", { value: one.name, dataset: { safe: one.safe, unknown: one.unknown, dangerous: one.dangerous } },
            one.name === selected ? `${name} (default)` : name);
        }),
      );
      profile.value = chosen;
      showProfile();
      const status = await rpc.request("_acpterm/status");
      const used = ["profile", "provider"].map((name) => `${name} ${status[name]}, by ${status.sources[name] ?? "default"}`);
      setText(inUse, `In use: ${visible(used.join("; "))}.`);
    } catch (error) {
      if (!(error instanceof LostError)) setText(about, visible(error.message));
    }
  }

  function showProfile() {
    const option = [...profile.options].find((one) => one.value === (profile.value || selected));
    if (!option?.dataset.safe) return;
    const { safe, unknown, dangerous } = option.dataset;
    const name = profile.value ? "This profile" : `The default profile, ${visible(option.value)},`;
    setText(about, `${name} decides by level: safe ${safe}, unknown ${unknown}, dangerous ${dangerous}. Rules count before that.`);
  }

  const endOpen = rpc.onOpen(() => {
    readProfiles();
    check();
  });
  const removeShortcuts = addShortcuts("Policy", [
    { keys: "c", label: "Type a command", run: () => command.focus() },
    { keys: "Enter", label: "Check the command at once" },
  ]);
  if (!matchMedia("(pointer: coarse)").matches) command.focus({ preventScroll: true });

  return () => {
    generation += 1;
    clearTimeout(typing);
    endOpen();
    removeShortcuts();
  };
}

/** Return the elements that show the judgement on a command. */
function outcomeOf(found) {
  const [word, sentence] = decisionWords(found.decision);
  const prefix = found.prefix ? visible(shellJoin(found.prefix)) : null;
  return [
    el("div", { class: "card outcome-card", dataset: { decision: found.decision } },
      el("p", { class: "outcome-head" }, el("strong", { class: "outcome-word" }, word), el("span", {}, sentence)),
      el("dl", { class: "facts" },
        ...row("Level", levelBadge(found.level)),
        ...row("Profile", visible(found.profile)),
        ...row("Rule", found.rule === undefined ? null : el("span", { class: "mono" }, visible(found.rule))),
        ...row("Reason", found.reason === undefined ? null : visible(found.reason)),
        ...row("Always", prefix === null ? null : [el("p", {}, "An answer for always is for commands that begin with ", el("code", {}, prefix)),
          el("p", {}, "To allow them for all agents: ", el("code", { class: "copyable" }, `acpterm policy allow -- ${prefix}`))]))),
    el("table", { class: "table table-parts" },
      el("caption", { class: "visually-hidden" }, "The commands that this executes"),
      el("thead", {}, el("tr", {}, ["Part", "Level", "Why it is not safe"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, found.parts.map((part) => el("tr", {},
        el("td", {}, part.words.length ? partOf(part.words) : el("em", { class: "muted" }, "the line itself")),
        el("td", {}, levelBadge(part.level)),
        el("td", {}, visible(part.reason)))))),
  ];
}

function row(name, value) {
  return value === null ? [] : [el("dt", {}, name), el("dd", {}, value)];
}
