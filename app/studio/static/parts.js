// Parts of a message beside its text: pictures, sounds, files, sources, and calls that a model's host ran itself.

import { make } from "/static/api.js";

const PICTURES = /^image\/(png|jpeg|gif|webp)$/;
const SOUNDS = /^audio\/(wav|x-wav|mpeg|mp3|ogg|flac|aac|mp4|webm|opus)$/;

function makeLink(url, text) {
  // A host chose the address: only pages are linked, and they learn nothing of this one.
  const isPage = /^https?:\/\//i.test(url ?? "");
  return isPage ? make("a", { href: url, rel: "noopener noreferrer nofollow", target: "_blank" }, text) : text;
}

function showSource(part) {
  const name = part.title || part.url || part.file_id || "source";
  return make("p", { class: "hint source" }, "Source: ", makeLink(part.url, name),
    part.text ? " " : null, part.text ? make("q", {}, part.text) : null);
}

function showHostCall(part) {
  const input = Object.entries(part.input ?? {});
  return make("details", { class: "host-call" },
    make("summary", {}, `The host ran ${part.tool}`, part.error ? ` (${part.error})` : ""),
    ...input.map(([name, value]) => make("div", {}, make("h3", {}, name),
      make("pre", { tabindex: "0" }, typeof value === "string" ? value : JSON.stringify(value, null, 2)))),
    part.output ? make("div", {}, make("h3", {}, "output"), make("pre", { tabindex: "0" }, part.output)) : null,
    ...(part.sources ?? []).map(showSource));
}

export function showPart(part) {
  if (part.type === "citation") {
    return showSource(part);
  }
  if (part.type === "host_call") {
    return showHostCall(part);
  }
  const name = part.name || part.media_type || part.file_id || part.type;
  const data = part.data ? `data:${part.media_type};base64,${part.data}` : "";
  if (data && PICTURES.test(part.media_type ?? "")) {
    return make("figure", {}, make("img", { src: data, alt: name }), make("figcaption", { class: "hint" }, name));
  }
  if (data && SOUNDS.test(part.media_type ?? "")) {
    return make("audio", { src: data, controls: true, "aria-label": name });
  }
  if (data) {
    const file = `data:application/octet-stream;base64,${part.data}`;
    return make("p", { class: "hint attachment" }, "File: ", make("a", { href: file, download: name }, name));
  }
  return make("p", { class: "hint attachment" }, `${part.type}: `, makeLink(part.url, part.url || name));
}

export function showParts(parts) {
  return (parts ?? []).filter((part) => part.type !== "text").map(showPart);
}
