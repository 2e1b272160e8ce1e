"use strict";
// The page without this script shows the first function and follows its links. What is selected is in the address:
// #function or #function/row, so that a link, a key and a click are one thing, and a selection can be sent.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const plans = $("plans");
const functions = data.functions.map((each, index) => ({ ...each, index, edges: null }));
const chosen = { function: functions[0], row: null };

const make = (name, attributes, ...children) => {
  const element = Object.assign(document.createElement(name), attributes);
  element.append(...children);
  return element;
};
const sectionOf = (each) => $(each.name);
const addressOf = (each, row) => (row === null ? each.name : `${each.name}/${each.rows[row].node}`);
const linkOf = (each, row) => "#" + addressOf(each, row).replaceAll("%", "%25").replaceAll("#", "%23");
const anchorOf = (each, row) => $(addressOf(each, row));
/** Selects without an entry in the history; a click on a link makes one. */
function go(each, row) {
  history.replaceState(null, "", linkOf(each, row));
  show();
}

/** Returns the function and the row that an address names; the first function if it names nothing. */
function read(hash) {
  let address = hash.slice(1);
  try { address = decodeURIComponent(address); } catch { /* as it is */ }
  for (const each of functions) {
    if (address === each.name) return { function: each, row: null };
    const row = each.rows.findIndex((_, index) => addressOf(each, index) === address);
    if (row >= 0) return { function: each, row };
  }
  return { function: functions[0], row: null };
}

// ---------------------------------------------------------------- what is shown

function show() {
  const before = { ...chosen };
  const now = read(location.hash);
  if (now.function === before.function && now.row === before.row && show.isDone) return;
  show.isDone = true;
  if (before.row !== null) mark(before.function, before.row, false);
  Object.assign(chosen, now);
  for (const each of functions) sectionOf(each).hidden = each !== chosen.function;
  for (const link of document.querySelectorAll("nav a")) setCurrent(link, link.dataset.function === chosen.function.name);
  if (before.row !== null) setCurrent(anchorOf(before.function, before.row), false, -1);
  if (chosen.row !== null) {
    setCurrent(anchorOf(chosen.function, chosen.row), true, 0);
    anchorOf(chosen.function, 0).tabIndex = chosen.row === 0 ? 0 : -1;
    mark(chosen.function, chosen.row, true);
    anchorOf(chosen.function, chosen.row).scrollIntoView({ block: "nearest" });
  } else anchorOf(chosen.function, 0).tabIndex = 0;
  if ($("slider")) {
    $("slider").value = chosen.function.index + 1;
    $("slider").setAttribute("aria-valuetext", chosen.function.name);
  }
  $("summary").hidden = chosen.row !== null;
  $("chosen").replaceChildren(...(chosen.row === null ? [] : describe(chosen.function, chosen.row)));
  $("details").scrollTop = 0;
  markSource(chosen.row === null ? "" : chosen.function.rows[chosen.row].op);
  report(findRows());
}

function setCurrent(link, isCurrent, tabIndex) {
  if (isCurrent) link.setAttribute("aria-current", "true");
  else link.removeAttribute("aria-current");
  if (tabIndex !== undefined) link.tabIndex = tabIndex;
}

/** Returns the drawn edges of a function by row, found when they are first needed. */
function edgesOf(each) {
  if (each.edges === null) {
    each.edges = each.rows.map(() => []);
    for (const edge of sectionOf(each).querySelectorAll("[data-a]")) {
      for (const row of [edge.dataset.a, edge.dataset.b]) each.edges[row].push(edge);
    }
  }
  return each.edges;
}

/** Lights the edges of a row, and marks the rows at their other ends; orders only for the row that is selected. */
function mark(each, row, isLit, isChosen = true) {
  for (const edge of edgesOf(each)[row]) {
    if (edge.matches(".order") && !isChosen) continue;
    edge.classList.toggle("lit", isLit);
    if (isLit) edge.parentNode.append(edge); // over its neighbours
    const other = Number(edge.dataset.a) === row ? edge.dataset.b : edge.dataset.a;
    if (edge.matches(".track")) anchorOf(each, other).classList.toggle("near", isLit);
  }
}

