// The page is whole without this script. It adds: what a mark is, under the pointer or by the arrow keys; one run
// picked out in every figure and in the table; one part of a figure picked out by its legend; a closer look at a part
// of a figure; tables that sort.
(() => {
  const NEAR = 28; // pixels within which the pointer finds a mark
  const tip = document.getElementById("tip");
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  const said = new Map();
  for (const title of all(".plot .mark > title")) {
    said.set(title.parentNode, title.textContent);
    title.remove(); // or the browser would show it a second time
  }

  const pick = (run) => {
    for (const old of all(".here")) old.classList.remove("here");
    if (run) for (const one of all(`[data-run="${CSS.escape(run)}"]`)) one.classList.add("here");
  };
  const hide = () => {
    tip.replaceChildren();
    pick(null);
  };
  const show = (mark) => {
    const [who, ...values] = said.get(mark).split(": ");
    const name = document.createElement("b");
    name.textContent = values.length ? who : "";
    tip.replaceChildren(name, values.length ? values.join(": ") : who);
    pick(mark.dataset.run);
    mark.classList.add("here");
    const box = mark.getBoundingClientRect();
    const left = Math.min(box.right + 10, innerWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above > 8 ? above : box.bottom + 8}px`;
  };

  for (const plot of all(".plot")) {
    const marks = all(".mark", plot);
    let at = -1;
    const back = document.createElement("button");
    back.type = "button";
    back.className = "back";
    back.textContent = "Whole figure";
    back.hidden = true;
    (plot.parentNode.querySelector(".legend") ?? plot.parentNode).append(back);
    const near = closer(plot, (close) => {
      back.hidden = !close;
      hide();
    });
    back.addEventListener("click", () => {
      near.reset();
      plot.focus(); // the button is gone
    });
    const middle = (mark) => {
      const box = mark.getBoundingClientRect();
      return [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
    };
    const nearest = (event) => {
      let best = -1;
      let least = NEAR;
      marks.forEach((mark, place) => {
        if (mark.classList.contains("out")) return;
        const [x, y] = middle(mark);
        const away = Math.hypot(event.clientX - x, event.clientY - y);
        if (away < least) [best, least] = [place, away];
      });
      return best;
    };
    const look = (event) => {
      if (near.busy()) return hide();
      at = nearest(event);
      if (at < 0) hide();
      else show(marks[at]);
    };
    plot.addEventListener("pointermove", look);
    plot.addEventListener("pointerdown", look);
    plot.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      if (near.key(event, marks[at])) return event.preventDefault();
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      if (event.key === "Escape") hide();
      if (!(event.key in steps) || !marks.length) return;
      event.preventDefault();
      const seen = [...marks.keys()].filter((place) => !marks[place].classList.contains("out"));
      if (!seen.length) return;
      const order = seen.map((place) => [middle(marks[place])[0], place]).sort((a, b) => a[0] - b[0]);
      const now = order.findIndex(([, place]) => place === at);
      at = order[(now + steps[event.key] + order.length) % order.length][1];
      show(marks[at]);
    });
  }

  const first = document.querySelector(".gallery");
  if (first) {
    const hint = document.createElement("p");
    hint.className = "quiet hint";
    hint.textContent =
      "Drag over a part of a figure to see it closer; a double click shows the whole. By keys: arrows walk along the " +
      "marks, + and − look closer and farther, Shift and arrows move, 0 shows the whole.";
    first.before(hint);
  }

  for (const panel of all(".panel")) {
    const plot = panel.querySelector(".plot");
    for (const entry of all(".legend li", panel)) {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "false");
      button.append(...entry.childNodes);
      entry.append(button);
      const light = () => {
        const held = all('.legend button[aria-pressed="true"]', panel).map((one) => one.parentNode);
        const chosen = entry.matches(":hover") || !held.length ? [entry] : held;
        const one = entry.matches(":hover") || held.length;
        plot.classList.toggle("dim", Boolean(one));
        for (const ink of all(".ink", plot)) {
          const mine = ({ dataset: { part, colour } }) =>
            ink.closest("[data-part]").dataset.part === part || (colour && ink.classList.contains(colour));
          ink.classList.toggle("on", chosen.some(mine));
        }
      };
      entry.addEventListener("pointerenter", light);
      entry.addEventListener("pointerleave", light);
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") === "false"));
        light();
      });
    }
  }

  for (const row of all("tr[data-run]")) {
    row.addEventListener("pointerenter", () => pick(row.dataset.run));
    row.addEventListener("pointerleave", () => pick(null));
  }

  for (const table of all("table.sorts")) {
    const body = table.tBodies[0];
    all("thead th", table).forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      const value = (row) => {
        const told = row.cells[column].dataset.value ?? row.cells[column].textContent;
        return told === "" ? NaN : Number(told);
      };
      const text = (row) => row.cells[column].textContent;
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of all("thead th", table)) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const words = head.classList.contains("words");
        const turn = up ? 1 : -1;
        const known = words ? [] : [...body.rows].filter((row) => !Number.isNaN(value(row)));
        const rest = [...body.rows].filter((row) => !known.includes(row));
        known.sort((a, b) => turn * (value(a) - value(b)));
        if (words) rest.sort((a, b) => turn * text(a).localeCompare(text(b), undefined, { numeric: true }));
        body.append(...known, ...rest); // what has no value stands last, whichever the order
      });
    });
  }
})();
