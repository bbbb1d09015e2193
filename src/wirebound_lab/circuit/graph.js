// The network as arrays: source, target, weight and time of each connection, and both ways to find those of a node.
"use strict";
const network = (() => {
  document.documentElement.classList.remove("plain");
  const data = JSON.parse(document.querySelector(".graph").textContent);
  const { groups, parts } = data, last = groups[groups.length - 1];
  const nodes = last.first + last.size;

  function decoded(text, Kind) {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new Kind(bytes.buffer);
  }

  const weights = parts.map((part) => decoded(part.weights, Float32Array));
  const total = weights.reduce((sum, list) => sum + list.length, 0);
  const source = new Uint32Array(total), target = new Uint32Array(total), weight = new Float32Array(total);
  const partOf = new Uint16Array(total), marked = new Uint8Array(total);
  let at = 0, circuit = [];
  parts.forEach((part, number) => {
    const starts = decoded(part.starts, Uint32Array), rows = decoded(part.rows, part.wide ? Uint32Array : Uint16Array);
    weight.set(weights[number], at);
    partOf.fill(number, at, at + rows.length);
    for (let column = 0; column + 1 < starts.length; column++)
      for (let k = starts[column]; k < starts[column + 1]; k++) {
        source[at + k] = part.source + column;
        target[at + k] = part.target + rows[k];
      }
    for (const k of part.circuit || []) { marked[at + k] = 1; circuit.push(at + k); }
    at += rows.length;
    part.starts = part.rows = part.weights = null;
  });

  // Connections by their end: those of node n are order[starts[n]] to order[starts[n + 1]].
  function index(ends) {
    const starts = new Uint32Array(nodes + 1), order = new Uint32Array(total);
    for (let k = 0; k < total; k++) starts[ends[k] + 1]++;
    for (let n = 0; n < nodes; n++) starts[n + 1] += starts[n];
    const next = starts.slice();
    for (let k = 0; k < total; k++) order[next[ends[k]]++] = k;
    return { starts, order };
  }
  const bySource = index(source), byTarget = index(target);

  function groupOf(node) {
    let low = 0, high = groups.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (groups[middle].first <= node) low = middle; else high = middle - 1;
    }
    return groups[low];
  }

  // A head stands for its queries, keys and values; every other node for itself.
  function ranges(node) {
    const group = groupOf(node);
    return group.members ? group.members[node - group.first].map((first) => [first, first + group.head]) : [[node, node + 1]];
  }

  function connections({ starts, order }, node, only) {
    const found = [];
    for (const [first, end] of ranges(node))
      for (let i = starts[first]; i < starts[end]; i++) if (!only || marked[order[i]]) found.push(order[i]);
    return found.sort((a, b) => Math.abs(weight[b]) - Math.abs(weight[a]));
  }

  const heads = groups.find((group) => group.members);
  // The head that a query, key or value belongs to, or null.
  function headOf(node) {
    const group = groupOf(node);
    if (!heads || !["query", "key", "value"].includes(group.kind)) return null;
    const place = Math.floor((node - group.first) / group.head), first = group.first + place * group.head;
    return heads.first + heads.members.findIndex((member) => member.includes(first));
  }

  function words(node) {
    const group = groupOf(node), number = node - group.first;
    const name = group.names ? group.names[number] : String(number);
    const head = headOf(node);
    const where = /^(block \d+|hidden \d+) (.*)$/.exec(group.title);
    const short = group.names && group.kind === "input" ? /^(\S+) \((.*)\)$/.exec(name) : null;
    const long = group.title.replace("{}", () => name) + (head === null ? "" : ` (head ${(number / group.head) | 0})`);
    let main = (where ? where[2] : group.title).replace("{}", () => short ? short[1] : name), below = where ? where[1] : "";
    if (head !== null) below += ` head ${(number / group.head) | 0}`;
    if (group.kind === "channel") [main, below] = [`channel ${name}`, "residual stream"];
    if (group.kind === "token") below = "read";
    if (group.kind === "next") [main, below] = [`next ${name}`, "predicted"];
    if (short) below = short[2];
    if (group.members) [main, below] = [name, "query, key, value"];
    return { long, main, below, kind: group.kind };
  }

  function strength(node) {
    let sum = 0;
    for (const [first, end] of ranges(node))
      for (const { starts, order } of [bySource, byTarget])
        for (let i = starts[first]; i < starts[end]; i++) sum += Math.abs(weight[order[i]]);
    return sum;
  }

  return {
    kind: data.kind, groups, parts, nodes, total, source, target, weight, marked, circuit, groupOf, headOf, words, strength,
    time: (k) => parts[partOf[k]].time,
    matrix: (k) => /^\d+$/.test(parts[partOf[k]].name) ? `layer ${partOf[k] + 1}` : parts[partOf[k]].name,
    into: (node, only) => connections(byTarget, node, only),
    from: (node, only) => connections(bySource, node, only),
  };
})();
