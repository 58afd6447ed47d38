// Panel 1: what to look at. The source, a target to force, beam size and length penalty; or a picture.
import { Problem } from "../api.js";
import { el } from "../draw.js";
import { set, state } from "../store.js";

function field(label, input, kind = "") { return el("label", { class: kind }, label, input); }

// A picture as the model takes it: of its size, and grey if it sees no colours.
async function fitted(app, file) {
  const { image_size: size, channels } = app.card.config;
  const canvas = el("canvas", { width: size, height: size });
  const context = canvas.getContext("2d");
  context.fillRect(0, 0, size, size);
  context.drawImage(await createImageBitmap(file), 0, 0, size, size);
  if (channels === 1) {
    const image = context.getImageData(0, 0, size, size);
    for (let at = 0; at < image.data.length; at += 4) image.data.fill(Math.round(0.299 * image.data[at] + 0.587 * image.data[at + 1] + 0.114 * image.data[at + 2]), at, at + 3);
    context.putImageData(image, 0, 0);
  }
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

async function readPicture(app, file) {
  let blob;
  try { blob = await fitted(app, file); } catch { app.fail(new Problem({ code: "bad_picture", message: "This file is no picture that the browser can read; choose a PNG." })); return; }
  const bytes = new Uint8Array(await blob.arrayBuffer());
  app.usePicture(btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")));
}

// A ring, so that there is something to look at before anyone has chosen a picture.
function examplePicture(app) {
  const size = app.card.config.image_size;
  const canvas = el("canvas", { width: size, height: size });
  const context = canvas.getContext("2d");
  context.fillStyle = "black";
  context.fillRect(0, 0, size, size);
  context.strokeStyle = "white";
  context.lineWidth = Math.max(1, size / 8);
  context.beginPath();
  context.ellipse(size / 2, size / 2, size * 0.26, size * 0.36, 0, 0, 7);
  context.stroke();
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

export function fillBar(form, app) {
  const { card } = app;
  if (card.reads_images) { pictureBar(form, app); return; }
  const text = el("textarea", { rows: 1, id: "source", dir: "auto", spellcheck: "false", maxlength: 20000, value: state.text });
  const target = el("input", { id: "target", dir: "auto", value: state.target, placeholder: card.writes ? "leave empty: found by search" : "a label, or empty" });
  const beamSize = el("input", { id: "beam_size", type: "number", min: 1, max: 16, value: state.beam_size, placeholder: card.decoding.beam_size });
  const lengthPenalty = el("input", { id: "length_penalty", type: "number", min: 0, max: 10, step: 0.1, value: state.length_penalty, placeholder: card.decoding.length_penalty });
  const submit = (event) => {
    event?.preventDefault();
    const before = JSON.stringify([state.text, state.target, state.beam_size, state.length_penalty]);
    const wanted = { text: text.value, target: target.value, beam_size: beamSize.value, length_penalty: lengthPenalty.value };
    if (JSON.stringify(Object.values(wanted)) === before) app.run();
    else set({ ...wanted, tokens: "", prefix: "", hypothesis: "0" }, { remember: true });
  };
  text.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) submit(event); });
  form.onsubmit = submit;
  form.replaceChildren(
    field(card.task === "lm" ? "Prompt" : "Source", text, "wide"),
    ...(card.writes || card.config.head === "classification" ? [field(card.writes ? "Forced target" : "Asked label", target, "middle")] : []),
    ...(card.writes ? [field("Beam size", beamSize), field("Length penalty α", lengthPenalty)] : []),
    el("button", { type: "submit", class: "primary", id: "run" }, { translate: "Translate", generate: "Write on", classify: "Classify", tag: "Tag", fill: "Fill" }[card.verb] ?? "Run"));
}

function pictureBar(form, app) {
  const size = app.card.config.image_size;
  const file = el("input", { type: "file", accept: "image/*", id: "picture" });
  file.addEventListener("change", () => { if (file.files.length) readPicture(app, file.files[0]); });
  form.onsubmit = (event) => event.preventDefault();
  form.replaceChildren(field(`Picture; it is scaled to ${size} × ${size}${app.card.config.image_channels === 1 ? " in grey" : ""}`, file, "wide"));
  if (app.picture) form.append(el("img", { src: `data:image/png;base64,${app.picture}`, width: 56, height: 56, alt: "The picture that is read", class: "preview" }));
  if (!app.picture) examplePicture(app).then((blob) => readPicture(app, blob));
}
