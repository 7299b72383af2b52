// Heads by layer as small maps; the chosen one large, and as lines from each query (left) to the keys that it weighs.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const FAINT = 0.02; // a lighter line is not drawn
  const ROW = 16, WIDE = 150, BETWEEN = 190; // pixels of a token's line, of a column of tokens, and between the two

  for (const map of data.maps) {
    map.bytes = Uint8Array.from(atob(map.levels), (letter) => letter.charCodeAt(0));
    map.of = (head, row, column) => {
      const [, t, s] = map.shape;
      return map.bytes[(head * t + row) * s + column] / 255;
    };
  }

  const ink = () => {
    const probe = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
    return [1, 3, 5].map((at) => parseInt(probe.slice(at, at + 2), 16));
  };

  const paint = (canvas, map, head) => {
    const [, t, s] = map.shape;
    canvas.width = s;
    canvas.height = t;
    const image = new ImageData(s, t), [red, green, blue] = ink();
    for (let at = 0; at < t * s; at++) {
      const weight = map.bytes[head * t * s + at];
      image.data.set([red, green, blue, Math.round(255 * Math.sqrt(weight / 255))], 4 * at);
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
  };

  let layer = 0, head = 0;
  const buttons = data.maps.map(() => []);

  const overview = element("overview");
  const most = Math.max(...data.maps.map((map) => map.shape[0]));
  overview.style.setProperty("grid-template-columns", `max-content repeat(${most}, 48px)`);
  data.maps.forEach((map, row) => {
    const name = document.createElement("span");
    name.textContent = map.name;
    name.style.setProperty("grid-column", "1");
    overview.append(name);
    for (let column = 0; column < map.shape[0]; column++) {
      const button = document.createElement("button"), canvas = document.createElement("canvas");
      button.setAttribute("aria-label", `layer ${map.name}, head ${column}`);
      button.append(canvas);
      button.addEventListener("click", () => choose(row, column));
      overview.append(button);
      buttons[row].push(button);
    }
  });

  const said = {
    entropy: (value) => `entropy ${value.toFixed(2)} nats`,
    distance: (value) => `distance ${value.toFixed(1)} tokens`,
    previous: (value) => `previous token ${value.toFixed(2)}`,
    positional: (value, scores) => `most at distance ${scores.offset}: ${value.toFixed(2)}`,
    induction: (value) => `induction ${value.toFixed(2)}`,
  };

  const part = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const visible = (token) => token.replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll(" ", "·").slice(0, 18);

  const lines = (map, only) => {
    const [, t, s] = map.shape;
    const svg = part("svg", { width: 2 * WIDE + BETWEEN, height: ROW * (Math.max(t, s) + 1), role: "img" });
    svg.setAttribute("aria-label", "lines from each token to those that it weighs");
    for (let row = 0; row < t; row++) {
      for (let column = 0; column < s; column++) {
        const weight = map.of(head, row, column);
        const isHidden = only && (only.side === "row" ? only.at !== row : only.at !== column);
        if (weight < FAINT || isHidden) continue;
        svg.append(part("line", {
          x1: WIDE + 4, y1: ROW * row + ROW / 2, x2: WIDE + BETWEEN - 4, y2: ROW * column + ROW / 2,
          "stroke-opacity": weight,
        }));
      }
    }
    const tokens = (texts, side, x, anchor) => texts.forEach((text, at) => {
      const one = part("text", { x, y: ROW * at + ROW - 4, "text-anchor": anchor, class: "token" }, visible(text));
      if (only && only.side === side && only.at === at) one.classList.add("here");
      one.addEventListener("pointerenter", () => follow({ side, at }));
      one.addEventListener("pointerleave", () => follow(null));
      svg.append(one);
    });
    tokens(map.rows, "row", WIDE, "end");
    tokens(map.columns, "column", WIDE + BETWEEN, "start");
    return svg;
  };

  // The texts stay while the pointer is on one of them: only what is drawn between them changes.
  const follow = (only) => {
    const map = data.maps[layer], fresh = lines(map, only), old = element("lines").firstChild;
    for (const line of old.querySelectorAll("line")) line.remove();
    old.prepend(...fresh.querySelectorAll("line"));
    const texts = [...old.querySelectorAll("text")], marked = [...fresh.querySelectorAll("text")];
    texts.forEach((text, at) => text.classList.toggle("here", marked[at].classList.contains("here")));
  };

  const choose = (row, column) => {
    layer = row;
    head = Math.min(column, data.maps[row].shape[0] - 1);
    const map = data.maps[layer];
    buttons.forEach((each, at) => each.forEach((button, number) => {
      button.setAttribute("aria-pressed", String(at === layer && number === head));
    }));
    element("which").textContent = `Layer ${map.name}, head ${head}`;
    const scores = map.scores[head];
    element("scores").textContent = Object.keys(said)
      .filter((key) => scores[key] !== null && scores[key] !== undefined)
      .map((key) => said[key](scores[key], scores)).join(", ");
    paint(element("map"), map, head);
    element("lines").replaceChildren(lines(map, null));
  };

  const tip = element("tip"), large = element("map");
  large.addEventListener("pointermove", (event) => {
    const map = data.maps[layer], [, t, s] = map.shape, box = large.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / box.height * t);
    const column = Math.floor((event.clientX - box.left) / box.width * s);
    if (row < 0 || column < 0 || row >= t || column >= s) return;
    tip.textContent = `${visible(map.rows[row])} → ${visible(map.columns[column])}  ${map.of(head, row, column).toFixed(3)}`;
    tip.style.setProperty("transform", `translate(${event.clientX + 12}px, ${event.clientY + 12}px)`);
  });
  large.addEventListener("pointerleave", () => tip.replaceChildren());

  const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  document.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const row = Math.max(0, Math.min(data.maps.length - 1, layer + move[0]));
    choose(row, Math.max(0, Math.min(data.maps[row].shape[0] - 1, head + move[1])));
  });

  const all = () => {
    buttons.forEach((each, row) => each.forEach((button, column) => paint(button.firstChild, data.maps[row], column)));
    choose(layer, head);
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  all();
})();
