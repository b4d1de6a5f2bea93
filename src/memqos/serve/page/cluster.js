// All nodes of the cluster, those under most pressure first; and whether Memory QoS works on a node.

import { get, poll } from "/client.js";
import { el, rate, time, visible } from "/elements.js";

const UNKNOWN = "Not known: that takes two readings.";
const counted = (key) => (node) => (node.mode === "unknown" ? "–" : node[key]);
const COLUMNS = [
  ["node", (node) => visible(node.name)],
  ["pressure %", (node) => rate(node.pressure)],
  ["throttled", (node) => node.throttled ?? "–"],
  ["killed", counted("kills")],
  ["pods", counted("pods")],
  ["not managed", counted("unmanaged")],
  ["changed by others", counted("changes")],
  ["agent", (node) => `${node.mode}${node.converged ? ", converged" : ""}`],
  ["problems", (node) => node.problems.map(visible).join("; ") || "–"],
];

export function clusterView(root, onState) {
  const body = el("tbody");
  const facts = el("p", { class: "facts" }, "Loading …");
  const notes = el("ul", { class: "notes" });
  const named = el("div", { class: "cards named" });
  root.replaceChildren(
    el("h1", {}, "Cluster"),
    facts,
    notes,
    el(
      "div",
      { class: "wide", tabindex: "0", role: "region", "aria-label": "Nodes" },
      el(
        "table",
        {},
        el("thead", {}, el("tr", {}, COLUMNS.map(([title]) => el("th", { scope: "col" }, title)))),
        body,
      ),
    ),
    named,
  );
  const poller = poll(
    async () => {
      const data = await get("/api/cluster");
      const count = data.nodes.length === 1 ? "1 node" : `${data.nodes.length} nodes`;
      facts.textContent = `${visible(data.origin)} · ${time(data.at)} · ${count}`;
      notes.replaceChildren(...data.notes.map((note) => el("li", {}, visible(note))));
      named.replaceChildren(
        ...data.lists.map(({ title, names, more }) =>
          items(
            title,
            [...names.map(entry), ...(more ? [`and ${more} more`] : [])],
            title === "Throttled" && data.nodes.some((node) => node.throttled === null) ? UNKNOWN : "None.",
          ),
        ),
      );
      body.replaceChildren(
        ...data.nodes.map((node) =>
          el(
            "tr",
            { class: node.problems.length ? "problem" : null },
            COLUMNS.map(([, text], index) =>
              index ? el("td", {}, String(text(node))) : el("th", { scope: "row" }, text(node)),
            ),
          ),
        ),
      );
    },
    10000,
    onState,
  );
  return () => poller.stop();
}

// What is said of a container or pod of a node, with the way to its story.
function entry({ node, pod, words }) {
  const link = el("a", { href: `#/story/${encodeURIComponent(pod)}` }, visible(pod));
  return [`${visible(node)} `, pod ? link : null, ` ${visible(words)}`];
}

function items(title, lines, none) {
  return el(
    "section",
    { class: "card" },
    el("h2", {}, title),
    lines.length ? el("ul", {}, lines.map((line) => el("li", {}, line))) : el("p", {}, none),
  );
}

export function statusView(root, onState) {
  const body = el("div", { class: "cards" }, el("p", {}, "Loading …"));
  root.replaceChildren(el("h1", {}, "Status"), body);
  const poller = poll(
    async () => {
      const data = await get("/api/status");
      body.replaceChildren(
        items("State", data.facts.map(([name, words]) => visible(`${name}: ${words}`)), ""),
        items("Problems", data.problems.map(visible), "None."),
        items(
          "Throttled",
          data.throttled.map((row) =>
            visible(`${row.pod} ${row.container}: ${rate(row.high_events)} high events a second`),
          ),
          data.throttling_known ? "None." : UNKNOWN,
        ),
        items(
          "Last hour",
          data.actions.map((each) => visible(`${each.at} ${each.who}: ${each.what}`)),
          "Nothing is recorded.",
        ),
        items("Notes", data.notes.map(visible), "None."),
      );
    },
    5000,
    onState,
  );
  return () => poller.stop();
}

// The report of memqos audit. The server made it, with all names escaped; of it only <main> is used.
export async function auditView(root, onState) {
  root.replaceChildren(el("h1", {}, "Audit"), el("p", {}, "Auditing …"));
  try {
    let html = null;
    while (html === null && root.isConnected) ({ html } = await get("/api/audit"));
    if (html === null) return () => {};
    const parsed = new DOMParser().parseFromString(html, "text/html");
    root.replaceChildren(...parsed.querySelector("main").children);
    onState(null);
  } catch (error) {
    root.replaceChildren(el("h1", {}, "Audit"), el("p", { role: "alert" }, visible(error.message)));
  }
  return () => {};
}
