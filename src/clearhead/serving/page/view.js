// What of a head is on show: its rows and columns with their names, special tokens hidden or not.
import { shown } from "./draw.js";

export function rowPlaces(trace, kind) { return kind === "encoder" ? trace.source : trace.inputs; }
export function columnPlaces(trace, kind) { return kind === "decoder" ? trace.inputs : trace.source; }

// A row of the encoder-decoder attention is a step: it is named after the piece that the step writes.
export function rowName(trace, kind, row) {
  return kind === "cross" ? `→${shown(trace.outputs[row].text)}` : shown(rowPlaces(trace, kind)[row].text);
}

export function visible(trace, kind, hide) {
  const pick = (places, hides) => places.map((_, index) => index).filter((index) => !(hides && places[index].is_special));
  return { rows: pick(rowPlaces(trace, kind), hide && kind === "encoder"), columns: pick(columnPlaces(trace, kind), hide) };
}

export function cut(record, { rows, columns }, hide) {
  const weights = rows.map((t) => {
    const row = columns.map((s) => record.weights[t][s]);
    const sum = row.reduce((one, other) => one + other, 0);
    return hide && sum > 0 ? row.map((weight) => weight / sum) : row;
  });
  return { weights, allowed: rows.map((t) => columns.map((s) => record.allowed[t][s])) };
}

export function strongest(trace, record, kind) {
  let best = [0, 0, -1];
  const places = columnPlaces(trace, kind);
  record.weights.forEach((row, t) => row.forEach((weight, s) => { if (!places[s].is_special && weight > best[2]) best = [t, s, weight]; }));
  return best.slice(0, 2);
}
