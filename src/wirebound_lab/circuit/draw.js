// A picture of columns of nodes with connections between them, as SVG. Nodes are links: to click one is to walk there.
"use strict";
const drawing = (() => {
  const svg = document.getElementById("drawing"), SVG = svg.namespaceURI;
  const TALL = 36, STEP = 44, BOX = 20, EDGE = 14, BROAD = 150;
  let PILL = 150;  // width of a node; less where a whole circuit is drawn

  function make(name, attributes, parent, text) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  }

  const say = (value) => (value < 0 ? "\u2212" : "+") + Math.abs(value).toPrecision(3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");

  // Channels of one head stand together in a box; returns the height of the column.
  function stack(column) {
    let y = EDGE, before = null;
    for (const item of column) {
      const head = item.box;
      if (head !== before) {
        if (before !== null) y += 8;
        if (head !== null) y += BOX;
      }
      item.y = y;
      y += STEP;
      before = head;
    }
    return y + EDGE;
  }

  // Nodes beside what they are connected with: a few sweeps to the right and back, each by the mean place of neighbours.
  function untangle(columns, links) {
    const beside = new Map();
    for (const { from, to } of links) {
      (beside.get(from) || beside.set(from, []).get(from)).push(to);
      (beside.get(to) || beside.set(to, []).get(to)).push(from);
    }
    for (let sweep = 0; sweep < 8; sweep++) {
      for (const column of sweep % 2 ? [...columns].reverse() : columns) {
        for (const item of column) {
          const others = beside.get(item) || [];
          item.mean = others.length ? others.reduce((sum, other) => sum + other.y, 0) / others.length : item.y;
        }
        const boxes = new Map();
        for (const item of column) if (item.box !== null) (boxes.get(item.box) || boxes.set(item.box, []).get(item.box)).push(item.mean);
        const place = (item) => item.box === null ? item.mean : boxes.get(item.box).reduce((a, b) => a + b) / boxes.get(item.box).length;
        column.sort((a, b) => place(a) - place(b) || (a.box ?? -1) - (b.box ?? -1) || a.mean - b.mean);
        centre(columns);
      }
    }
  }

  function centre(columns) {
    const heights = columns.map(stack), height = Math.max(...heights);
    columns.forEach((column, i) => { for (const item of column) item.y += (height - heights[i]) / 2; });
    return height;
  }

  function show({ columns, links, fixed, numbers, whole }) {
    svg.replaceChildren();
    PILL = whole ? 114 : 150;
    for (const column of columns) for (const item of column) item.box = network.headOf(item.node);
    let height = centre(columns);
    if (!fixed) { untangle(columns, links); height = centre(columns); }
    const room = (svg.parentNode.clientWidth - 2 * EDGE - columns.length * PILL) / Math.max(1, columns.length - 1);
    const GAP = Math.min(BROAD, Math.max(whole ? 44 : 52, Math.floor(room)));
    const width = columns.length * PILL + (columns.length - 1) * GAP + 2 * EDGE;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const fit = Math.max(0.8, Math.min(1, (svg.parentNode.clientWidth - 2) / width));  // a little smaller rather than scrolled
    svg.setAttribute("width", Math.floor(width * fit));
    svg.setAttribute("height", Math.floor(height * fit));
    columns.forEach((column, i) => { for (const item of column) item.x = EDGE + i * (PILL + GAP); });
    boxes(columns);
    const lines = make("g", { class: "lines" }, svg), top = Math.max(...links.map(({ edge }) => edge === null ? 0 : Math.abs(network.weight[edge])), 1e-9);
    const ordered = [...links].sort((a, b) => size(a) - size(b));
    for (const link of ordered) line(link, lines, top, { numbers, whole });
    for (const column of columns) for (const item of column) pill(item, links, numbers);
    const middle = columns.flat().find((item) => item.centre), frame = svg.parentNode;
    frame.scrollLeft = middle ? middle.x + PILL / 2 - frame.clientWidth / 2 : 0;
    frame.scrollTop = middle ? middle.y + TALL / 2 - frame.clientHeight / 2 : 0;
  }

  const size = ({ edge }) => edge === null ? 0 : Math.abs(network.weight[edge]);

  function boxes(columns) {
    for (const column of columns)
      for (let i = 0, j; i < column.length; i = j) {
        for (j = i + 1; j < column.length && column[j].box === column[i].box;) j++;
        const first = column[i], last = column[j - 1];
        if (first.box === null) continue;
        const y = first.y - BOX, link = make("a", { href: `#node-${first.box}`, class: "box" }, svg);
        make("rect", { x: first.x - 8, y, width: PILL + 16, height: last.y + TALL - y + 7, rx: 10 }, link);
        make("text", { x: first.x - 2, y: y + 14 }, link, network.words(first.box).main);
      }
  }

  function line({ from, to, edge }, parent, top, { numbers, whole }) {
    const x1 = from.x + PILL, y1 = from.y + TALL / 2, x2 = to.x, y2 = to.y + TALL / 2, bend = (x2 - x1) / 2;
    const d = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
    if (edge === null) {
      make("path", { d, class: "same", "data-from": from.node, "data-to": to.node }, parent);
      return;
    }
    const value = network.weight[edge], sign = value < 0 ? "s1" : "s0", mark = network.marked[edge] ? " in-circuit" : "";
    const wide = 1 + 7 * Math.abs(value) / top;
    if (mark && !whole) make("path", { d, class: "halo", "stroke-width": (wide + 7).toFixed(2), "data-from": from.node, "data-to": to.node }, parent);
    const path = make("path", { d, class: `link ${sign}${mark}`, "stroke-width": wide.toFixed(2), "data-from": from.node, "data-to": to.node }, parent);
    make("title", {}, path, `${network.words(network.source[edge]).long} \u2192 ${network.words(network.target[edge]).long}: ${say(value)} (${network.matrix(edge)})`);
    if (numbers) make("text", { x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 4, class: "weight" }, parent, say(value));
  }

  function pill(item, links, numbers) {
    const { main, below, long, kind } = network.words(item.node);
    const link = make("a", { href: `#node-${item.node}`, class: `pill ${kind}${item.centre ? " centre" : ""}`, "data-node": item.node }, svg);
    make("rect", { x: item.x, y: item.y, width: PILL, height: TALL, rx: 8 }, link);
    make("rect", { x: item.x, y: item.y + 7, width: 4, height: TALL - 14, class: "stripe" }, link);
    make("text", { x: item.x + 12, y: item.y + (below ? 16 : 22), class: "main" }, link, main.length > PILL / 9 ? main.slice(0, PILL / 9 - 1) + "\u2026" : main);
    if (below) make("text", { x: item.x + 12, y: item.y + 29, class: "below" }, link, below);
    make("title", {}, link, long);
    const mine = links.filter(({ from, to, edge }) => edge !== null && (from === item || to === item));
    if (mine.length === 1 && !item.centre && !numbers) {
      const value = network.weight[mine[0].edge];
      make("text", { x: item.x + PILL - 8, y: item.y + 29, class: `number ${value < 0 ? "s1" : "s0"}` }, link, say(value));
    }
    const lit = (on) => {
      svg.classList.toggle("dimmed", on);
      for (const path of svg.querySelectorAll(".lines path")) path.classList.toggle("lit", on && (path.dataset.from == item.node || path.dataset.to == item.node));
    };
    for (const name of ["mouseenter", "focus"]) link.addEventListener(name, () => lit(true));
    for (const name of ["mouseleave", "blur"]) link.addEventListener(name, () => lit(false));
  }

  return { show, say };
})();
