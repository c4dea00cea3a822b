// A form made from a JSON Schema: one field for each property, JSON where a property has no field of its own.
// The browser checks what the schema says about a field; the server checks everything.

import { make } from "/static/api.js";

let count = 0;

export function makeSchemaForm(schema, { submit, label, values = {} }) {
  const properties = Object.entries(schema?.properties ?? {});
  const required = new Set(schema?.required ?? []);
  const fields = properties.map(([name, property]) =>
    makeField(name, property, required.has(name), values[name] ?? property?.default));
  const problem = make("p", { class: "problem", role: "alert" });
  const form = make("form", {}, ...fields.map((field) => field.element), problem,
    make("button", { type: "submit" }, label));
  const button = form.querySelector("button[type=submit]");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (button.disabled) { // a second click, or Enter, while the first one is on its way
      return;
    }
    problem.textContent = "";
    button.disabled = true;
    const data = {};
    try {
      for (const field of fields) {
        const value = field.read();
        if (value !== undefined) {
          data[field.name] = value;
        }
      }
      await submit(data);
    } catch (error) {
      problem.textContent = error.message;
    } finally {
      button.disabled = false;
    }
  });
  return form;
}

function makeField(name, property, isRequired, value) {
  const id = `field-${++count}`;
  const title = `${property?.title ?? name}${isRequired ? " (needed)" : ""}`;
  const note = property?.description ? make("p", { class: "hint", id: `${id}-note` }, property.description) : null;
  if (isChoiceList(property)) {
    return makeChoices(name, id, title, note, property, value);
  }
  const [input, read] = makeInput(id, property ?? {}, isRequired, value);
  input.setAttribute("name", name);
  if (note) {
    input.setAttribute("aria-describedby", `${id}-note`);
  }
  const label = make("label", { for: id }, title);
  const element = property?.type === "boolean"
    ? make("div", { class: "field" }, make("div", { class: "row" }, input, label), note)
    : make("div", { class: "field" }, label, input, note);
  const checked = () => {
    try {
      return read();
    } catch {
      input.focus();
      throw new Error(`${property?.title ?? name}: this is not JSON`);
    }
  };
  return { name, element, read: checked };
}

// -- several of a list ---------------------------------------------------------------------------

function isChoiceList(property) {
  return property?.type === "array" && Array.isArray(property.items?.enum);
}

function makeChoices(name, id, title, note, property, value) {
  const chosen = new Set((Array.isArray(value) ? value : []).map((item) => JSON.stringify(item)));
  const boxes = property.items.enum.map((item, index) => make("input", { type: "checkbox", name, id: `${id}-${index}`,
    value: JSON.stringify(item), checked: chosen.has(JSON.stringify(item)) }));
  const rows = boxes.map((box, index) => make("div", { class: "row" }, box,
    make("label", { for: box.id }, String(property.items.enum[index]))));
  const element = make("fieldset", { class: "field", "aria-describedby": note ? `${id}-note` : null },
    make("legend", {}, title), ...rows, note);
  const read = () => boxes.filter((box) => box.checked).map((box) => JSON.parse(box.value));
  return { name, element, read };
}

// -- one value -----------------------------------------------------------------------------------

const INPUT_TYPES = { date: "date", email: "email", uri: "url", time: "time" };

function makeInput(id, property, isRequired, value) {
  if (Array.isArray(property.enum)) {
    return makeSelect(id, property, isRequired, value);
  }
  if (property.type === "boolean") {
    const box = make("input", { id, type: "checkbox", checked: value === true });
    return [box, () => (box.checked || isRequired || value !== undefined ? box.checked : undefined)];
  }
  if (property.type === "integer" || property.type === "number") {
    const step = property.type === "integer" ? "1" : "any";
    const input = make("input", { id, type: "number", step, required: isRequired, value,
      min: property.minimum, max: property.maximum });
    return [input, () => (input.value === "" ? undefined : Number(input.value))];
  }
  if (property.type === "string") {
    return makeText(id, property, isRequired, value);
  }
  const area = make("textarea", { id, rows: "3", required: isRequired, placeholder: "JSON" });
  area.value = value === undefined ? "" : JSON.stringify(value, null, 2);
  return [area, () => (area.value.trim() === "" ? undefined : JSON.parse(area.value))];
}

// Nothing is chosen beforehand, so that nobody sends a choice that was never made.
function makeSelect(id, property, isRequired, value) {
  const options = property.enum.map((item) => make("option", { value: JSON.stringify(item),
    selected: item === value }, String(item)));
  const select = make("select", { id, required: isRequired },
    make("option", { value: "" }, isRequired ? "choose..." : "(none)"), ...options);
  return [select, () => (select.value ? JSON.parse(select.value) : undefined)];
}

function makeText(id, property, isRequired, value) {
  const isLong = (typeof value === "string" && (value.length > 80 || value.includes("\n"))) || property.maxLength > 200;
  const limits = { minlength: property.minLength, maxlength: property.maxLength, required: isRequired };
  const input = isLong ? make("textarea", { id, rows: "4", ...limits }) :
    make("input", { id, type: INPUT_TYPES[property.format] ?? "text", autocomplete: "off", ...limits,
      // A pattern of a schema matches anywhere, that of an input the whole text.
      pattern: property.pattern ? `.*(?:${property.pattern}).*` : null, title: property.pattern ? `matches ${property.pattern}` : null });
  input.value = value ?? "";
  return [input, () => (input.value === "" && !isRequired ? undefined : input.value)];
}
