// The node: a row a container with its levels, live, and one of them in full.

import { get, poll } from "/client.js";
import { LevelBar, barLegend, barWords } from "/bar.js";
import { RowList } from "/rows.js";
import { bytes, el, rate, time, visible } from "/elements.js";

const SORTS = {
  usage: "memory in use",
  share: "share of the limit",
  name: "name",
  psi: "pressure",
  high: "high events",
  refaults: "refaults",
  oom: "killed first",
  eviction: "evicted first",
};
const LEVELS = ["memory.min", "memory.low", "memory.high", "memory.max"];

const TITLES = [
  ["name", "container"],
  ["qos", "class"],
  ["bar", "levels: 0 to max"],
  ["usage", "in use"],
  ["max", "max"],
  ["psi", "PSI %"],
  ["high", "high/s"],
  ["refaults", "refaults/s"],
  ["guard", "guard"],
  ["ranks", "killed, evicted"],
  ["numa", "NUMA"],
];

// `label` stands before the value where there is no room for titles.
function cell(name, label, ...children) {
  const column = TITLES.findIndex(([each]) => each === name);
  return el(
    "span",
    { class: `cell ${name}`, role: "gridcell", "aria-colindex": column + 1, "data-label": label },
    ...children,
  );
}

function makeRow(total) {
  const name = cell("name");
  const qos = cell("qos");
  const bar = new LevelBar();
  const words = el("span", { class: "for-readers" });
  const levels = cell("bar", null, bar.node, words);
  const usage = cell("usage", "in use");
  const max = cell("max");
  const psi = cell("psi", "PSI %");
  const high = cell("high", "high/s");
  const refaults = cell("refaults");
  const guard = cell("guard");
  const ranks = cell("ranks");
  const numa = cell("numa");
  const node = el(
    "div",
    { class: "row" },
    name, qos, levels, usage, max, psi, high, refaults, guard, ranks, numa,
  );
  return {
    node,
    update(row) {
      node.classList.toggle("waiting", !row);
      if (!row) {
        name.textContent = "…";
        return;
      }
      const title = `${row.node ? `${row.node} ` : ""}${row.pod} ${row.container}`;
      name.textContent = visible(title);
      name.title = visible(`${title} · ${row.qos}`);
      qos.textContent = visible(row.qos || "–");
      node.classList.toggle("throttled", row.high_events > 0);
      node.classList.toggle("killed", row.kills > 0);
      bar.update(row, total());
      levels.title = barWords(row);
      words.textContent = barWords(row);
      usage.textContent = bytes(row.current);
      max.textContent = bytes(row.max);
      psi.textContent = rate(row.full);
      high.textContent = rate(row.high_events);
      refaults.textContent = rate(row.refaults);
      guard.textContent = row.guard_step ? `+${row.guard_step}` : "–";
      ranks.textContent = `${row.oom_rank ?? "–"}, ${row.eviction_rank ?? "–"}`;
      numa.textContent = visible(row.numa ?? "–");
    },
  };
}

function head() {
  return el(
    "div",
    { class: "row titles", role: "row", "aria-rowindex": "1" },
    TITLES.map(([name, title], index) =>
      el("span", { class: `cell ${name}`, role: "columnheader", "aria-colindex": index + 1 }, title),
    ),
  );
}

function summary(data) {
  const parts = [visible(data.origin), time(data.at)];
  if (data.memory) {
    parts.push(`${bytes(data.memory.available)} of ${bytes(data.memory.total)} available`);
    if (data.memory.full !== null) parts.push(`PSI full ${rate(data.memory.full)} %`);
  }
  const count = data.matched < data.total ? `${data.matched} of ` : "";
  parts.push(`${count}${data.total} ${data.total === 1 ? "container" : "containers"}`);
  if (data.throttled !== null) parts.push(`${data.throttled} throttled`);
  if (data.agent) {
    const done = data.agent.converged ? "converged" : "not converged";
    parts.push(`agent: ${data.agent.mode}, ${done}`);
  } else if (data.enablement) {
    parts.push(visible(data.enablement));
  }
  return parts.filter(Boolean).join(" · ");
}

// `actual` is null for a value that is not read.
function derivation(file, actual, planned) {
  const isAmount = file !== "oom_score_adj";
  const words = (value) => (isAmount && /^\d+$/.test(value) ? bytes(Number(value)) : value);
  const lines = [el("dt", {}, el("code", {}, file), ` ${visible(words(actual ?? String(planned.value)))}`)];
  if (!planned) return [...lines, el("dd", {}, "There is no plan for it.")];
  const value = String(planned.value);
  const steps = planned.steps.map((step) => el("li", {}, visible(step)));
  lines.push(
    el(
      "dd",
      {},
      actual === null
        ? null
        : el("p", {}, value === actual ? "as planned" : `planned: ${visible(words(value))}`),
      el("p", {}, el("code", {}, visible(planned.rule)), ` ${visible(planned.says)}`),
      steps.length ? el("ul", { class: "steps" }, steps) : null,
      el("p", { class: "dim" }, visible(planned.source)),
    ),
  );
  return lines;
}

