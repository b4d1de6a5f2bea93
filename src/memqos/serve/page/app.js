// The page: which view is shown, by the part of the address after its #.

import { get, takeToken } from "/client.js";
import { auditView, clusterView, statusView } from "/cluster.js";
import { el, visible } from "/elements.js";
import { nodeView } from "/node.js";
import { storyView } from "/story.js";

const root = document.getElementById("view");
const connection = document.getElementById("connection");
let leave = () => {};
let shown = 0;
let links = null;

// Which views there are; asked again after an answer to something else, where it was not known.
function showLinks() {
  links ??= get("/api/views").then(
    ({ views }) => {
      for (const link of document.querySelectorAll("nav a[data-view]")) {
        link.hidden = !views.includes(link.dataset.view);
      }
    },
    (error) => {
      links = null;
      onState(error.message);
    },
  );
}

function onState(problem) {
  const words = problem ? `Not connected: ${visible(problem)}` : "Connected";
  if (connection.textContent !== words) connection.textContent = words;
  connection.classList.toggle("problem", Boolean(problem));
  if (!problem) showLinks();
}

const VIEWS = {
  node: nodeView,
  cluster: clusterView,
  status: statusView,
  audit: auditView,
  story: storyView,
};

// An address that was typed may be cut in the middle of a character.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function show() {
  const [, name = "node", subject = ""] = location.hash.split("/");
  const number = ++shown;
  leave();
  leave = () => {};
  for (const link of document.querySelectorAll("nav a")) {
    const isCurrent = link.getAttribute("href") === `#/${name}`;
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const view = VIEWS[name] ?? nodeView;
  // A view that was left before its data came draws into an element that is no longer shown.
  const page = el("div", { class: "view" });
  root.replaceChildren(page);
  const end = await view(page, onState, decoded(subject));
  if (number === shown) leave = end;
  else end();
}

addEventListener("hashchange", () => {
  if (location.hash === "#view") {
    root.focus();
    return;
  }
  if (takeToken()) links = null;
  show();
});
takeToken();
show();
showLinks();
