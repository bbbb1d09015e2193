// What a drawing on paper cannot do: read-outs, switches, the slider, sorting. The page is complete without it.
"use strict";
(() => {
  document.documentElement.classList.remove("plain");
  const SVG = document.querySelector("svg").namespaceURI;  // no address of any kind stands in this file
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (name, attributes, parent) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    parent.append(node);
    return node;
  };

  function say(value, unit) {
    if (unit === "percent") return (100 * value).toPrecision(4).replace(/\.?0+$/, "") + "\u202f%";
    if (unit === "count" || Number.isInteger(value)) return value.toLocaleString("en-US", { maximumFractionDigits: 1 });
    return Math.abs(value) < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  }

  // A mean with its standard deviation, or with its range where that is lopsided.
  function spread(y, low, high, unit) {
    const half = (high - low) / 2;
    if (Math.abs(y - low - half) > 0.01 * half) return `${say(y, unit)} (${say(low, unit)}\u2013${say(high, unit)})`;
    return `${say(y, unit)} \u00b1 ${unit === "percent" ? String(Number((100 * half).toPrecision(2))) : say(Number(half.toPrecision(2)), unit)}`;
  }

  function place(value, [low, high, start, end, log]) {
    const part = log ? Math.log(Math.max(value, low) / low) / Math.log(high / low) : (value - low) / (high - low);
    return start + Math.min(1, Math.max(0, part)) * (end - start);
  }

  // Index of the value nearest to x in a sorted list.
  function nearest(list, x) {
    let low = 0, high = list.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (list[middle] < x) low = middle; else high = middle;
    }
    return Math.abs(list[low] - x) <= Math.abs(list[high] - x) ? low : high;
  }

  function chart(figure) {
    const block = figure.querySelector(".chart-data");
    if (!block) return;
    const data = JSON.parse(block.textContent);
    const svg = figure.querySelector("svg"), readout = figure.querySelector(".readout");
    const hidden = new Set();
    // A title would pop up over the read-out; its text stays as the label of the drawing.
    const texts = all("title, desc", svg);
    svg.setAttribute("aria-label", texts.map((node) => node.textContent).join(". "));
    svg.removeAttribute("aria-labelledby");
    texts.forEach((node) => node.remove());
    const cursor = make("g", { class: "cursor", "aria-hidden": "true" }, svg);
    let at = null;

    // Rules have no stops of their own, unless there is nothing else.
    const curves = data.series.some((series) => !series.rule);
    const grid = () => [...new Set(data.series.flatMap((series, index) =>
      hidden.has(index) || series.rule && curves ? [] : series.x))].sort((a, b) => a - b);

    function show(x) {
      const stops = grid();
      cursor.replaceChildren();
      readout.replaceChildren();
      if (x === null || !stops.length) { at = null; readout.hidden = true; return; }
      at = stops[nearest(stops, x)];
      const left = place(at, data.x);
      make("line", { x1: left, x2: left, y1: data.y[3], y2: data.y[2] }, cursor);
      const head = document.createElement("b");
      head.textContent = `${data.label} ${say(data.xUnit === "count" ? Math.round(at) : at, data.xUnit)}`;
      readout.append(head);
      data.series.forEach((series, index) => {
        if (hidden.has(index)) return;
        const reference = series.rule;
        const i = nearest(series.x, at), y = series.y[i];
        if (y === null || at > series.x[series.x.length - 1] && !reference) return;
        // Points of one series need not be those of another: none is shown far from the cursor.
        if (!reference && Math.abs(place(series.x[i], data.x) - left) > 24) return;
        const line = document.createElement("span"), dot = document.createElement("i"), value = document.createElement("em");
        line.className = "s" + series.color;
        const low = series.low[i], high = series.high[i];
        const range = low !== undefined && low !== null && low !== high;
        value.textContent = range && y === high ? `${say(low, data.unit)}\u2013${say(high, data.unit)}` : say(y, data.unit);
        if (range && series.spread) value.textContent = spread(y, low, high, data.unit);
        line.append(dot, series.name, value);
        if (series.labels[i]) {
          const words = document.createElement("small");
          words.textContent = series.labels[i];
          line.append(words);
        }
        readout.append(line);
        if (!(data.y[4] && y <= 0)) {
          make("circle", { cx: reference ? left : place(series.x[i], data.x), cy: place(y, data.y), r: 3.6, class: "s" + series.color }, cursor);
        }
      });
      readout.hidden = false;
      const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
      const side = left * scale > box.width / 2 ? left * scale - readout.offsetWidth - 12 : left * scale + 12;
      readout.style.left = Math.max(0, Math.min(side, box.width - readout.offsetWidth)) + "px";
    }

    const value = (event) => {
      const box = svg.getBoundingClientRect();
      const [low, high, start, end, log] = data.x;
      const part = ((event.clientX - box.left) * svg.viewBox.baseVal.width / box.width - start) / (end - start);
      return log ? low * (high / low) ** part : low + part * (high - low);
    };
    svg.addEventListener("pointermove", (event) => show(value(event)));
    svg.addEventListener("pointerdown", (event) => show(value(event)));
    svg.addEventListener("pointerleave", () => show(null));
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("blur", () => show(null));
    svg.addEventListener("keydown", (event) => {
      const stops = grid(), last = stops.length - 1;
      if (!stops.length) return;
      const here = at === null ? last : nearest(stops, at), far = Math.max(1, Math.round(last / 10));
      const next = { ArrowLeft: here - 1, ArrowRight: here + 1, PageDown: here - far, PageUp: here + far, Home: 0, End: last }[event.key];
      if (event.key === "Escape") return show(null);
      if (next === undefined) return;
      event.preventDefault();
      show(stops[at === null && event.key !== "Home" ? last : Math.max(0, Math.min(last, next))]);
    });
    all(".legend button", figure).forEach((button) => button.addEventListener("click", () => {
      const index = Number(button.dataset.series), off = !hidden.has(index);
      if (off) hidden.add(index); else hidden.delete(index);
      button.setAttribute("aria-pressed", String(!off));
      figure.querySelector(`g.series[data-series="${index}"]`).style.display = off ? "none" : "";
      show(null);
    }));
  }

  // Each part of a wiring returns a function that shows one epoch; the slider calls them all.
  function wiring(view) {
    const parts = [...all("figure.moving", view).map(heat), ...all(".strip-box", view).map(strip), ...all("figure.ages", view).map(ages)];
    const block = view.querySelector(".timeline-data");
    if (!block) return;
    const labels = JSON.parse(block.textContent), last = labels.length - 1;
    const slider = view.querySelector(".timeline input"), play = view.querySelector(".play"), shown = view.querySelector(".epoch-shown");
    let timer = null;

    function draw() {
      const epoch = Number(slider.value);
      parts.forEach((show) => show(epoch));
      shown.textContent = labels[epoch];
      slider.setAttribute("aria-valuetext", labels[epoch]);
    }
    function stop() {
      clearInterval(timer);
      timer = null;
      play.textContent = "Play";
    }
    slider.addEventListener("input", () => { stop(); draw(); });
    play.addEventListener("click", () => {
      if (timer !== null) { stop(); return; }
      if (Number(slider.value) === last) slider.value = 0;
      draw();
      play.textContent = "Pause";
      timer = setInterval(() => {
        slider.value = Number(slider.value) + 1;
        draw();
        if (Number(slider.value) === last) stop();
      }, Math.max(80, Math.min(450, 8000 / labels.length)));
    });
    draw();  // a browser may have kept the slider's place over a reload
  }

  function heat(figure) {
    const data = JSON.parse(figure.querySelector(".heat-data").textContent);
    const svg = figure.querySelector("svg"), cells = figure.querySelector(".cells");
    const words = figure.querySelector(".map-words"), readout = figure.querySelector(".cell-readout");
    let epoch = data.frames.length - 1, cell = null;

    function tell() {
      if (cell === null) { readout.textContent = "\u00a0"; return; }
      const now = data.frames[epoch][cell], first = data.frames[0][cell];
      readout.textContent = `Row ${Math.floor(cell / data.columns) + 1}, column ${cell % data.columns + 1}: ${now} connection${now === 1 ? "" : "s"}, ${first} at first`;
    }
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left) / box.width * data.columns);
      const row = Math.floor((event.clientY - box.top) / box.height * data.rows);
      cell = column >= 0 && column < data.columns && row >= 0 && row < data.rows ? row * data.columns + column : null;
      tell();
    });
    svg.addEventListener("pointerleave", () => { cell = null; tell(); });
    return (index) => {
      epoch = index;
      const paths = [];
      data.frames[epoch].forEach((value, place) => {
        if (value <= 0) return;
        const level = Math.min(data.levels, Math.ceil(data.levels * value / data.cap));
        paths[level] = (paths[level] || "") + `M${place % data.columns} ${Math.floor(place / data.columns)}h1v1h-1z`;
      });
      cells.replaceChildren();
      paths.forEach((d, level) => make("path", { d, class: "q" + level }, cells));
      words.textContent = data.words[epoch];
      tell();
    };
  }

  function strip(box) {
    const data = JSON.parse(box.querySelector(".strip-data").textContent);
    const svg = box.querySelector("svg"), bars = box.querySelector(".bars"), words = box.querySelector(".strip-words");
    const plain = words.textContent, count = data.frames[0].length;
    const marker = make("rect", { y: 0, width: 1, height: 100, class: "marker" }, svg);
    let epoch = data.frames.length - 1, bar = null;

    function tell(to) {
      bar = to === null ? null : Math.max(0, Math.min(count - 1, to));
      marker.style.display = bar === null ? "none" : "";
      if (bar === null) { words.textContent = plain; return; }
      marker.setAttribute("x", bar);
      const first = bar * data.group + 1, last = Math.min(data.length, first + data.group - 1);
      const which = first === last ? `${data.noun} ${first}` : `${data.noun}s ${first}\u2013${last}`;
      words.textContent = `${which}: ${say(data.frames[epoch][bar])} connections${first === last ? "" : " on average"}, ${say(data.frames[0][bar])} at first`;
    }
    svg.addEventListener("pointermove", (event) => {
      const area = svg.getBoundingClientRect();
      tell(Math.floor((event.clientX - area.left) / area.width * count));
    });
    svg.addEventListener("pointerleave", () => tell(null));
    svg.setAttribute("tabindex", "0");
    words.setAttribute("aria-live", "polite");
    svg.addEventListener("blur", () => tell(null));
    svg.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return tell(null);
      const here = bar ?? -1;
      const next = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: count - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      tell(next);
    });
    tell(null);
    return (index) => {
      epoch = index;
      bars.setAttribute("d", data.frames[epoch].map((value, place) => {
        const height = Math.round(1000 * value / data.top) / 10;
        return value > 0 ? `M${place} 100v${-height}h1v${height}z` : "";
      }).join(""));
      if (bar !== null) tell(bar);
    };
  }

  function ages(figure) {
    const data = JSON.parse(figure.querySelector(".age-data").textContent);
    const svg = figure.querySelector("svg"), paths = all("path.age", figure), words = figure.querySelector(".age-words");
    const [left, right, bottom, top] = data.box, width = (right - left) / data.frames[0][0].length;
    const height = (value) => Math.max(top, bottom - (bottom - top) * value / data.top);
    return (epoch) => {
      const below = data.frames[epoch][0].map(() => 0);
      data.frames[epoch].forEach((layer, index) => {
        // Before training every connection is new; a bar of that would only be cut off.
        paths[index].setAttribute("d", epoch === 0 ? "" : layer.map((value, bin) => {
          const from = below[bin];
          below[bin] += value;
          const x = left + width * (bin + data.gap / 2);
          return value > 0 ? `M${x.toFixed(1)} ${height(from).toFixed(1)}V${height(from + value).toFixed(1)}h${(width * (1 - data.gap)).toFixed(1)}V${height(from).toFixed(1)}z` : "";
        }).join(""));
      });
      words.textContent = data.sentences[epoch];
      svg.setAttribute("aria-label", `Age of connections: ${words.textContent}`);
    };
  }

  function sortable(table) {
    const body = table.tBodies[0], original = [...body.rows];
    all("th[data-sortable]", table).forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      const key = (row) => {
        const node = row.cells[column];
        return node.classList.contains("number") ? Number(node.dataset.value ?? NaN) : node.textContent;
      };
      button.addEventListener("click", () => {
        // Numbers from the largest down first; the third press brings back the order of the folders.
        const order = head.classList.contains("number") ? ["descending", "ascending"] : ["ascending", "descending"];
        const next = order[order.indexOf(head.getAttribute("aria-sort")) + 1];
        all("th[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
        let rows = original;
        if (next) {
          head.setAttribute("aria-sort", next);
          const sign = next === "ascending" ? 1 : -1;
          rows = [...original].sort((one, two) => {
            const a = key(one), b = key(two);
            if (typeof a === "string") return sign * a.localeCompare(b, "en", { numeric: true });
            return Number.isNaN(a) || Number.isNaN(b) ? Number.isNaN(a) - Number.isNaN(b) : sign * (a - b);
          });
        }
        body.append(...rows);
      });
    });
  }

  function openTarget() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target instanceof HTMLDetailsElement) { target.open = true; target.scrollIntoView(); }
  }

  all("figure.chart").forEach(chart);
  all(".wiring-view").forEach(wiring);
  all("table.sortable").forEach(sortable);
  all('a[href^="#run-"]').forEach((link) => link.addEventListener("click", () => { document.getElementById(link.hash.slice(1)).open = true; }));
  window.addEventListener("hashchange", openTarget);
  openTarget();
  let folded = [];
  window.addEventListener("beforeprint", () => { folded = all("details:not([open])"); folded.forEach((node) => { node.open = true; }); });
  window.addEventListener("afterprint", () => { folded.forEach((node) => { node.open = false; }); });
})();
