// A form made from a JSON Schema: one field for each property, JSON where a property has no field of its own.

import { make } from "/static/api.js";

let count = 0;

export function makeSchemaForm(schema, { submit, label, values = {} }) {
  const properties = Object.entries(schema?.properties ?? {});
  const required = new Set(schema?.required ?? []);
  const fields = properties.map(([name, property]) => makeField(name, property, required.has(name), values[name]));
  const problem = make("p", { class: "problem", role: "alert" });
  const form = make("form", {}, ...fields.map((field) => field.element), problem,
    make("button", { type: "submit" }, label));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
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
    }
  });
  return form;
}

function makeField(name, property, isRequired, value) {
  const id = `field-${++count}`;
  const [input, read] = makeInput(id, property ?? {}, isRequired, value);
  const note = property?.description ? make("p", { class: "hint", id: `${id}-note` }, property.description) : null;
  if (note) {
    input.setAttribute("aria-describedby", `${id}-note`);
  }
  const element = make("div", { class: "field" },
    make("label", { for: id }, isRequired ? `${name} (needed)` : name), input, note);
  const checked = () => {
    try {
      return read();
    } catch {
      throw new Error(`${name}: this is not JSON`);
    }
  };
  return { name, element, read: checked };
}

function makeInput(id, property, isRequired, value) {
  if (Array.isArray(property.enum)) {
    const options = property.enum.map((item) => make("option", { value: JSON.stringify(item),
      selected: item === value }, String(item)));
    const select = make("select", { id }, isRequired ? null : make("option", { value: "" }, "(none)"), ...options);
    return [select, () => (select.value ? JSON.parse(select.value) : undefined)];
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
    const isLong = typeof value === "string" && (value.length > 80 || value.includes("\n"));
    const input = isLong ? make("textarea", { id, rows: "4", required: isRequired }) :
      make("input", { id, type: "text", required: isRequired, autocomplete: "off" });
    input.value = value ?? "";
    return [input, () => (input.value === "" && !isRequired ? undefined : input.value)];
  }
  const area = make("textarea", { id, rows: "3", required: isRequired, placeholder: "JSON" });
  area.value = value === undefined ? "" : JSON.stringify(value, null, 2);
  return [area, () => (area.value.trim() === "" ? undefined : JSON.parse(area.value))];
}
