// What is gone and what is new between two lists of words: the longest common subsequence stays.
export function compareWords(before, after) {
  const length = Array.from({ length: before.length + 1 }, () => new Array(after.length + 1).fill(0));
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) length[i][j] = before[i] === after[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  }
  const old = [];
  const fresh = [];
  let [i, j] = [0, 0];
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) { old.push([before[i], false]); fresh.push([after[j], false]); i += 1; j += 1; }
    else if (j >= after.length || (i < before.length && length[i + 1][j] >= length[i][j + 1])) { old.push([before[i], true]); i += 1; }
    else { fresh.push([after[j], true]); j += 1; }
  }
  return { old, fresh };
}

export const words = (text) => text.split(/\s+/).filter(Boolean);
