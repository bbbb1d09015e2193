// Where one is in the network, what is drawn and listed there, and how one gets elsewhere.
"use strict";
(() => {
  const by = (id) => document.getElementById(id), { words } = network;
  const back = by("back"), forward = by("forward"), found = by("found"), jump = by("jump"), kind = by("kind");
  const ROWS = 40, SECOND = 24, SUGGESTED = 12, PAUSE = 120;
  let trail = [], at = -1, moving = null, rowsShown = ROWS;

  const ABOUT = {
    token: "A token that is read, or rather the vector that it adds to the residual stream.",
    place: "A place in the text, with the vector that it adds to the residual stream.",
    channel: "One channel of the residual stream, which runs through all blocks: on the left who writes into it, on the right who reads it, both in the order of depth. A block reads only what was written before it.",
    query: "Says, with the keys, where this head looks: it steers attention and leads to no connection of its own.",
    key: "Says, with the queries, where this head looks: it steers attention and leads to no connection of its own.",
    value: "What this head takes from where it looks, and then writes into the residual stream.",
    unit: "A hidden neuron of the MLP of its block.",
    next: "A token that may come next: its score.",
    head: "All channels of one attention head: queries and keys say where it looks, values what it takes from there.",
    input: "An input of the network.", neuron: "A hidden neuron.", output: "An output of the network.",
  };

  const many = (n, noun) => `${n.toLocaleString("en-US")} ${noun}${n === 1 ? "" : "s"}`;

  // One picture: the node in the middle, what leads to it on the left, what it leads to on the right.
  function around(node, depth, most, only) {
    const into = network.into(node, only), from = network.from(node, only), links = [], made = new Map();
    const columns = new Map();
    const item = (n, column) => {
      const key = `${column} ${n}`;
      if (!made.has(key)) {
        const one = { node: n, centre: column === 0 };
        made.set(key, one);
        (columns.get(column) || columns.set(column, []).get(column)).push(one);
      }
      return made.get(key);
    };
    const isHead = network.groupOf(node).kind === "head";
    if (!isHead) item(node, 0);
    const inOrder = (list) => list.slice(0, most).sort((a, b) => network.time(a) - network.time(b));
    for (const [list, side] of [[into, -1], [from, 1]]) {
      const near = inOrder(list), [inner, outer] = side < 0 ? [network.target, network.source] : [network.source, network.target];
      const beside = new Map();
      near.sort((a, b) => network.time(a) - network.time(b) || (network.headOf(outer[a]) ?? -1) - (network.headOf(outer[b]) ?? -1));
      for (const edge of near) {
        const centre = item(inner[edge], 0), other = item(outer[edge], side);
        links.push(side < 0 ? { from: other, to: centre, edge } : { from: centre, to: other, edge });
        beside.set(outer[edge], side < 0 ? Math.max(beside.get(outer[edge]) ?? -1, network.time(edge)) : Math.min(beside.get(outer[edge]) ?? 1e9, network.time(edge)));
      }
      if (depth < 2) continue;
      const each = Math.min(4, Math.max(1, Math.floor(SECOND / beside.size)));
      for (const [n, time] of beside) {
        const further = (side < 0 ? network.into : network.from)(n, only).filter((k) => side < 0 ? network.time(k) < time : network.time(k) > time);
        for (const edge of further.slice(0, each)) {
          const other = item(outer[edge], 2 * side), mine = item(n, side);
          links.push(side < 0 ? { from: other, to: mine, edge } : { from: mine, to: other, edge });
        }
      }
    }
    const order = [...columns.keys()].sort((a, b) => a - b);
    const hidden = Math.max(0, into.length - most) + Math.max(0, from.length - most);
    return { picture: { columns: order.map((c) => columns.get(c)), links, fixed: depth < 2 && !isHead, numbers: false }, into, from, hidden };
  }

  // All of the circuit, by time: a residual channel stands in a column before each reader and after each writer.
  function overview() {
    const made = new Map(), links = [], columns = new Map();
    const item = (node, column) => {
      const key = `${node} ${column}`;
      if (!made.has(key)) {
        const one = { node, column };
        made.set(key, one);
        (columns.get(column) || columns.set(column, []).get(column)).push(one);
      }
      return made.get(key);
    };
    for (const edge of network.circuit) {
      const time = network.time(edge);
      links.push({ from: item(network.source[edge], time), to: item(network.target[edge], time + 1), edge });
    }
    const copies = new Map();
    for (const one of made.values()) (copies.get(one.node) || copies.set(one.node, []).get(one.node)).push(one);
    for (const list of copies.values()) {
      list.sort((a, b) => a.column - b.column);
      for (let i = 1; i < list.length; i++) links.push({ from: list[i - 1], to: list[i], edge: null });
    }
    const order = [...columns.keys()].sort((a, b) => a - b);
    return { columns: order.map((c) => columns.get(c)), links, fixed: false, numbers: network.circuit.length <= 30, whole: true };
  }

  function list(table, head, edges, ends, title) {
    const element = (name, parent, text, className) => {
      const node = document.createElement(name);
      if (text !== undefined) node.textContent = text;
      if (className) node.className = className;
      parent.append(node);
      return node;
    };
    head.textContent = `${title} (${edges.length.toLocaleString("en-US")})`;
    table.replaceChildren();
    const top = element("tr", element("thead", table));
    for (const [name, className] of [["node", ""], ["weight", "number"], ["matrix", ""]]) element("th", top, name, className).scope = "col";
    const body = element("tbody", table), most = edges.length ? Math.abs(network.weight[edges[0]]) || 1 : 1;
    const group = network.groupOf(here());
    for (const edge of edges.slice(0, rowsShown)) {
      const row = element("tr", body), other = ends[edge], value = network.weight[edge];
      const cell = element("th", row);
      cell.scope = "row";
      const link = element("a", cell, words(other).long);
      link.href = `#node-${other}`;
      if (group.members) element("span", cell, ends === network.source ? ` \u2192 ${words(network.target[edge]).main}` : ` from ${words(network.source[edge]).main}`, "via");
      if (network.marked[edge]) element("span", cell, "circuit", "badge good");
      const number = element("td", row, undefined, "number");
      const bar = element("span", element("span", number, undefined, "bar"), undefined, value < 0 ? "negative" : "");
      bar.style.width = `${100 * Math.abs(value) / most}%`;
      element("span", number, drawing.say(value), value < 0 ? "beside-bar minus" : "beside-bar plus");
      element("td", row, network.matrix(edge));
    }
    if (!edges.length) element("td", element("tr", body), "nothing").colSpan = 3;
    if (edges.length > rowsShown) {
      const button = element("button", element("td", element("tr", body)), `Show ${many(edges.length - rowsShown, "more")}`.replace("mores", "more"));
      button.type = "button";
      button.parentNode.colSpan = 3;
      button.addEventListener("click", () => { rowsShown += 400; show(); });
    }
  }

  const here = () => Number((/^#node-(\d+)$/.exec(location.hash) || [])[1] ?? -1);

  function show() {
    const node = here(), circuit = network.circuit.length > 0 && location.hash === "#circuit";
    by("dashed-key").hidden = !circuit;
    by("circuit-key").hidden = circuit || !network.circuit.length;
    for (const box of document.querySelectorAll(".lists")) box.hidden = circuit;
    if (circuit) {
      by("where").textContent = `The circuit: ${many(network.circuit.length, "connection")}`;
      by("what").textContent = "All connections of the circuit, in the order in which they act. A channel that no line leads to holds what biases write. Click a node to see all that it is connected with.";
      by("hidden-count").textContent = "";
      drawing.show(overview());
    } else {
      const only = by("only").checked, { picture, into, from, hidden } = around(node, Number(by("depth").value), Number(by("most").value), only);
      by("where").textContent = words(node).long;
      by("what").textContent = `${ABOUT[network.groupOf(node).kind]} ${many(into.length, "connection")} lead${into.length === 1 ? "s" : ""} to it, ${from.length.toLocaleString("en-US")} from it.`;
      by("hidden-count").textContent = hidden ? `${many(hidden, "weaker connection")} not drawn; the lists have all.` : "";
      if (picture.columns.length) drawing.show(picture);
      else by("drawing").replaceChildren();
      list(by("into"), by("into-head"), into, network.source, "Leads to it");
      list(by("from"), by("from-head"), from, network.target, "It leads to");
    }
    document.title = `${by("where").textContent} \u2013 wirebound`;
    back.disabled = at <= 0;
    forward.disabled = at >= trail.length - 1;
  }

  function arrive() {
    const node = here(), known = location.hash === "#circuit" ? network.circuit.length > 0 : node >= 0 && node < network.nodes;
    if (!known) { location.replace(start()); return; }
    const hash = location.hash;
    if (moving !== null && trail[moving] === hash) at = moving;
    else if (trail[at] !== hash) { trail = trail.slice(0, at + 1); trail.push(hash); at = trail.length - 1; }
    moving = null;
    rowsShown = ROWS;
    found.hidden = true;
    show();
  }

  function start() {
    if (network.circuit.length) return "#circuit";
    const group = network.groups.find((one) => one.kind === "next" || one.kind === "output") || network.groups[0];
    return `#node-${strongest(group, 1)[0]}`;
  }

  function strongest(group, most) {
    const nodes = Array.from({ length: group.size }, (_, i) => group.first + i);
    const value = new Map(nodes.map((n) => [n, network.strength(n)]));
    return nodes.sort((a, b) => value.get(b) - value.get(a)).slice(0, most);
  }

  // Nodes whose name has all the words; first those with whole words in this order ("channel 1" before "channel 10", "block
  // 1 head 0" before "block 0 head 1"), then those with whole words, then the others.
  let names = null;
  function matches(text) {
    names ??= Array.from({ length: network.nodes }, (_, n) => words(n).long.toLowerCase());
    const wanted = text.toLowerCase().split(/\s+/).filter(Boolean), phrase = ` ${wanted.join(" ")} `, ranked = [[], [], []];
    for (let n = 0; n < names.length; n++) {
      if (!wanted.every((word) => names[n].includes(word))) continue;
      const whole = ` ${names[n].replace(/[()]/g, " ").trim().replace(/\s+/g, " ")} `;
      ranked[whole.includes(phrase) ? 0 : wanted.every((word) => whole.includes(` ${word} `)) ? 1 : 2].push(n);
    }
    ranked[0].sort((a, b) => names[a].length - names[b].length);
    return ranked.flat().slice(0, SUGGESTED);
  }

  function suggest(nodes) {
    found.replaceChildren(...nodes.map((n) => {
      const row = document.createElement("li"), link = document.createElement("a");
      [link.href, link.textContent] = [`#node-${n}`, words(n).long];
      row.append(link);
      return row;
    }));
    if (!nodes.length) found.append(Object.assign(document.createElement("li"), { textContent: "No node has this name." }));
    found.hidden = false;
  }

  let typed = 0;
  jump.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(() => jump.value.trim() ? suggest(matches(jump.value)) : (found.hidden = true), PAUSE);
  });
  jump.addEventListener("keydown", (event) => {
    if (event.key === "Escape") found.hidden = true;
    if (event.key !== "Enter") return;
    clearTimeout(typed);
    const [first] = matches(jump.value);
    if (first !== undefined) { location.hash = `#node-${first}`; found.hidden = true; }
  });
  const said = (group) => group.members ? "attention heads" : group.title.replace(/ ?\{\}/, "").replace(/(query)$/, "queries").replace(/(key|value|unit|token|channel|place|input|output)$/, "$1s");
  kind.append(new Option("strongest of \u2026", ""), ...network.groups.map((group, i) => new Option(`${said(group)} (${group.size.toLocaleString("en-US")})`, i)));
  kind.addEventListener("change", () => { if (kind.value !== "") suggest(strongest(network.groups[kind.value], SUGGESTED)); kind.value = ""; });
  for (const id of ["depth", "most", "only"]) by(id).addEventListener("change", show);
  const go = (place) => { moving = place; location.hash = trail[place]; };
  back.addEventListener("click", () => go(at - 1));
  forward.addEventListener("click", () => go(at + 1));
  if (network.circuit.length) {
    for (const id of ["whole", "only-label"]) by(id).hidden = false;
    by("whole").addEventListener("click", () => { location.hash = "#circuit"; });
  }
  if (network.kind === "gpt") jump.placeholder = "channel 5, block 0 head 1, token a \u2026";
  else jump.placeholder = `${words(network.groups[0].first).main}, ${words(network.groups[1].first).long} \u2026`;
  addEventListener("hashchange", arrive);
  arrive();
})();
