// A short tour: one card a panel, which opens the panel that it explains.
import { button, el } from "../draw.js";

export function openTour(box, panels, set) {
  let at = 0;
  const show = () => {
    const panel = panels[at];
    set({ tab: panel.id });
    box.replaceChildren(el("h2", {}, panel.title), el("p", {}, panel.tour), el("p", { class: "quiet small" }, `${at + 1} of ${panels.length}`),
      el("div", { class: "row" }, button("Back", () => { at -= 1; show(); }, { disabled: at === 0 }),
        at < panels.length - 1 ? button("Next", () => { at += 1; show(); }, { class: "primary", id: "tour-next" }) : button("Done", () => box.close(), { class: "primary", id: "tour-done" }), el("span", { class: "grow" }), button("Close", () => box.close())));
    box.querySelector(".primary").focus();
  };
  box.showModal();
  show();
}
