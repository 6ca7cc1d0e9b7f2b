// What the pages ask of the server: the data of the view, and nothing of any other machine.

/** The server asks for a token, or does not know the one it was sent. */
export class TokenWanted extends Error {}

/** The server answered, and the answer is an error. */
export class Refused extends Error {
  /** @param {string} message @param {number} status @param {number} retryAfterS */
  constructor(message, status, retryAfterS) { super(message); this.status = status; this.retryAfterS = retryAfterS; }
}

const KEPT = "headway-token"; // the name under which other pages of this server keep it too

/** @typedef {ReturnType<typeof createAPI>} API */

/** Asks under base, which is relative to the page. @param {string} [base] */
export function createAPI(base = "api/v1/view/") {
  let token = "";
  try { token = sessionStorage.getItem(KEPT) ?? ""; } catch { /* a browser may forbid it */ }
  const given = takeToken();
  if (given) keep(given);

  /** @param {string} text */
  function keep(text) {
    token = text.trim();
    try { sessionStorage.setItem(KEPT, token); } catch { /* then it is asked for again */ }
  }

  /** @param {string} path @param {AbortSignal} [signal] @returns {Promise<Response>} */
  async function ask(path, signal) {
    if (/[^!-~]/.test(token)) throw new TokenWanted("The token has characters that no token has."); // no header takes it
    /** @type {Record<string, string>} */
    const headers = token ? { Authorization: "Bearer " + token } : {};
    const reply = await fetch(base + path, { headers, cache: "no-cache", signal });
    if (reply.status === 401) throw new TokenWanted(token ? "The token is not known." : "This server asks for a token. The link that headway run and headway view print has it; of a control plane, any role may look.");
    if (!reply.ok) throw new Refused(await complaint(reply), reply.status, Number(reply.headers.get("Retry-After")) || 0);
    return reply;
  }

  return {
    /** Whether a token is kept. */
    get hasToken() { return token !== ""; },
    /** Keeps a token in this tab. @param {string} text */
    setToken(text) { keep(text); },
    /** The whole answer at a path, for those who want its headers. @param {string} path @param {AbortSignal} [signal] */
    async response(path, signal) { return ask(path, signal); },
    /** The JSON at a path. @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
    async get(path, signal) { return (await ask(path, signal)).json(); },
    /** The bytes at a path. @param {string} path @param {AbortSignal} [signal] @returns {Promise<ArrayBuffer>} */
    async bytes(path, signal) { return (await ask(path, signal)).arrayBuffer(); },
    /**
     * Follows a stream of server-sent events until it ends. EventSource would do, but sends no header.
     * @param {string} path @param {(event: string, data: string) => void} take @param {AbortSignal} signal
     * @param {() => void} heard called for whatever comes, signs of life too
     */
    async follow(path, take, signal, heard) {
      const reply = await ask(path, signal);
      if (!reply.body) throw new Error("the browser gives no body to read from");
      const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
      const parse = eventParser(take);
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        heard();
        parse(part.value);
      }
    },
  };
}

/** Takes the token out of the page's address, where it has one: neither the history nor a copied address keeps it. @returns {string} */
export function takeToken() {
  const [route, query] = location.hash.split("?");
  const params = new URLSearchParams(query ?? "");
  const token = params.get("token") ?? "";
  if (!token) return "";
  params.delete("token");
  const rest = params.toString();
  history.replaceState(null, "", (route || "#/") + (rest ? "?" + rest : ""));
  return token;
}

/** The message of an error of the server's. @param {Response} reply */
async function complaint(reply) {
  try {
    const text = (await reply.json()).error.message;
    if (typeof text === "string" && text) return text;
  } catch { /* no body of ours */ }
  return "The server answered with status " + reply.status + ".";
}

/** Takes text in pieces, and gives whole events. @param {(event: string, data: string) => void} take */
export function eventParser(take) {
  let rest = "", event = "", data = "";
  return (/** @type {string} */ text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("data:")) data += (data ? "\n" : "") + line.slice(5).trimStart();
      else if (line === "") {
        if (data) take(event || "message", data);
        event = data = "";
      }
    }
  };
}
