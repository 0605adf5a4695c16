// Sends what the user types into one terminal: in order, and nothing is lost in silence.
//
// One request is pending at a time; what is typed meanwhile goes into the next one. If the connection
// is lost, the request is repeated on the next one, with its token, by which the daemon knows it. What
// is typed without a connection is kept for `OUTAGE_MS`. Then it is dropped, and the user sees how
// much: it must not be typed hours later.

import { LostError } from "./rpc.js";

const OUTAGE_MS = 10000;
// Maximum of characters that were typed and not written yet; further ones are dropped, with a notice.
const UNWRITTEN_MAX = 1 << 20;
const WRITE_CHARACTERS = 16 << 10;

/** Return the index, at most `max`, at which text can be cut: not within a surrogate pair. */
export function cutAt(text, max) {
  if (text.length <= max) return text.length;
  return /[\ud800-\udbff]/.test(text[max - 1]) ? max + 1 : max;
}

function newToken() {
  return [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(16)).join("-");
}

export class Typing {
  /** `say(text)` shows a line to the user; an empty text removes it. */
  constructor(rpc, terminalId, say) {
    this._rpc = rpc;
    this._id = terminalId;
    this._say = say;
    // What was typed and not sent: `{data, encoding}`.
    this._queue = [];
    this._length = 0;
    this._request = null;
    this._isPending = false;
    this._isRefusing = false;
    this._ends = [rpc.onOpen(() => this._opened()), rpc.onState((state) => this._stateChanged(state))];
  }

  /** Type text; with the encoding "base64", `data` are bytes. */
  type(data, encoding) {
    if (this._isRefusing) {
      this._say("Not connected: what you type is not sent.");
      return;
    }
    if (this._length + data.length > UNWRITTEN_MAX) {
      this._say("The program does not read its input: what you type is dropped.");
      return;
    }
    this._length += data.length;
    const last = this._queue.at(-1);
    if (last && !encoding && !last.encoding) last.data += data;
    else this._queue.push({ data, encoding });
    if (!this._rpc.isOpen) this._say("Not connected: what you type is sent when the connection is back.");
    this._send();
  }

  /** Stop once everything was sent. */
  stop() {
    this._say = () => {};
    this._isStopped = true;
    if (!this._length) this._end();
  }

  _opened() {
    clearTimeout(this._outage);
    this._outage = undefined;
    if (this._isRefusing || this._length) this._say("");
    this._isRefusing = false;
    this._send();
  }

  _stateChanged(state) {
    if (state === "open") return;
    this._outage ??= setTimeout(() => {
      this._isRefusing = true;
      if (this._length) this._say(`Not connected: the last characters that you typed (${this._length}) were not sent.`);
      this._queue = [];
      this._request = null;
      this._length = 0;
      if (this._isStopped) this._end();
    }, OUTAGE_MS);
  }

  _end() {
    clearTimeout(this._outage);
    for (const end of this._ends) end();
  }

  async _send() {
    if (this._isPending || !this._rpc.isOpen) return;
    this._request ??= this._next();
    const request = this._request;
    if (!request) {
      if (this._isStopped) this._end();
      return;
    }
    this._isPending = true;
    try {
      await this._rpc.request("_acpterm/terminal/write", request);
      this._written(request);
    } catch (error) {
      if (!(error instanceof LostError)) {
        this._written(request);
        this._say(error.message);
      }
    }
    this._isPending = false;
    this._send();
  }

  _written(request) {
    if (request !== this._request) return;
    this._request = null;
    this._length -= request.data.length;
  }

  /** Return the next request, or null. */
  _next() {
    const first = this._queue.shift();
    if (!first) return null;
    const end = first.encoding ? first.data.length : cutAt(first.data, WRITE_CHARACTERS);
    if (end < first.data.length) this._queue.unshift({ data: first.data.slice(end) });
    const { encoding } = first;
    return { terminalId: this._id, token: newToken(), data: first.data.slice(0, end), ...(encoding && { encoding }) };
  }
}
