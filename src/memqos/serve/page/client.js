// Requests to this machine alone. The token came with the address, after its #, which browsers
// never send; it stays in this tab.

const KEY = "memqos-token";

// Takes the token out of the address, where there is one: on opening the page, or when the address
// of a server that was started again is entered here.
export function takeToken() {
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (!given) return false;
  sessionStorage.setItem(KEY, given[1]);
  history.replaceState(null, "", location.pathname);
  return true;
}

export async function get(path, query = {}) {
  const target = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query)) target.searchParams.set(name, value);
  const token = sessionStorage.getItem(KEY) ?? "";
  const reply = await fetch(target, {
    headers: { Authorization: `Bearer ${token}` },
    signal: AbortSignal.timeout(15000),
  });
  if (!reply.ok) throw new Error((await reply.text()).trim() || `status ${reply.status}`);
  return reply.json();
}

// Calls `read` every `interval` milliseconds while the page is visible; after an error later and
// later. `onState` hears whether the last call succeeded.
export function poll(read, interval, onState) {
  let timer = null;
  let stopped = false;
  let wait = interval;
  let busy = false;
  let again = false;

  async function turn() {
    clearTimeout(timer);
    again = busy;
    if (stopped || document.hidden || busy) return;
    busy = true;
    try {
      await read();
      wait = interval;
      onState(null);
    } catch (error) {
      wait = Math.min(wait * 2, 10000);
      onState(error.message);
    }
    busy = false;
    if (!stopped) timer = setTimeout(turn, again ? 0 : wait);
  }

  document.addEventListener("visibilitychange", turn);
  turn();
  return {
    now: turn,
    stop() {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", turn);
    },
  };
}
