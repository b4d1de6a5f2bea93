// The levels of a container as a bar: zones up to min, low, high and max, and what is in use.

import { bytes, el, svg } from "/elements.js";

const ZONES = [
  ["min", "never reclaimed"],
  ["low", "reclaimed last"],
  ["normal", "reclaimed under pressure"],
  ["high", "throttled"],
];

export function zonesOf(row, total) {
  const bound = row.max ?? Math.max(total ?? 0, row.high ?? 0);
  // Without any bound, as in a cluster, there is nothing that the usage is a share of.
  if (!bound) return { zones: [{ kind: "normal", from: 0, to: 1 }], usage: 0 };
  const end = Math.max(bound, row.current);
  const ends = { min: row.min, low: row.low, normal: row.high ?? end, high: end };
  const zones = [];
  let reached = 0;
  for (const [kind, meaning] of ZONES) {
    const until = Math.min(ends[kind], end);
    if (until > reached) {
      zones.push({ kind, meaning, from: reached / end, to: until / end });
      reached = until;
    }
  }
  return { zones, usage: row.current / end };
}

// What the colours of a bar mean.
export function barLegend() {
  const swatch = (kind) =>
    svg(
      "svg",
      { viewBox: "0 0 26 12", "aria-hidden": "true" },
      svg("rect", { class: `zone-${kind}`, width: 26, ...(kind === "usage" ? { y: 4, height: 4 } : { height: 12 }) }),
    );
  const meanings = [["usage", "in use"], ...ZONES];
  return el(
    "ul",
    { class: "lines", "aria-label": "What the bars show" },
    meanings.map(([kind, meaning]) => el("li", {}, swatch(kind), meaning)),
  );
}

export function barWords(row) {
  return (
    `${bytes(row.current)} in use; min ${bytes(row.min)}, low ${bytes(row.low)}, ` +
    `high ${bytes(row.high)}, max ${bytes(row.max)}`
  );
}

// A bar that is drawn again and again: its elements are made once.
export class LevelBar {
  constructor() {
    this.zones = ZONES.map(([kind]) => svg("rect", { class: `zone-${kind}`, y: 2, height: 12 }));
    this.usage = svg("rect", { class: "zone-usage", x: 0, y: 6, height: 4 });
    this.node = svg(
      "svg",
      { class: "levels", viewBox: "0 0 100 16", preserveAspectRatio: "none", "aria-hidden": "true" },
      ...this.zones,
      this.usage,
    );
  }

  update(row, total) {
    const found = zonesOf(row, total);
    ZONES.forEach(([kind], index) => {
      const zone = found.zones.find((each) => each.kind === kind);
      this.zones[index].setAttribute("x", zone ? zone.from * 100 : 0);
      this.zones[index].setAttribute("width", zone ? (zone.to - zone.from) * 100 : 0);
    });
    this.usage.setAttribute("width", found.usage * 100);
  }
}
