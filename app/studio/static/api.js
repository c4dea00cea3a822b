// Requests to the server, and building elements. Texts become text nodes: nothing is ever parsed as HTML.

export class ApiError extends Error {
  constructor(status, body) {
    super(body.message || errorText(body.error) || `HTTP ${status}`);
    this.status = status;
    this.body = body;
  }
}

function errorText(error) {
  return typeof error === "string" ? error : error?.message;
}

// A name for one request: whatever is sent twice under it is carried out once.
export function makeKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

let answer = null;

// In a file that is shared there is no server: this function answers in its place.
export function answerLocally(how) {
  answer = how;
}

export async function request(path, body, headers = {}) {
  if (answer) {
    return answer(path);
  }
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: JSON.stringify(body),
  };
  const response = await fetch(path, options);
  if (response.status === 401) {
    location.assign(`/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  const result = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw new ApiError(response.status, result);
  }
  return result;
}

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== undefined && value !== null) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// As `describe_decider` says in a terminal: a name without a signature is what whoever decided has given.
export function nameDecider(by, isSigned) {
  return by ? `${by}${isSigned === false ? " (unsigned)" : ""}` : "?";
}

export function showJson(value) {
  return make("pre", { tabindex: "0" }, typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

export function conversationPath(id, rest = "") {
  return `/api/conversations/${encodeURIComponent(id)}${rest}`;
}
