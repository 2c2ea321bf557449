"use strict";
// What both pages draw with: elements, tensors as small heat maps, axes.

const NS = "http://www.w3.org/2000/svg";

/** An element with attributes and children; text is text, never markup. */
function make(tag, attributes = {}, ...children) {
  const svg = /^(svg|g|line|rect|circle|path|text|polygon|polyline|title|marker|defs)$/.test(tag);
  const element = svg ? document.createElementNS(NS, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}

/** A number in about four digits. */
function show(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e5) return minus(String(value));
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return minus(value.toExponential(2));
  const places = Math.max(0, Math.min(digits, digits - 1 - Math.floor(Math.log10(size || 1))));
  return minus(value.toFixed(places));
}

/** A number as it was chosen: 0.2 and not 0.2000. */
function short(value) {
  return minus(String(Number(value.toPrecision(4))));
}

function minus(text) {
  return text.replaceAll("-", "−");
}

/** Nested lists as a table whose cells are tinted by sign and size. */
function tensor(name, shape, rows, options = {}) {
  const flat = rows.map((row) => (Array.isArray(row) ? row : [row]));
  const largest = Math.max(1e-12, ...flat.flat().map(Math.abs));
  const body = flat.map((row, i) =>
    make("tr", { class: i === options.lit ? "lit" : null },
      row.map((value, j) => make("td", {
        style: `--tint: var(${value < 0 ? "--minus" : "--plus"}); --much: ${(Math.abs(value) / largest).toFixed(3)}`,
        class: options.dim && options.dim(i, j) ? "dim" : null,
      }, show(value)))));
  const size = `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
  const more = options.note ? ` ${options.note}` : "";
  const head = make("figcaption", {}, make("code", {}, name), " ", make("span", { class: "shape" }, size), more);
  const table = make("table", {}, make("tbody", {}, body));
  return make("figure", { class: "tensor", tabindex: "0", "aria-label": `${name}, shape ${size}` }, head, table);
}

/** A function from numbers to pixels. */
function scale(low, high, from, to) {
  const span = high - low || 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

/** Round numbers between two ends. */
function ticks(low, high, about = 5) {
  const rough = (high - low || 1) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.max(0, Math.floor(high / step + 1e-6) - first + 1) }, (_, i) => (first + i) * step);
}

/** The ends of an axis for some values, with a margin; never so close that they look equal. */
function ends(values, share = 0.05) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const size = Math.max(Math.abs(low), Math.abs(high));
  const room = high - low > 1e-9 * size ? share * (high - low) : 0.05 * size || 1;
  return [low - room, high + room];
}

/** A picture with a title for those who cannot see it. */
function picture(width, height, label, ...children) {
  return make("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, ...children);
}

function text(x, y, words, attributes = {}) {
  return make("text", { x, y, ...attributes }, words);
}

function line(x1, y1, x2, y2, attributes = {}) {
  return make("line", { x1, y1, x2, y2, stroke: "var(--soft)", ...attributes });
}

/** An arrow whose head is drawn, so that no marker has to be found. */
function arrow(x1, y1, x2, y2, colour, width = 2) {
  const length = Math.hypot(x2 - x1, y2 - y1);
  if (length < 1) return make("g");
  const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
  const head = Math.min(8, length);
  const [bx, by] = [x2 - ux * head, y2 - uy * head];
  const corners = [[x2, y2], [bx - uy * head * 0.5, by + ux * head * 0.5], [bx + uy * head * 0.5, by - ux * head * 0.5]];
  return make("g", {},
    line(x1, y1, bx, by, { stroke: colour, "stroke-width": width }),
    make("polygon", { points: corners.map((p) => p.join(",")).join(" "), fill: colour }));
}

/** 1st, 2nd, 3rd, 4th ... */
function ordinal(value) {
  const ending = value % 100 > 10 && value % 100 < 14 ? "th" : { 1: "st", 2: "nd", 3: "rd" }[value % 10] || "th";
  return `${value}${ending}`;
}

const COLOURS = ["--one", "--two", "--action", "--state", "--actor", "--reward"];

const HIDDEN = {}; // by title: a chart that is drawn again keeps its hidden lines

/** Lines over steps, with bands; the mouse or the arrow keys show the numbers.
 *
 * A series has a name, steps and values; low and high if it has a band; colour, dash and thin as it
 * likes. What is null is left out.
 */
function chart({ title, x, y, series, width: widest = 480, height = 230, zero = false }) {
  const width = Math.min(widest, Math.max(320, innerWidth - 40)); // words stay readable on a phone
  const hidden = HIDDEN[title] ||= new Set();
  const [left, right, top, bottom] = [52, 26, 10, height - 44];
  const drawn = make("div", { class: "drawing" });
  const readout = make("output", { class: "readout", "aria-live": "polite" });
  const coloured = series.map((s, i) => ({ colour: `var(${COLOURS[i % COLOURS.length]})`, ...s }));
  const steps = [...new Set(coloured.flatMap((s) => s.steps))].sort((a, b) => a - b);
  let at = null; // an index of steps
  const near = (s, step) => s.steps.reduce((best, found, i) => (Math.abs(found - step) < Math.abs(s.steps[best] - step) ? i : best), 0);

  function render() {
    const shown = coloured.filter((s) => !hidden.has(s.name));
    const all = shown.flatMap((s) => [...s.values, ...(s.low || []), ...(s.high || [])]).filter((v) => v !== null);
    const [low, high] = ends(zero || !all.length ? [0, ...all] : all);
    const py = scale(low, high, bottom, top);
    const px = scale(steps[0] ?? 0, steps.at(-1) || 1, left, width - right);
    const grid = [
      ticks(low, high, 5).map((v) => [line(left, py(v), width - right, py(v), { class: "line" }), text(left - 6, py(v) + 4, show(v, 3), { "text-anchor": "end", class: "soft" })]),
      ticks(steps[0] ?? 0, steps.at(-1) || 1, 5).map((v) => [line(px(v), bottom, px(v), bottom + 4), text(px(v), bottom + 18, Math.round(v).toLocaleString("en"), { "text-anchor": "middle", class: "soft" })]),
      text(width - right, height - 6, x, { "text-anchor": "end", class: "soft" }), text(left, height - 6, y, { class: "soft" }),
    ].flat(3);
    const lines = shown.map((s) => {
      const points = s.steps.map((step, i) => [px(step), s.values[i]]).filter(([, v]) => v !== null).map(([a, v]) => [a, py(v)]);
      const to = (list) => list.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join(" L");
      const band = s.low && points.length > 1 ? make("path", {
        d: `M${to(s.steps.map((step, i) => [px(step), py(s.low[i])]))} L${to(s.steps.map((step, i) => [px(step), py(s.high[i])]).reverse())} Z`,
        fill: s.colour, opacity: 0.16,
      }) : null;
      const stroke = { fill: "none", stroke: s.colour, "stroke-width": s.thin ? 1 : 2.2, opacity: s.thin ? 0.45 : 1, "stroke-dasharray": s.dash ? "6 4" : null };
      const one = points.length === 1 ? make("circle", { cx: points[0][0], cy: points[0][1], r: 4, fill: s.colour }) : null;
      return make("g", {}, band, points.length ? make("path", { d: `M${to(points)}`, ...stroke }) : null, one);
    });
    const pointer = [];
    if (at !== null) {
      const step = steps[at];
      pointer.push(line(px(step), top, px(step), bottom, { "stroke-dasharray": "2 3" }));
      const parts = [`${x} ${step.toLocaleString("en")}`];
      for (const s of shown.filter((each) => !each.thin && each.steps.length)) {
        const i = near(s, step);
        if (s.values[i] === null) continue;
        pointer.push(make("circle", { cx: px(s.steps[i]), cy: py(s.values[i]), r: 4, fill: s.colour }));
        const band = s.low ? ` (${show(s.low[i])} to ${show(s.high[i])})` : "";
        parts.push(`${s.name} ${show(s.values[i])}${band}`);
      }
      readout.textContent = parts.join(" · ");
    }
    const names = shown.map((s) => s.name).join(", ");
    const svg = picture(width, height, `${title}: ${names} over ${x}`, grid, lines, pointer);
    svg.setAttribute("tabindex", "0");
    const point = (event) => {
      const box = svg.getBoundingClientRect();
      const wanted = ((event.clientX - box.left) / box.width) * width;
      at = steps.reduce((best, step, i) => (Math.abs(px(step) - wanted) < Math.abs(px(steps[best]) - wanted) ? i : best), 0);
      render();
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by || !steps.length) return;
      event.preventDefault();
      event.stopPropagation();
      at = at === null ? 0 : Math.min(steps.length - 1, Math.max(0, at + by));
      render();
      drawn.firstChild.focus();
    });
    drawn.replaceChildren(svg);
  }

  const legend = make("div", { class: "legend" }, [...new Set(coloured.filter((s) => !s.thin || s.listed).map((s) => s.name))].map((name) => {
    const s = coloured.find((each) => each.name === name);
    const key = make("button", { type: "button", "aria-pressed": String(!hidden.has(name)), "data-key": `${title}: ${name}`, style: `--key: ${s.colour}`, class: s.dash ? "dashed" : null }, name);
    key.addEventListener("click", () => {
      if (hidden.has(name)) hidden.delete(name); else hidden.add(name);
      key.setAttribute("aria-pressed", String(!hidden.has(name)));
      render();
    });
    return key;
  }));
  render();
  return make("figure", { class: "chart", style: `max-width: ${1.4 * width}px` }, make("figcaption", {}, title), drawn, readout, legend);
}
