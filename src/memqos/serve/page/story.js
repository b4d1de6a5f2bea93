// The story of a pod: a timeline a container, with zoom, the reason of each value, and chapters.

import { get } from "/client.js";
import { bytes, el, svg, time, visible } from "/elements.js";

const HEIGHT = 220;
const LEFT = 52;
const LINES = ["max", "high", "low", "min"];
const MARKS = { killed: "✕", evicted: "⊘", guarded: "◆", resized: "◇" };
const MEANINGS = {
  killed: "killed by the kernel",
  evicted: "evicted by the kubelet",
  guarded: "the guard raised memory.high",
  resized: "resized in place",
};

function lastAt(items, at) {
  let found = null;
  for (const item of items) {
    if (item.at > at) break;
    found = item;
  }
  return found;
}

function reasons(container, at) {
  const point = lastAt(container.points, at);
  if (!point) return [el("p", {}, "Nothing is recorded of this time.")];
  const rows = ["min", "low", "high", "max"].map((level) => {
    const file = `memory.${level}`;
    const write = lastAt(container.writes.filter((each) => each.file === file), at);
    const why = write ? `${write.rule || `set by ${write.by}`}: ${write.says}` : "no write is recorded";
    return el("tr", {}, el("th", { scope: "row" }, file), el("td", {}, bytes(point[level])), el("td", {}, visible(why)));
  });
  return [
    el("p", {}, el("b", {}, time(at)), ` · ${bytes(point.current)} in use`),
    el("table", {}, el("tbody", {}, rows)),
  ];
}

function legend(container) {
  const swatch = (...parts) => svg("svg", { viewBox: "0 0 26 12", "aria-hidden": "true" }, ...parts);
  const line = (kind) => swatch(svg("path", { class: `curve line-${kind}`, d: "M0 6H26" }));
  const has = (kind) => container.chapters.some((each) => each.kind === kind);
  const area = (kind) => swatch(svg("rect", { class: `span-${kind}`, width: 26, height: 12 }));
  const mark = (kind) =>
    swatch(svg("text", { class: `mark-${kind}`, x: 13, y: 10, "text-anchor": "middle" }, MARKS[kind]));
  return el(
    "ul",
    { class: "lines", "aria-label": "What the lines and marks are" },
    el("li", {}, line("usage"), "in use"),
    LINES.map((level) => el("li", {}, line(level), `memory.${level}`)),
    has("throttled") ? el("li", {}, area("throttled"), "throttled") : null,
    has("gap") ? el("li", {}, area("gap"), "nothing was recorded") : null,
    Object.keys(MARKS).filter(has).map((kind) => el("li", {}, mark(kind), MEANINGS[kind])),
  );
}

// Amounts for the lines of a grid: at most five, a power of two apart.
function ticks(top) {
  let step = 1;
  while (top / step > 4) step *= 2;
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, index) => index * step);
}