function markSource(op) {
  for (const line of document.querySelectorAll(".source .lit")) line.classList.remove("lit");
  if (!Object.hasOwn(data.places, op)) return;
  const [file, first, last] = data.places[op];
  for (let at = first; at <= last; at++) $(`line-${file}-${at}`)?.classList.add("lit");
  $(`line-${file}-${first}`)?.scrollIntoView({ block: "center" });
}

// ---------------------------------------------------------------- details

function describe(each, row) {
  const { op, kind, place, said } = each.rows[row];
  const anchor = anchorOf(each, row);
  const number = anchor.querySelector(".number").textContent;
  const parts = [make("h2", {}, op ? `${kind} ${op}` : kind), make("code", {}, anchor.querySelector("code").textContent)];
  parts.push(...[...anchor.querySelectorAll(".flag")].map((flag) => flag.cloneNode(true)));
  if (number) parts.push(make("p", {}, make("small", {}, `line ${number} of ${countLines(each)} in ${each.name}${placeOf(op)}`)));
  const instruction = place < 0 ? {} : data.plan.functions[each.index].instructions[place];
  const ends = (index, other) => each.values.filter((edge) => edge[index] === row).map((edge) => [edge[0], edge[other]]);
  const orders = (index, other) => each.orders.filter((order) => order[index] === row).map((order) => [order[other], order[2]]);
  parts.push(
    ...list("decided", said.map((text) => [text])),
    ...list("reads", [...linkValues(each, ends(2, 1), "from"), ...cells(instruction.reads)]),
    ...list("makes", [...linkValues(each, ends(1, 2), "for"), ...cells(instruction.writes)]),
    ...list("must come after", linkOrders(each, orders(1, 0))),
    ...list("must come before", linkOrders(each, orders(0, 1))),
  );
  return parts;
}

const cells = (versions) => (versions ? [versions.map((at) => make("code", { className: "cell" }, at))] : []);
const countLines = (each) => each.rows.filter((row) => row.place >= 0).length;

function placeOf(op) {
  if (!Object.hasOwn(data.places, op)) return "";
  const [file, line] = data.places[op];
  return ` · ${data.files[file]}:${line}`;
}

/** Returns a heading and its items, each a list of texts and elements; nothing where there are none. */
function list(title, items) {
  if (items.length === 0) return [];
  return [make("h3", {}, title), make("ul", {}, ...items.map((parts) => make("li", {}, ...parts)))];
}

function linkRow(each, row) {
  const { kind, op } = each.rows[row];
  return make("a", { href: linkOf(each, row) }, op ? `${kind} ${op}` : kind);
}

function linkValues(each, edges, word) {
  const values = [...new Set(edges.map(([value]) => value))];
  return values.map((value) => {
    const rows = edges.filter(([other]) => other === value).map(([, row]) => row);
    return [make("b", {}, value), ` ${word} `, ...rows.flatMap((row, index) => [index ? ", " : "", linkRow(each, row)])];
  });
}

const linkOrders = (each, orders) =>
  orders.flatMap(([row, reasons]) => reasons.map(([hazard, why]) => [linkRow(each, row), ` (${hazard}): ${why}`]));

// ---------------------------------------------------------------- search

function findRows() {
  const words = $("query").value.toLowerCase().trim();
  plans.classList.toggle("searched", words !== "");
  const found = [];
  for (const each of functions) {
    each.rows.forEach((_, row) => {
      const anchor = anchorOf(each, row);
      const isFound = words !== "" && `${anchor.textContent} ${each.rows[row].op}`.toLowerCase().includes(words);
      anchor.classList.toggle("found", isFound);
      if (isFound) found.push([each, row]);
    });
  }
  return found;
}

function report(found) {
  const at = found.findIndex(([each, row]) => each === chosen.function && row === chosen.row) + 1;
  $("found").textContent = $("query").value.trim() === "" ? "" : at ? `${at} of ${found.length}` : `${found.length} found`;
}

function typeSearch() {
  const found = findRows();
  report(found);
  const here = found.find(([each]) => each === chosen.function);
  if (here) anchorOf(...here).scrollIntoView({ block: "nearest" });
}

