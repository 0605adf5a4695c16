// Logs this browser in with a one-use link, or with the link of a share.
//
// The link's token is in the URL's fragment, which is not sent to a server. It is exchanged for a
// cookie that scripts cannot read. Other ports of this host receive that cookie, too, so the server
// also requires a random key that only pages of this origin can read.
//
// A browser may have a login of the user and one of a share: opening the link of a share does not
// log the user out. The page of a share is at `/share`.

const KEY = "acpterm.key";
const SHARE_KEY = "acpterm.share-key";
const KEY_BYTES = 32;

/** Return the key of the login that this page uses; null if there is none. */
function storedKey() {
  return localStorage.getItem(keyName());
}

function keyName() {
  return location.pathname === "/share" ? SHARE_KEY : KEY;
}

/** Return a new WebSocket of the user API, with the key in its subprotocols. */
export function connect() {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const key = storedKey();
  const protocols = key ? ["acpterm", `acpterm.key.${key}`] : ["acpterm"];
  return new WebSocket(`${scheme}//${location.host}/user`, protocols);
}

/** Return the token in the page's URL, and remove it from the URL; null if there is none. */
export function takeToken() {
  if (!["/login", "/share"].includes(location.pathname)) return null;
  const token = location.hash.slice(1);
  if (!token || token.startsWith("/")) return null;
  history.replaceState(null, "", location.pathname);
  return token;
}

/** Exchange a token for a login; return the server's response. Reject with an Error if refused. */
export async function login(token) {
  const key = newKey();
  const response = await fetch("/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token, key }),
  });
  if (!response.ok) throw new Error((await response.text()).trim().slice(0, 300) || `status ${response.status}`);
  const access = await response.json();
  localStorage.setItem(access.access === "share" ? SHARE_KEY : KEY, key);
  return access;
}

/**
 * Return what this browser's login may use, as the server describes it; "none" if it has no login,
 * and null if the server cannot be reached.
 */
export async function readAccess() {
  const key = storedKey();
  if (!key) return "none";
  try {
    const response = await fetch("/access", { method: "POST", headers: { "X-Acpterm-Key": key } });
    if (response.status === 401 || response.status === 403) return "none";
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

/** End this browser's login. Reject with an Error if the server cannot end it. */
export async function logOut() {
  const response = await fetch("/logout", { method: "POST", headers: { "X-Acpterm-Key": storedKey() ?? "" } });
  // With status 401, the login had ended before.
  if (!response.ok && response.status !== 401) throw new Error(`status ${response.status}`);
  localStorage.removeItem(keyName());
}

function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(KEY_BYTES));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
