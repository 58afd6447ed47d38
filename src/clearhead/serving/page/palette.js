// Colors of weights in the light and dark theme. Lightness in OKLCH changes in equal steps, so that equal differences of weight look equal.
export const isDark = () => document.documentElement.dataset.theme === "dark";

function fromOklch(lightness, chroma, hue) {
  const angle = (hue * Math.PI) / 180;
  const a = chroma * Math.cos(angle);
  const b = chroma * Math.sin(angle);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((c) => {
    const x = Math.min(1, Math.max(0, c));
    return Math.round(255 * (x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055));
  });
}

const mix = (from, to, share) => from + (to - from) * share;
const table = (make) => Array.from({ length: 256 }, (_, index) => make(index / 255));
const SEQUENTIAL = {
  light: table((x) => fromOklch(mix(0.975, 0.36, x), mix(0.008, 0.15, Math.sqrt(x)), mix(235, 268, x))),
  dark: table((x) => fromOklch(mix(0.255, 0.93, x), mix(0.03, 0.11, Math.sqrt(x)) * (x > 0.8 ? mix(1, 0.6, (x - 0.8) * 5) : 1), mix(268, 215, x))),
};
const DIVERGING = {
  light: table((x) => fromOklch(mix(0.97, 0.45, Math.abs(2 * x - 1)), 0.15 * Math.abs(2 * x - 1), x < 0.5 ? 45 : 262)),
  dark: table((x) => fromOklch(mix(0.27, 0.86, Math.abs(2 * x - 1)), 0.13 * Math.abs(2 * x - 1), x < 0.5 ? 55 : 240)),
};

const theme = () => (isDark() ? "dark" : "light");
const index = (x) => Math.min(255, Math.max(0, Math.round(255 * x)));
export const sequential = (x) => SEQUENTIAL[theme()][index(x)];
export const diverging = (x) => DIVERGING[theme()][index((x + 1) / 2)]; // from -1 to 1
// The same colors as 32-bit pixel values, with which a canvas needs one write per cell.
const pixels = (colors) => Uint32Array.from(colors, ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0);
const PIXELS = new Map([[sequential, { light: pixels(SEQUENTIAL.light), dark: pixels(SEQUENTIAL.dark) }], [diverging, { light: pixels(DIVERGING.light), dark: pixels(DIVERGING.dark) }]]);
export function painter(color = sequential) {
  const table = PIXELS.get(color)[theme()];
  return color === diverging ? (x) => table[index((x + 1) / 2)] : (x) => table[index(x)];
}
export const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;
// The value of a color variable of style.css; cached per theme, because getComputedStyle is slow.
const themeColors = {};
export const themeColor = (name) => (themeColors[`${theme()} ${name}`] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
// Black or white, whichever has the higher contrast (WCAG) to the color of the cell.
const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
export const textColorOn = ([r, g, b]) => (0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) > 0.179 ? "#000000" : "#ffffff");
