"use strict";
// Optional extras over pages that work without scripts: keys, folding in place, copying tables, following a run, dark and light.

const root = document.documentElement;
const storage = (() => { try { return localStorage; } catch { return {}; } })();
if (storage.theme) root.dataset.theme = storage.theme;

const one = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

function toggleTheme() {
  root.dataset.theme = isDark() ? "light" : "dark";
  try { storage.theme = root.dataset.theme; } catch { /* the choice is not stored */ }
  nameTheme();
}

function nameTheme() {
  const button = one("[data-theme-toggle]");
  if (button) button.textContent = isDark() ? "Light" : "Dark";
}

function announce(text) {
  one("#status").textContent = text;
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => { one("#status").textContent = ""; }, 2500);
}

// Loads the page again and swaps its content: what is open, chosen and typed stays.
async function swap(address, { push = false } = {}) {
  const answer = await fetch(address, { headers: { accept: "text/html" } });
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const open = new Set(all("main details[open] > summary").map((each) => each.textContent));
  const chosen = new Set(all("main input[type=checkbox]:checked").map((each) => each.value));
  const at = rowAt()?.rowIndex;
  const scrolled = all("main .scroll").map((each) => each.scrollLeft);
  one("main").replaceWith(page.querySelector("main"));
  all("main details > summary").forEach((each) => { if (open.has(each.textContent)) each.parentElement.open = true; });
  all("main input[type=checkbox]").forEach((each) => { if (chosen.has(each.value)) each.checked = true; });
  all("main .scroll").forEach((each, number) => { each.scrollLeft = scrolled[number] ?? 0; });
  if (at) one("[data-main]")?.rows[at]?.classList.add("at");
  const live = page.body.dataset.live;
  if (live) document.body.dataset.live = live; else delete document.body.dataset.live;
  if (push) history.pushState({}, "", address);
  prepare();
  follow();
}

// Follows a run by server-sent events, as long as the page can be seen: a browser opens few connections at a time.
const following = { source: null, known: "", busy: false, timer: 0 };

function stopFollowing() {
  following.source?.close();
  following.source = null;
}

async function refresh() {
  clearTimeout(following.timer);
  const isReading = one("main :focus")?.matches("input, select") || getSelection()?.isCollapsed === false;
  if (following.busy || isReading) { following.timer = setTimeout(refresh, 1000); return; }
  following.busy = true;
  try { await swap(location.href); } catch { following.timer = setTimeout(refresh, 2000); /* the server is not reachable */ }
  following.busy = false;
  if (!document.body.dataset.live) stopFollowing();
}

function follow() {
  if (document.hidden || !document.body.dataset.live) { stopFollowing(); return; }
  if (following.source) return;
  following.source = new EventSource(document.body.dataset.live);
  following.source.addEventListener("changed", (event) => {
    const isFirst = !following.known;
    const isNew = event.data !== following.known;
    following.known = event.data;
    if (isNew && !isFirst) refresh();
  });
  following.source.addEventListener("ended", () => { stopFollowing(); refresh(); });
}

const rowAt = () => one("[data-main] tr.at");

function move(step) {
  const rows = all("[data-main] tbody tr").filter((row) => one("[data-open], [data-fold]", row));
  if (!rows.length) return false;
  const now = rows.indexOf(rowAt());
  const next = rows[Math.min(Math.max(now + step, 0), rows.length - 1)];
  rowAt()?.classList.remove("at");
  next.classList.add("at");
  next.scrollIntoView({ block: "nearest" });
  return true;
}

const visit = (link) => { if (link) location.href = link.href; return Boolean(link); };

const KEYS = {
  j: () => visit(one("[data-next]")) || move(1),
  k: () => visit(one("[data-previous]")) || move(-1),
  Enter: () => visit(rowAt() && one("[data-open], [data-fold]", rowAt())),
  "/": () => { const field = one("[data-search]"); field?.focus(); field?.select(); return Boolean(field); },
  "?": () => { const help = one("#help"); if (help.open) help.close(); else help.showModal(); return true; },
  u: () => visit(one("[data-up]") || one("header .name")),
  d: () => { toggleTheme(); return true; },
  m: () => { one("[data-copy] button")?.click(); return true; },
  x: () => { const box = rowAt() && one("input[type=checkbox], [data-fold]", rowAt()); box?.click(); return Boolean(box); },
};
let before = "";

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input:not([type=checkbox]), select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  // the button of a dialog that was just closed keeps the focus until the next frame
  if (event.key === "Enter" && event.target.matches("a, button, summary") && event.target.checkVisibility()) return;
  const own = keyed(event.key);
  if (own && one(".verdict-bar")) { event.preventDefault(); if (!event.repeat) inTurn(() => label(keyed(event.key))); return; }
  if (own) { event.preventDefault(); own.click(); return; }
  const pair = before === "g" ? all("[data-keys]").find((each) => each.dataset.keys === `g ${event.key}`) : null;
  before = event.key;
  if (pair ? visit(pair) : KEYS[event.key]?.()) event.preventDefault();
}

// Label mode: the next document is loaded ahead and shown at once, while the label is stored; keys wait for their turn.
const labelling = { turn: Promise.resolve(), stored: Promise.resolve(), ahead: null, given: new Set() };
const keyed = (key) => all("[data-key]").find((each) => each.dataset.key === key);
const shownDocument = (page) => page?.querySelector(".verdict-bar [name=doc]")?.value;

function inTurn(step) {
  labelling.turn = labelling.turn.then(step).catch(() => location.reload());
}

