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

// As memqos prints them: exact where that is short (1.25Gi, 1100Mi), else to four digits.
export function bytes(amount) {
  if (amount === null || amount === undefined) return "max";
  if (amount === 0) return "0";
  let power = 0;
  // A little more, so that 1023.97Mi does not read 1024Mi.
  while (amount + Math.floor(amount / 20000) >= 1024 ** (power + 1) && power < UNITS.length - 1) power += 1;
  const [unit, smaller] = [1024 ** power, 1024 ** (power - 1)];
  if ((amount * 100) % unit === 0) return `${Number((amount / unit).toFixed(2))}${UNITS[power]}`;
  if (amount % smaller === 0 && amount < 10 * unit) return `${amount / smaller}${UNITS[power - 1]}`;
  return `${(amount / unit).toPrecision(4)}${UNITS[power]}`;
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value < 100 ? value.toFixed(1) : value.toFixed(0);
}

export function time(milliseconds) {
  if (!milliseconds) return "";
  return `${new Date(milliseconds).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
