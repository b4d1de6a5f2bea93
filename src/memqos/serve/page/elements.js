// Elements out of values. Text is always set as text: a name is never markup.

const SVG = "http://www.w3.org/2000/svg";

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

export function el(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

// Control and format characters would be invisible, or change the direction of what follows.
export function visible(text) {
  return String(text).replace(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu,
    (char) => `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`,
  );
}

const UNITS = ["B", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

// As `format_bytes` of memqos.units has it: top, status and this page show one text for one amount.
export function bytes(amount) {
  if (amount === null || amount === undefined) return "max";
  if (amount === 0) return "0";
  let power = 0;
  // A little more, so that 1023.97Mi does not read 1024Mi.
  const nearly = amount + Math.floor(amount / 20_000);
  while (nearly >= 1024 ** (power + 1) && power < UNITS.length - 1) power += 1;
  const unit = 1024 ** power;
  const units = amount / unit;
  if (Number.isInteger(units * 100)) return `${units}${UNITS[power]}`;
  if (Number.isInteger(units * 1024) && units < 10) return `${units * 1024}${UNITS[power - 1]}`;
  return fourDigits(units) + UNITS[power];
}

// Halves go to the even digit, as Python rounds them.
function fourDigits(value) {
  const places = value < 10 ? 3 : value < 100 ? 2 : value < 1000 ? 1 : 0;
  const scaled = value * 10 ** places;
  const isHalf = scaled % 1 === 0.5;
  const rounded = isHalf ? 2 * Math.round(scaled / 2) : Math.round(scaled);
  return (rounded / 10 ** places).toFixed(rounded < 10_000 ? places : places - 1);
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value < 100 ? value.toFixed(1) : value.toFixed(0);
}

export function time(milliseconds) {
  if (!milliseconds) return "";
  return `${new Date(milliseconds).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