async function loadPage(address, options) {
  const answer = await fetch(address, options);
  if (!answer.ok) throw new Error(answer.status);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  page.address = answer.url;
  return page;
}

function showPage(page) {
  one("main").replaceWith(page.querySelector("main"));
  if (page.address) history.replaceState({}, "", page.address);
  prepare();
  loadAhead();
}

function loadAhead() {
  const next = one(".verdict-bar a[data-key=s]");
  labelling.ahead = next && loadPage(next.href).catch(() => null);
}

async function label(target) {
  if (!target) return;
  if (target.matches("a")) { await labelling.stored; showPage(await loadPage(target.href)); return; }
  const { form } = target;
  const body = new URLSearchParams(new FormData(form));
  if (target.name) body.set(target.name, target.value);
  const isVerdict = form.matches(".verdict-bar");
  const doc = shownDocument(document);
  labelling.stored = labelling.stored.then(() => loadPage(form.action, { method: "POST", body }));
  labelling.stored.catch(() => location.reload());
  if (isVerdict) labelling.given.add(doc); else labelling.given.delete(body.get("doc"));
  const ahead = isVerdict ? await labelling.ahead : null;
  const next = shownDocument(ahead);
  if (!next || labelling.given.has(next)) { showPage(await labelling.stored); return; }
  ahead.address = "";  // the address is that of the stored page, which has the counts
  showPage(ahead);
  labelling.stored.then((page) => { if (shownDocument(page) === shownDocument(document)) showPage(page); else showCounts(page); });
}

// A stored label leads to another document than the one that is shown, if one was left for later: only the counts are taken over.
function showCounts(page) {
  one("main h1").replaceWith(page.querySelector("h1"));
  one("main progress").replaceWith(page.querySelector("progress"));
  one("main form.notice")?.remove();
  const last = page.querySelector("form.notice");
  if (last) one("main form.bar").after(last);
}

// The cells of a table: empty columns are left out; in CSV, a cell with several values becomes several columns.
function cells(table, kind) {
  const rows = [...table.rows].map((row) => [...row.cells].flatMap((cell) => {
    const text = cell.innerText.replace(/\s+/g, " ").trim();
    const values = kind === "csv" && cell.dataset.csv ? JSON.parse(cell.dataset.csv) : [cell.dataset[kind] ?? text];
    return [values, ...Array(Math.max(cell.colSpan - 1, 0)).fill([""])];
  }));
  const widths = rows[0].map((_, at) => Math.max(...rows.map((row) => row[at]?.length ?? 1)));
  const wide = rows.map((row) => row.flatMap((values, at) => Array.from({ length: widths[at] }, (_, n) => String(values[n] ?? ""))));
  const filled = wide[0].map((_, at) => wide.slice(1).some((row) => row[at]));
  return wide.map((row) => row.filter((_, at) => filled[at]));
}

const MAKERS = {
  markdown(rows) {
    const line = (row) => `| ${row.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
    return [line(rows[0]), line(rows[0].map(() => "---")), ...rows.slice(1).map(line)].join("\n") + "\n";
  },
  csv(rows) {
    // a cell that a spreadsheet would take for a formula is marked as text: with + and - only a plain number may begin
    const formula = /^[=@\t\r]|^[+-](?![\d,]*\.?\d+(e[+-]?\d+)?$)/i;
    const cell = (text) => { const safe = formula.test(text) ? `'${text}` : text; return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe; };
    return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
  },
};

async function copy(button) {
  const text = MAKERS[button.dataset.as](cells(document.getElementById(button.closest("[data-copy]").dataset.copy), button.dataset.as));
  try {
    await navigator.clipboard.writeText(text);
    announce("copied");
  } catch {
    announce("the browser does not allow copying");
  }
}

function prepare() {
  all("[data-copy], [data-theme-toggle], [data-help]").forEach((each) => { each.hidden = false; });
  nameTheme();
  markCut();
  markScrollable();
}

// What scrolls can be reached by keys.
function markScrollable() {
  all("pre, .scroll").forEach((each) => {
    if (each.scrollHeight > each.clientHeight + 1 || each.scrollWidth > each.clientWidth + 1) each.tabIndex = 0;
  });
}

// Marks tables that are wider than the screen.
function markCut() {
  all(".scroll").forEach((each) => each.classList.toggle("cut", each.scrollLeft + each.clientWidth < each.scrollWidth - 2));
}

document.addEventListener("DOMContentLoaded", () => {
  prepare();
  follow();
  loadAhead();
  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", stopFollowing);
  addEventListener("pageshow", follow);
  document.addEventListener("keydown", pressed);
  document.addEventListener("click", (event) => {
    const fold = event.target.closest("[data-fold]");
    const button = event.target.closest("[data-as]");
    if (fold && !event.ctrlKey && !event.metaKey) { event.preventDefault(); swap(fold.href, { push: true }); }
    if (button) copy(button);
    if (event.target.closest("[data-theme-toggle]")) toggleTheme();
    if (event.target.closest("[data-help]")) KEYS["?"]();
  });
  document.addEventListener("submit", (event) => {
    if (!one(".verdict-bar") || event.target.method !== "post" || !event.target.action.endsWith("/label")) return;
    event.preventDefault();
    inTurn(() => label(event.submitter));
  });
  document.addEventListener("change", (event) => { if (event.target.matches("[data-submit]")) event.target.form.submit(); });
  document.addEventListener("scroll", markCut, true);
  document.addEventListener("toggle", markScrollable, true);
  addEventListener("resize", () => { markCut(); markScrollable(); });
  addEventListener("popstate", () => swap(location.href));
});