function chart(container, label) {
  const { points } = container;
  const full = [container.since, Math.max(container.until, container.since + 1000)];
  let [from, to] = full;
  let cursor = to;
  let width = 900;
  let top = 1;
  const plot = svg("svg", {
    class: "timeline",
    tabindex: "0",
    role: "img",
    "aria-label": `${label}: memory over time. Keys: plus and minus zoom, arrows move, 0 shows all.`,
  });
  const readout = el("div", { class: "readout", "aria-live": "polite" });
  const x = (at) => LEFT + ((at - from) / (to - from)) * (width - LEFT);
  const y = (amount) => HEIGHT - 20 - (amount / top) * (HEIGHT - 30);

  function path(value, stepped) {
    let text = "";
    let last = null;
    for (const point of points) {
      const amount = value(point);
      if (amount === null || amount === undefined) {
        last = null;
        continue;
      }
      const [left, up] = [x(point.at).toFixed(1), y(amount).toFixed(1)];
      if (last === null) text += `M${left} ${up}`;
      else text += stepped ? `H${left}V${up}` : `L${left} ${up}`;
      last = point;
    }
    if (stepped && last) text += `H${Math.max(x(full[1]), 0).toFixed(1)}`;
    return text;
  }

  // The highest value of what is shown, so that a zoom brings out small differences.
  function highest() {
    const before = lastAt(points, from);
    const shown = points.filter((each) => each.at >= from && each.at <= to);
    const values = [...(before ? [before] : []), ...shown].flatMap((each) => [each.current, each.max, each.high]);
    return values.reduce((most, value) => Math.max(most, value ?? 0), 1) * 1.15;
  }

  function draw() {
    plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    top = highest();
    const parts = [];
    for (const chapter of container.chapters) {
      if (chapter.kind === "throttled" || chapter.kind === "gap") {
        const left = x(chapter.at);
        const wide = Math.max(2, x(chapter.until ?? chapter.at) - left);
        parts.push(svg("rect", { class: `span-${chapter.kind}`, x: left, y: 0, width: wide, height: HEIGHT - 20 }));
      }
    }
    for (const amount of ticks(top)) {
      parts.push(svg("line", { class: "grid-line", x1: LEFT, x2: width, y1: y(amount), y2: y(amount) }));
    }
    for (const level of LINES) {
      parts.push(svg("path", { class: `curve line-${level}`, d: path((point) => point[level] || null, true) }));
    }
    parts.push(svg("path", { class: "curve line-usage", d: path((point) => point.current, false) }));
    for (const chapter of container.chapters) {
      if (MARKS[chapter.kind]) {
        parts.push(svg("text", { class: `mark-${chapter.kind}`, x: x(chapter.at), y: 14, "text-anchor": "middle" }, MARKS[chapter.kind]));
      }
    }
    // What lies before the time shown is drawn under the amounts.
    parts.push(svg("rect", { class: "margin", width: LEFT, height: HEIGHT }));
    for (const amount of ticks(top)) {
      parts.push(svg("text", { class: "tick amount", x: LEFT - 5, y: y(amount) + 4, "text-anchor": "end" }, bytes(amount)));
    }
    parts.push(svg("line", { class: "cursor", x1: x(cursor), x2: x(cursor), y1: 0, y2: HEIGHT - 20 }));
    parts.push(svg("text", { class: "tick time", x: LEFT, y: HEIGHT - 5 }, time(from)));
    parts.push(svg("text", { class: "tick time", x: width - 2, y: HEIGHT - 5, "text-anchor": "end" }, time(to)));
    plot.replaceChildren(...parts);
    readout.replaceChildren(...reasons(container, cursor));
  }

  function zoom(factor, around = cursor) {
    const span = Math.min(full[1] - full[0], Math.max(1000, (to - from) * factor));
    const share = (around - from) / (to - from);
    from = Math.max(full[0], Math.min(around - share * span, full[1] - span));
    to = from + span;
    draw();
  }

  function move(by) {
    const span = to - from;
    from = Math.max(full[0], Math.min(from + by * span, full[1] - span));
    to = from + span;
    cursor = Math.min(to, Math.max(from, cursor));
    draw();
  }

  function show(chapter) {
    const end = chapter.until ?? chapter.at;
    const span = Math.max(60000, (end - chapter.at) * 2);
    const middle = (chapter.at + end) / 2;
    from = Math.max(full[0], middle - span / 2);
    to = Math.min(full[1], Math.max(from + 1000, middle + span / 2));
    cursor = chapter.at;
    draw();
    plot.focus();
  }

  const all = () => {
    [from, to] = full;
    draw();
  };
  const keys = {
    "+": () => zoom(0.5),
    "=": () => zoom(0.5),
    "-": () => zoom(2),
    0: all,
    ArrowLeft: () => point(-1),
    ArrowRight: () => point(1),
    PageUp: () => move(-0.5),
    PageDown: () => move(0.5),
  };

  function point(by) {
    const times = points.map((each) => each.at);
    const next = by > 0 ? times.find((at) => at > cursor) : times.findLast((at) => at < cursor);
    cursor = next ?? cursor;
    if (cursor < from || cursor > to) {
      const span = to - from;
      from = Math.max(full[0], Math.min(cursor - span / 2, full[1] - span));
      to = from + span;
    }
    draw();
  }

  const at = (event) => {
    const box = plot.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / (box.width - LEFT);
    return from + Math.max(0, Math.min(1, share)) * (to - from);
  };
  plot.addEventListener("keydown", (event) => {
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  plot.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.8 : 1.25, at(event));
  });
  plot.addEventListener("click", (event) => {
    cursor = at(event);
    draw();
  });
  draw();
  new ResizeObserver(() => {
    const now = Math.round(plot.getBoundingClientRect().width);
    if (!now || now === width) return;
    width = now;
    draw();
  }).observe(plot);
  const button = (words, act) => el("button", { type: "button", onclick: act }, words);
  const tools = el(
    "div",
    { class: "controls" },
    button("Zoom in", () => zoom(0.5)),
    button("Zoom out", () => zoom(2)),
    button("Earlier", () => move(-0.5)),
    button("Later", () => move(0.5)),
    button("All", all),
  );
  return { nodes: [plot, legend(container), tools, readout], show };
}

function chapterItem(chapter, show) {
  return el(
    "li",
    {},
    el("button", { type: "button", class: "link", onclick: () => show(chapter) }, time(chapter.at)),
    el("p", {}, el("b", {}, visible(chapter.what))),
    chapter.evidence.map((line) => el("p", { class: "dim" }, visible(line))),
    chapter.rule || chapter.because
      ? el("p", {}, el("code", {}, visible(chapter.rule ?? "")), ` ${visible(chapter.because ?? "")}`)
      : null,
    chapter.remedies.map((line) => el("p", {}, `Prevents it: ${visible(line)}`)),
  );
}

export async function storyView(root, onState, pod) {
  root.replaceChildren(el("h1", {}, visible(pod)), el("p", {}, "Loading …"));
  let data;
  try {
    data = await get("/api/story", { pod });
    onState(null);
  } catch (error) {
    root.replaceChildren(el("h1", {}, visible(pod)), el("p", { role: "alert" }, visible(error.message)));
    return () => {};
  }
  const parts = data.containers.map((container) => {
    const label = `${container.pod} ${container.container}`;
    const drawn = container.points.length ? chart(container, visible(label)) : null;
    const chapters = container.chapters.map((each) => chapterItem(each, drawn ? drawn.show : () => {}));
    return el(
      "section",
      { class: "card" },
      el("h2", {}, visible(container.container)),
      drawn ? drawn.nodes : el("p", {}, "No levels are recorded."),
      chapters.length ? el("ol", { class: "chapters" }, chapters) : el("p", {}, "Nothing happened."),
    );
  });
  const empty = el("p", {}, "Nothing is recorded of this pod: memqos agent records.");
  root.replaceChildren(
    el("h1", {}, visible(pod)),
    el("p", {}, el("a", { href: "#/node" }, "Back to the node")),
    ...(parts.length ? parts : [empty]),
  );
  return () => {};
}
