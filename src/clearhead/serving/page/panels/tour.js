// The tour: a dialog that opens one panel after the other and explains it.
import { button, el } from "../draw.js";

export function openTour(dialog, panels, set) {
  let current = 0;
  const show = () => {
    const panel = panels[current];
    set({ tab: panel.id });
    dialog.replaceChildren(el("h2", {}, panel.title), el("p", {}, panel.tour), el("p", { class: "quiet small" }, `${current + 1} of ${panels.length}`),
      el("div", { class: "row" }, button("Back", () => { current -= 1; show(); }, { disabled: current === 0 }),
        current < panels.length - 1 ? button("Next", () => { current += 1; show(); }, { class: "primary", id: "tour-next" }) : button("Done", () => dialog.close(), { class: "primary", id: "tour-done" }), el("span", { class: "grow" }), button("Close", () => dialog.close())));
    dialog.querySelector(".primary").focus();
  };
  dialog.showModal();
  show();
}
