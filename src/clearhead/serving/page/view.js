// The displayed rows and columns of a head and their names.
import { displayText } from "./draw.js";

export function queryPositions(trace, kind) { return kind === "encoder" ? trace.source : trace.inputs; }
export function keyPositions(trace, kind) { return kind === "decoder" ? trace.inputs : trace.source; }

// The name of a row. In encoder-decoder attention it is the token that the decoding step predicts.
export function rowName(trace, kind, row) {
  return kind === "cross" ? `→${displayText(trace.outputs[row].text)}` : displayText(queryPositions(trace, kind)[row].text);
}

// The start token is hidden as a key, but not as a query of the decoder, because its row predicts the first token.
export function visibleCells(trace, kind, hideSpecial) {
  const indexes = (positions, hides) => positions.map((_, index) => index).filter((index) => !(hides && positions[index].is_special));
  return { rows: indexes(queryPositions(trace, kind), hideSpecial && kind === "encoder"), columns: indexes(keyPositions(trace, kind), hideSpecial) };
}

export function selectCells(record, { rows, columns }, renormalize) {
  const weights = rows.map((t) => {
    const row = columns.map((s) => record.weights[t][s]);
    const sum = row.reduce((total, weight) => total + weight, 0);
    return renormalize && sum > 0 ? row.map((weight) => weight / sum) : row;
  });
  return { weights, allowed: rows.map((t) => columns.map((s) => record.allowed[t][s])) };
}

// Returns the cell with the largest weight on a key that is not a special token.
export function strongestCell(trace, record, kind) {
  let best = [0, 0, -1];
  const keys = keyPositions(trace, kind);
  record.weights.forEach((row, t) => row.forEach((weight, s) => { if (!keys[s].is_special && weight > best[2]) best = [t, s, weight]; }));
  return best.slice(0, 2);
}