function goToNext(found) {
  const place = ([each, row]) => each.index * 1e6 + row;
  const here = chosen.function.index * 1e6 + (chosen.row ?? -1);
  const next = found.find((each) => place(each) > here) ?? found[0];
  if (next) go(...next);
}

// ---------------------------------------------------------------- keys and clicks

function step(by) {
  const last = chosen.function.rows.length - 1;
  const row = chosen.row === null ? (by > 0 ? 0 : last) : Math.min(Math.max(chosen.row + by, 0), last);
  anchorOf(chosen.function, row).focus({ preventScroll: true });
  go(chosen.function, row);
}

/** Shows a neighbouring function, with the same row selected if it has it. */
function turn(by) {
  const each = functions[chosen.function.index + by];
  if (!each) return;
  const node = chosen.row === null ? "" : chosen.function.rows[chosen.row].node;
  const row = each.rows.findIndex((other) => other.node === node);
  go(each, row < 0 ? null : row);
}

const KEYS = {
  j: () => step(1),
  k: () => step(-1),
  ArrowDown: () => step(1),
  ArrowUp: () => step(-1),
  "[": () => turn(-1),
  "]": () => turn(1),
  "/": () => $("query").focus(),
  "?": () => $("help").showModal(),
  Escape: () => go(chosen.function, null),
};

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open || event.target.matches("input")) return;
  if (event.key.startsWith("Arrow") && $("side").contains(event.target)) return; // scrolls
  if (event.key === "Enter" && chosen.row !== null && event.target === anchorOf(chosen.function, chosen.row)) {
    event.preventDefault();
    $("details").focus();
  }
  const act = KEYS[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
}

function pressInSearch(event) {
  if (event.key === "Enter") {
    goToNext(findRows());
  } else if (event.key === "Escape") {
    $("query").value = "";
    report(findRows());
    $("query").blur();
  }
}

/** Selects an op by a click on any of its lines, in the function that is shown if it runs there. */
function clickSource(event) {
  const [, file, line] = event.target.closest("li")?.id.split("-") ?? [];
  if (!file || getSelection().toString()) return;
  const size = (op) => data.places[op][2] - data.places[op][1];
  const ops = Object.keys(data.places)
    .filter((op) => data.places[op][0] === Number(file) && data.places[op][1] <= line && line <= data.places[op][2])
    .sort((a, b) => size(a) - size(b));
  if (ops.length === 0) return;
  event.preventDefault();
  // Several uses of a block have one text: another click selects the next of them.
  const now = chosen.row === null ? -1 : ops.indexOf(chosen.function.rows[chosen.row].op);
  for (const each of [chosen.function, ...functions]) {
    for (let offset = 1; offset <= ops.length; offset++) {
      const row = each.rows.findIndex(({ op }) => op === ops[(now + offset) % ops.length]);
      if (row >= 0) return go(each, row);
    }
  }
}

function hover(event) {
  const anchor = event.target.closest?.(".rows a");
  const row = anchor ? chosen.function.rows.findIndex((_, index) => anchorOf(chosen.function, index) === anchor) : -1;
  if (row === hover.row) return;
  if (hover.row >= 0 && hover.row !== chosen.row) mark(hover.function, hover.row, false, false);
  [hover.function, hover.row] = [chosen.function, row];
  if (row >= 0) mark(chosen.function, row, true, false);
  if (chosen.row !== null) mark(chosen.function, chosen.row, true);
}
hover.row = -1;

function clickPlans(event) {
  const order = event.target.closest(".holds");
  if (order) go(chosen.function, Number(order.dataset.b));
}

function switchTheme() {
  const isDark = getComputedStyle(document.documentElement).colorScheme === "dark";
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
}

document.documentElement.classList.add("live");
addEventListener("hashchange", show);
document.addEventListener("keydown", press);
$("query").addEventListener("keydown", pressInSearch);
$("query").addEventListener("input", typeSearch);
$("slider")?.addEventListener("input", () => turn($("slider").value - 1 - chosen.function.index));
$("theme").addEventListener("click", switchTheme);
$("keys").addEventListener("click", () => $("help").showModal());
$("spec")?.addEventListener("click", clickSource);
plans.addEventListener("pointerover", hover);
plans.addEventListener("pointerleave", hover);
plans.addEventListener("click", clickPlans);
show();
