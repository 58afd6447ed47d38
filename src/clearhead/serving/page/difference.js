// Difference of two lists of words, by their longest common subsequence.
export const splitWords = (text) => text.split(/\s+/).filter(Boolean);

// Returns both lists as [word, isChanged] pairs.
export function compareWords(before, after) {
  // length[i][j]: length of the longest common subsequence of before[i:] and after[j:]
  const length = Array.from({ length: before.length + 1 }, () => new Array(after.length + 1).fill(0));
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) length[i][j] = before[i] === after[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  }
  const removed = [];
  const added = [];
  let [i, j] = [0, 0];
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) { removed.push([before[i], false]); added.push([after[j], false]); i += 1; j += 1; }
    else if (j >= after.length || (i < before.length && length[i + 1][j] >= length[i][j + 1])) { removed.push([before[i], true]); i += 1; }
    else { added.push([after[j], true]); j += 1; }
  }
  return { before: removed, after: added };
}
