// The input bar: source text, forced target, beam size and length penalty, or an image.
import { ApiError } from "../api.js";
import { el } from "../draw.js";
import { set, state } from "../store.js";

const RUN_LABELS = { translate: "Translate", generate: "Continue", classify: "Classify", tag: "Tag", fill: "Fill" };

function field(label, input, kind = "") { return el("label", { class: kind }, label, input); }

// Returns a PNG of the image with the size and the channels that the model expects.
async function fitToModel(app, file) {
  const { image_size: size, image_channels: channels } = app.model.config;
  const canvas = el("canvas", { width: size, height: size });
  const context = canvas.getContext("2d");
  context.fillRect(0, 0, size, size);
  context.drawImage(await createImageBitmap(file), 0, 0, size, size);
  if (channels === 1) {
    const image = context.getImageData(0, 0, size, size);
    for (let index = 0; index < image.data.length; index += 4) image.data.fill(Math.round(0.299 * image.data[index] + 0.587 * image.data[index + 1] + 0.114 * image.data[index + 2]), index, index + 3);
    context.putImageData(image, 0, 0);
  }
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

async function readImage(app, file) {
  let blob;
  try { blob = await fitToModel(app, file); } catch { app.showError(new ApiError({ code: "bad_image", message: "The browser cannot read this file as an image; choose a PNG." })); return; }
  const bytes = new Uint8Array(await blob.arrayBuffer());
  app.useImage(btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")));
}

// Returns the image that is shown until the user selects one: a white ring on black.
function exampleImage(app) {
  const size = app.model.config.image_size;
  const canvas = el("canvas", { width: size, height: size });
  const context = canvas.getContext("2d");
  context.fillStyle = "black";
  context.fillRect(0, 0, size, size);
  context.strokeStyle = "white";
  context.lineWidth = Math.max(1, size / 8);
  context.beginPath();
  context.ellipse(size / 2, size / 2, size * 0.26, size * 0.36, 0, 0, 7);
  context.stroke();
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

export function fillInputBar(form, app) {
  const { model } = app;
  if (model.reads_images) { fillImageBar(form, app); return; }
  const text = el("textarea", { rows: 1, id: "source", dir: "auto", spellcheck: "false", maxlength: 20000, value: state.text });
  const target = el("input", { id: "target", dir: "auto", value: state.target, placeholder: model.generates_text ? "optional; default: the output of the search" : "optional; default: the predicted label" });
  const beamSize = el("input", { id: "beam_size", type: "number", min: 1, max: 16, value: state.beam_size, placeholder: model.decoding.beam_size });
  const lengthPenalty = el("input", { id: "length_penalty", type: "number", min: 0, max: 10, step: 0.1, value: state.length_penalty, placeholder: model.decoding.length_penalty });
  const submit = (event) => {
    event?.preventDefault();
    const before = JSON.stringify([state.text, state.target, state.beam_size, state.length_penalty]);
    const values = { text: text.value, target: target.value, beam_size: beamSize.value, length_penalty: lengthPenalty.value };
    if (JSON.stringify(Object.values(values)) === before) app.run();
    else set({ ...values, tokens: "", prefix: "", hypothesis: "0" }, { remember: true });
  };
  text.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) submit(event); });
  form.onsubmit = submit;
  form.replaceChildren(
    field(model.task === "lm" ? "Prompt" : "Source", text, "wide"),
    ...(model.generates_text || model.config.head === "classification" ? [field(model.generates_text ? "Forced target" : "Forced label", target, "middle")] : []),
    ...(model.generates_text ? [field("Beam size", beamSize), field("Length penalty α", lengthPenalty)] : []),
    el("button", { type: "submit", class: "primary", id: "run" }, RUN_LABELS[model.command] ?? "Run"));
}

function fillImageBar(form, app) {
  const size = app.model.config.image_size;
  const file = el("input", { type: "file", accept: "image/*", id: "image" });
  file.addEventListener("change", () => { if (file.files.length) readImage(app, file.files[0]); });
  form.onsubmit = (event) => event.preventDefault();
  form.replaceChildren(field(`Image, scaled to ${size} × ${size}${app.model.config.image_channels === 1 ? " in grayscale" : ""}`, file, "wide"));
  if (app.image) form.append(el("img", { src: `data:image/png;base64,${app.image}`, width: 56, height: 56, alt: "Input image", class: "preview" }));
  if (!app.image) exampleImage(app).then((blob) => readImage(app, blob));
}
