"use strict";
// A closer look at a part of a figure: by dragging over it, or by + and −. Everything drawn keeps its place in the
// pixels of the whole; a view says which of these fill the frame.
const closer = (() => {
  const LEAST = 8; // pixels that a drag takes at least, or it was none
  const CLOSEST = 1 / 400; // of the whole
  const SVG = "http://www.w3.org/2000/svg";
  const all = (selector, root) => [...root.querySelectorAll(selector)];
  const node = (name, attributes, text = "") => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };

  const scale = (told) => {
    const [low, high, log, begin, end] = told.split(" ").map(Number);
    const bent = log ? Math.log : (value) => value;
    const share = (bent(high) - bent(low)) / (end - begin);
    const value = (place) => (log ? Math.exp : (it) => it)(bent(low) + (place - begin) * share);
    return { log, begin, end, value, place: (it) => begin + (bent(it) - bent(low)) / share };
  };

  const even = (low, high, most) => {
    const rough = (high - low) / most;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((it) => it >= rough * (1 - 1e-9));
    const found = [];
    for (let turn = Math.ceil(low / step - 1e-9); turn * step <= high + 1e-9 * step; turn++) found.push(turn * step);
    return found.map((value) => [value, step]);
  };
  const ticks = (log, low, high, most) => {
    const decades = log ? Math.log10(high / low) : 0;
    if (decades <= 0.9) return even(low, high, most);
    const found = [];
    const every = decades > 2.5 ? Math.ceil(decades / most) : 1;
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += every)
      for (const factor of decades > 2.5 ? [1] : [1, 2, 5]) found.push([factor * 10 ** power, 10 ** power]);
    return found.filter(([value]) => value >= low && value <= high);
  };
  const written = (value, step) => {
    const size = Math.abs(value);
    const fixed = (unit) => (value / unit).toFixed(Math.max(0, Math.round(Math.log10(unit)) - Math.floor(Math.log10(step) + 1e-9)));
    if (size >= 1e9) {
      const power = Math.floor(Math.log10(size) + 1e-9);
      const raised = [...String(power)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");
      return `${fixed(10 ** power)}·10${raised}`;
    }
    const [unit, letter] = size >= 1e6 ? [1e6, "M"] : size >= 1e3 ? [1e3, "k"] : [1, ""];
    return fixed(unit).replace("-", "−") + letter;
  };

  return (plot, changed) => {
    const axes = { x: scale(plot.dataset.x), y: scale(plot.dataset.y) };
    const names = ["x", "y"];
    const whole = () => ({ x: [axes.x.begin, axes.x.end], y: [axes.y.begin, axes.y.end] });
    const window = `url(#${plot.querySelector("clipPath").id})`;
    const parts = all("g[data-part]", plot).map((part) => [part, part.getAttribute("clip-path")]);
    const shapes = all(".ink:not(.mark)", plot);
    const marks = all(".mark", plot).map((mark) => [mark, mark.getAttribute("transform").match(/-?[\d.]+/g).map(Number)]);
    const heights = all(".height", plot).map((text) => [text, names.map((name) => Number(text.getAttribute(name)))]);
    const rulers = all(".grid, .tick", plot);
    const drawn = node("g", {});
    plot.querySelector(".axis").before(drawn);
    const lasso = node("rect", { class: "lasso" });
    let view = whole();
    let from = null;

    const close = () => names.some((name) => Math.abs(view[name][1] - view[name][0]) < Math.abs(axes[name].end - axes[name].begin) - 0.01);
    const inside = (name, place) => (place - axes[name].begin) * (place - axes[name].end) <= 0.1;
    const rule = (name) => {
      const { log, value, begin, end, place } = axes[name];
      const ends = view[name].map(value);
      const turn = (end - begin) / (view[name][1] - view[name][0]);
      const [left, right] = [axes.x.begin, axes.x.end];
      const [bottom, top] = [axes.y.begin, axes.y.end];
      return ticks(log, Math.min(...ends), Math.max(...ends), 6).flatMap(([it, step]) => {
        const at = begin + (place(it) - view[name][0]) * turn;
        const text = written(it, step);
        return name === "x"
          ? [
              node("line", { class: "grid", x1: at, x2: at, y1: top, y2: bottom }),
              node("text", { class: "tick", x: at, y: bottom + 20, "text-anchor": "middle" }, text),
            ]
          : [
              node("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }),
              node("text", { class: "tick", x: left - 8, y: at, dy: "0.35em", "text-anchor": "end" }, text),
            ];
      });
    };
    const draw = () => {
      const near = close();
      const [sx, sy] = names.map((name) => (axes[name].end - axes[name].begin) / (view[name][1] - view[name][0]));
      const [tx, ty] = [axes.x.begin - view.x[0] * sx, axes.y.begin - view.y[0] * sy];
      const placed = (one, [x, y], put) => {
        const [right, down] = [x * sx + tx, y * sy + ty];
        put(right, down);
        one.classList.toggle("out", near && !(inside("x", right) && inside("y", down)));
      };
      for (const shape of shapes) {
        if (near) shape.setAttribute("transform", `matrix(${sx} 0 0 ${sy} ${tx} ${ty})`);
        else shape.removeAttribute("transform");
      }
      for (const [mark, home] of marks) placed(mark, home, (x, y) => mark.setAttribute("transform", `translate(${x} ${y})`));
      for (const [text, home] of heights)
        placed(text, home, (x, y) => {
          text.setAttribute("x", x);
          text.setAttribute("y", y);
        });
      for (const [part, clip] of parts) {
        if (near || clip) part.setAttribute("clip-path", near ? window : clip);
        else part.removeAttribute("clip-path");
      }
      for (const ruler of rulers) ruler.classList.toggle("out", near);
      drawn.replaceChildren(...(near ? names.flatMap(rule) : []));
      plot.classList.toggle("close", near);
      changed(near);
    };

    const bounded = (name, [one, other]) => {
      const { begin, end } = axes[name];
      const span = Math.max(CLOSEST * Math.abs(end - begin), Math.min(Math.abs(end - begin), Math.abs(other - one)));
      const [low, high] = [Math.min(begin, end), Math.max(begin, end)];
      const middle = Math.min(high - span / 2, Math.max(low + span / 2, (one + other) / 2));
      return end > begin ? [middle - span / 2, middle + span / 2] : [middle + span / 2, middle - span / 2];
    };
    const look = (wanted) => {
      for (const name of names) view[name] = bounded(name, wanted[name]);
      draw();
    };
    const reset = () => look(whole());
    const here = (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(plot.getScreenCTM().inverse());
      return names.map((name) => {
        const { begin, end } = axes[name];
        return Math.max(Math.min(begin, end), Math.min(Math.max(begin, end), point[name]));
      });
    };
    /** The view of what stands at places of the frame now. */
    const under = (name, ends) => {
      const { begin, end } = axes[name];
      return ends.map((place) => view[name][0] + ((place - begin) / (end - begin)) * (view[name][1] - view[name][0]));
    };
    const drop = () => {
      from = null;
      lasso.remove();
    };
    const spanned = (to) => names.map((name, at) => (Math.abs(to[at] - from[at]) < LEAST ? [axes[name].begin, axes[name].end] : [from[at], to[at]]));

    plot.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "touch" && event.button === 0) from = here(event); // a finger scrolls the page
    });
    plot.addEventListener("pointermove", (event) => {
      if (!from) return;
      const to = here(event);
      if (Math.hypot(to[0] - from[0], to[1] - from[1]) < LEAST) return;
      plot.setPointerCapture(event.pointerId);
      const [x, y] = spanned(to).map((ends) => [Math.min(...ends), Math.abs(ends[1] - ends[0])]);
      for (const [key, value] of Object.entries({ x: x[0], y: y[0], width: x[1], height: y[1] })) lasso.setAttribute(key, value);
      plot.append(lasso);
    });
    plot.addEventListener("pointerup", (event) => {
      if (from && lasso.isConnected) {
        const [x, y] = spanned(here(event));
        const turned = (name, ends) => under(name, ends.sort((a, b) => (axes[name].end > axes[name].begin ? a - b : b - a)));
        look({ x: turned("x", x), y: turned("y", y) });
      }
      drop();
    });
    plot.addEventListener("pointercancel", drop);
    plot.addEventListener("dblclick", reset);

    const keys = { "+": 0.5, "=": 0.5, "-": 2, "−": 2 };
    const pans = { ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", 1], ArrowDown: ["y", -1] };
    /** Whether the key was one of ours; `mark` is what is looked at closer, or the middle of the view. */
    const key = (event, mark) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return false;
      if (event.key === "Escape" && lasso.isConnected) drop();
      else if (event.key === "0") reset();
      else if (event.key in keys) {
        const home = marks.find(([one]) => one === mark)?.[1];
        const around = (name, at) => {
          const [one, other] = view[name];
          const middle = home && event.key !== "-" ? home[at] : (one + other) / 2;
          const half = ((other - one) / 2) * keys[event.key];
          return [middle - half, middle + half];
        };
        look({ x: around("x", 0), y: around("y", 1) });
      } else if (event.shiftKey && event.key in pans) {
        const [name, turn] = pans[event.key];
        const by = (turn * (view[name][1] - view[name][0])) / 4;
        look({ ...view, [name]: view[name].map((place) => place + by) });
      } else return false;
      return true;
    };
    return { key, reset, busy: () => lasso.isConnected };
  };
})();
