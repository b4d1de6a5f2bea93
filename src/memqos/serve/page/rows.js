// A list of rows of which only those on the screen exist, however many there are.

import { el } from "/elements.js";

const EXTRA = 6;

export class RowList {
  // `makeRow` makes a reusable row {node, update(data, index)}; `wanted` hears which rows are shown;
  // `head` is the row of titles. A screen reader takes all of it for a grid.
  constructor({ makeRow, wanted, onOpen, label, head }) {
    this.makeRow = makeRow;
    this.wanted = wanted;
    this.onOpen = onOpen;
    this.data = new Map();
    this.total = 0;
    this.focused = 0;
    this.pool = [];
    this.sheet = el("div", { class: "sheet", role: "presentation" });
    this.node = el("div", { class: "rows", role: "rowgroup" }, this.sheet);
    this.table = el(
      "div",
      { class: "table", role: "grid", "aria-label": label, "aria-readonly": "true" },
      el("div", { role: "rowgroup" }, head),
      this.node,
    );
    this.frame = null;
    this.node.addEventListener("scroll", () => this.schedule(), { passive: true });
    this.node.addEventListener("keydown", (event) => this.onKey(event));
    this.resize = new ResizeObserver(() => this.schedule());
    this.resize.observe(this.node);
  }

  close() {
    this.resize.disconnect();
    cancelAnimationFrame(this.frame);
  }

  get height() {
    return matchMedia("(max-width: 700px)").matches ? 84 : 40;
  }

  get first() {
    return Math.max(0, Math.floor(this.node.scrollTop / this.height) - EXTRA);
  }

  get count() {
    return Math.ceil(this.node.clientHeight / this.height) + 2 * EXTRA;
  }

  setRows(first, rows, total) {
    if (total !== this.total) this.data.clear();
    this.total = total;
    rows.forEach((row, index) => this.data.set(first + index, row));
    this.table.setAttribute("aria-rowcount", total + 1);
    this.schedule();
  }

  clear() {
    this.data.clear();
    this.node.scrollTop = 0;
    this.focused = 0;
  }

  schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  draw() {
    this.sheet.style.height = this.node.style.maxHeight = `${this.total * this.height}px`;
    const { first, height } = this;
    const shown = Math.max(0, Math.min(this.count, this.total - first));
    while (this.pool.length < shown) {
      const row = this.makeRow();
      row.node.setAttribute("role", "row");
      row.node.addEventListener("click", () => this.open(row.index));
      row.node.addEventListener("focus", () => (this.focused = row.index));
      this.sheet.append(row.node);
      this.pool.push(row);
    }
    let missing = false;
    this.pool.forEach((row, at) => {
      const index = first + at;
      row.node.hidden = at >= shown;
      if (at >= shown) return;
      const data = this.data.get(index);
      missing ||= data === undefined;
      row.index = index;
      row.node.style.transform = `translateY(${index * height}px)`;
      row.node.setAttribute("aria-rowindex", index + 2);
      row.node.tabIndex = index === this.focused ? 0 : -1;
      row.update(data, index);
    });
    if (this.focused < first || this.focused >= first + shown) {
      if (this.pool[0] && shown) this.pool[0].node.tabIndex = 0;
    }
    this.wanted(first, this.count, missing);
  }

  open(index) {
    const data = this.data.get(index);
    if (data) this.onOpen(data);
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.height) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    let to = null;
    if (event.key in moves) to = this.focused + moves[event.key];
    else if (event.key === "Home") to = 0;
    else if (event.key === "End") to = this.total - 1;
    else if (event.key === "Enter") return this.open(this.focused);
    if (to === null) return undefined;
    event.preventDefault();
    this.focusRow(Math.max(0, Math.min(this.total - 1, to)));
    return undefined;
  }

  focusRow(index) {
    this.focused = index;
    const top = index * this.height;
    if (top < this.node.scrollTop) this.node.scrollTop = top;
    const bottom = top + this.height - this.node.clientHeight;
    if (bottom > this.node.scrollTop) this.node.scrollTop = bottom;
    this.draw();
    this.pool.find((row) => row.index === index && !row.node.hidden)?.node.focus({
      preventScroll: true,
    });
  }
}