// What the memory in use is made of; agents do not report it.
function composition(row) {
  if (row.anon === null) return [];
  return [`${bytes(row.anon)} anonymous, ${bytes(row.file)} page cache, ${bytes(row.swap)} in swap`];
}

function detail(data, onClose) {
  const row = data.container;
  const values = { "memory.min": row.min, "memory.low": row.low, "memory.high": row.high };
  values["memory.max"] = row.max;
  const close = el("button", { type: "button", onclick: onClose }, "Close");
  const panel = el(
    "section",
    { class: "card detail", "aria-labelledby": "detail-title" },
    el("h2", { id: "detail-title", tabindex: "-1" }, visible(`${row.pod} ${row.container}`)),
    el("p", {}, visible(`${row.qos || "class not known"} · ${barWords(row)}`)),
    el(
      "p",
      { class: "dim" },
      [
        ...composition(row),
        `${row.kills} ${row.kills === 1 ? "kill" : "kills"}`,
        row.oom_rank === null ? null : `killed as number ${row.oom_rank} if the node runs out of memory`,
        row.eviction_rank === null ? null : `evicted as number ${row.eviction_rank}`,
      ]
        .filter(Boolean)
        .join(" · "),
    ),
    el(
      "dl",
      {},
      LEVELS.map((file) => derivation(file, String(values[file] ?? "max"), row.planned[file])),
      row.planned.oom_score_adj
        ? derivation("oom_score_adj", null, row.planned.oom_score_adj)
        : [],
    ),
    el(
      "p",
      {},
      el("a", { href: `#/story/${encodeURIComponent(row.pod)}` }, "Why: what happened to this pod"),
    ),
    close,
  );
  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape") onClose();
  });
  return panel;
}

export function nodeView(root, onState) {
  let total = null;
  let asked = { first: 0, count: 60 };
  let poller = null;
  let soon = null;
  let needed = true;
  const state = { sort: "usage", reverse: false, filter: "" };

  const facts = el("p", { class: "facts" }, "Loading …");
  const notes = el("ul", { class: "notes" });
  const pane = el("div", { class: "pane" });
  const list = new RowList({
    makeRow: () => makeRow(() => total),
    label: "Containers",
    head: head(),
    wanted(first, count, missing) {
      asked = { first, count };
      if (missing) soon ??= setTimeout(readMissing, 60);
    },
    async onOpen(row) {
      try {
        const data = await get("/api/container", { path: row.path, node: row.node });
        const close = () => {
          pane.replaceChildren();
          list.focusRow(list.focused);
        };
        pane.replaceChildren(detail(data, close));
        document.getElementById("detail-title").focus();
      } catch (error) {
        pane.replaceChildren(el("p", { role: "alert" }, visible(error.message)));
      }
    },
  });

  function readMissing() {
    soon = null;
    needed = true;
    poller?.now();
  }

  function change(changed) {
    Object.assign(state, changed);
    list.clear();
    readMissing();
  }

  const sort = el(
    "select",
    { id: "sort", onchange: (event) => change({ sort: event.target.value }) },
    Object.entries(SORTS).map(([key, words]) => el("option", { value: key }, words)),
  );
  const reverse = el(
    "button",
    {
      type: "button",
      "aria-pressed": "false",
      onclick() {
        change({ reverse: !state.reverse });
        reverse.setAttribute("aria-pressed", String(state.reverse));
      },
    },
    "Reverse",
  );
  let paused = false;
  const pause = el(
    "button",
    {
      type: "button",
      "aria-pressed": "false",
      onclick() {
        paused = !paused;
        pause.setAttribute("aria-pressed", String(paused));
      },
    },
    "Pause",
  );
  const filter = el("input", {
    id: "filter",
    type: "search",
    placeholder: "name, throttled, class:burstable",
    oninput: (event) => change({ filter: event.target.value }),
  });
  root.replaceChildren(
    el("h1", {}, "Node"),
    facts,
    notes,
    el(
      "div",
      { class: "controls" },
      el("label", { for: "filter" }, "Filter ", filter),
      el("label", { for: "sort" }, "Order ", sort),
      reverse,
      pause,
    ),
    barLegend(),
    list.table,
    pane,
  );

  poller = poll(
    async () => {
      if (paused && !needed) return;
      needed = false;
      const data = await get("/api/node", { ...state, ...asked });
      total = data.memory?.total ?? null;
      facts.textContent = summary(data);
      notes.replaceChildren(...data.notes.map((note) => el("li", {}, visible(note))));
      list.setRows(data.first, data.containers, data.matched);
    },
    2000,
    onState,
  );
  return () => {
    poller.stop();
    list.close();
  };
}
