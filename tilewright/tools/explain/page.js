"use strict";
// Renders the panes of code from the report, which the page embeds as JSON. Source lines are
// identified by numbers; each line of a listing has the numbers of its source lines.
const report = JSON.parse(document.getElementById("report").textContent);
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
const escaped = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

// -- colours of code ------------------------------------------------------------------------------

const RULES = {
  python: [
    ["c", /#.*/], ["s", /"""[^]*?(?:"""|$)|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'/],
    ["k", /\b(?:def|for|in|if|elif|else|while|return|and|or|not|is|None|True|False|import|from|as|with|pass|assert|lambda)\b|@[\w.]+/],
    ["o", /\btl\.[\w.]+/], ["n", /\b\d[\w.]*/],
  ],
  tile: [
    ["s", /"(?:\\.|[^"\\])*"/], ["v", /%\d+|![\d]+/], ["o", /\b[a-z]+\.[a-z_0-9]+(?=[ :\[]|$)/],
    ["k", /\b(?:func|layout|attributes)\b/], ["n", /\b(?:\d+x)*(?:ptr<[\w ]+>|[iu]\d+|fp\d+\w*|bf16)\b/],
  ],
  llvm: [
    ["c", /;.*/], ["s", /c?"(?:\\.|[^"\\])*"/], ["v", /%[\w.]+|@[\w.]+|#\d+|!\d+/],
    ["k", /\b(?:define|declare|ret|br|switch|label|phi|call|tail|unreachable)\b/],
    ["o", /\b(?:load|store|getelementptr|f?add|f?sub|f?mul|fdiv|icmp|fcmp|select|extract\w+|insert\w+|shufflevector|bitcast|zext|sext|trunc|fptrunc|fpext|s?itofp|and|or|xor|shl|lshr|ashr|fneg|inttoptr)\b/],
  ],
  asm: [
    ["c", /\/\/.*|\/\*[^]*?\*\/|(?:^|\s)#.*/], ["s", /"(?:\\.|[^"\\])*"/], ["k", /^\s*[.$\w]+:(?=\s|$)|^\s*\.\w+/],
    ["v", /%[\w.]+|\b[RP]\d+\b|\bUR\d+\b/], ["o", /^\s*(?:@!?%?\w+\s+)?[A-Za-z][\w.:]*/], ["n", /\b0x[0-9a-f]+|\$-?\d+|\b\d+\b/],
  ],
};

function coloured(text, language) {
  let found = "", rest = text, at = 0;
  const rules = RULES[language];
  while (rest) {
    let best = null;
    for (const [name, pattern] of rules) {
      if (pattern.source.startsWith("^") && at) continue;
      const match = pattern.exec(rest);
      if (match && match[0] && (!best || match.index < best.index)) best = { index: match.index, text: match[0], name };
    }
    if (!best) break;
    found += escaped(rest.slice(0, best.index)) + `<span class="t-${best.name}">${escaped(best.text)}</span>`;
    const step = best.index + best.text.length;
    rest = rest.slice(step);
    at += step;
  }
  return found + escaped(rest);
}

// -- panes ----------------------------------------------------------------------------------------

const lines = report.sources.flatMap((block) => block.lines.map((text, i) => ({ text, block, line: block.first + i })));
const remarksOf = new Map();
for (const remark of report.remarks)
  for (const number of remark.lines.slice(0, 1)) remarksOf.set(number, [...(remarksOf.get(number) || []), remark]);
const costOf = new Map();
for (const cost of report.cost ? report.cost.lines : []) {
  const known = costOf.get(cost.lines[0]) || { bytes: 0, work: 0 };
  known.bytes += cost.tally.loaded + cost.tally.stored;
  known.work += cost.tally.operations + cost.tally.products;
  costOf.set(cost.lines[0], known);
}
const most = { bytes: Math.max(1, ...[...costOf.values()].map((c) => c.bytes)), work: Math.max(1, ...[...costOf.values()].map((c) => c.work)) };

const bar = (share, name) => (share > 0 ? `<i class="${name}" style="width:${Math.max(6, Math.round(100 * share))}%"></i>` : "");

function sourceMarkup() {
  return report.sources.map((block) => {
    const name = block.file.split("/").pop();
    const rows = block.lines.map((text, i) => {
      const number = block.number + i, said = remarksOf.get(number), cost = costOf.get(number);
      const missed = said && said.some((remark) => remark.missed);
      const mark = said ? `<span class="mark ${missed ? "" : "good"}" title="${escaped(said.map((r) => r.text).join("\n"))}">●</span>` : "<span></span>";
      const heat = cost ? `<span class="heat" title="bytes and operations of a launch">${bar(cost.bytes / most.bytes, "b")}${bar(cost.work / most.work, "f")}</span>` : "<span></span>";
      return `<div class="ln" role="option" aria-selected="false" id="s${number}" data-s="${number}"><span class="no">${block.first + i}</span>${mark}${heat}<span class="tx">${coloured(text, "python")}</span></div>`;
    });
    return `<div class="${block.library ? "library" : ""}" role="group" aria-label="${escaped(block.name)}"><div class="where">${escaped(name)} · ${escaped(block.name)}${block.library ? " · of tilewright" : ""}</div>${rows.join("")}</div>`;
  }).join("");
}

function listingMarkup(listing) {
  const rows = listing.lines.map(([text, sources], i) =>
    `<div class="ln"${sources.length ? ` data-s="${sources.join(" ")}"` : ""} data-i="${i}"><span class="no">${i + 1}</span><span class="tx">${coloured(text, listing.language)}</span></div>`);
  const cut = listing.left_out ? `<div class="cut">${listing.left_out} more lines are omitted. Full text: python -m tilewright show … --stage ${escaped(listing.key)}</div>` : "";
  return rows.join("") + cut;
}

for (const listing of report.listings) {
  listing.at = new Map();
  listing.lines.forEach(([, sources], i) => { for (const s of sources) listing.at.set(s, [...(listing.at.get(s) || []), i]); });
}

class Pane {
  constructor(element, key) {
    this.element = element;
    this.body = $(".lines", element);
    this.ticks = $(".ticks", element);
    this.tabs = $$("[role=tab]", element);
    for (const tab of this.tabs) tab.addEventListener("click", () => this.show(tab.dataset.key));
    $(".tabs", element).addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = this.tabs[(this.tabs.findIndex((t) => t.dataset.key === this.listing.key) + step + this.tabs.length) % this.tabs.length];
      this.show(next.dataset.key);
      next.focus();
      event.preventDefault();
    });
    this.body.addEventListener("click", (event) => {
      const line = event.target.closest(".ln[data-s]");
      if (line) pin(Number(line.dataset.s.split(" ")[0]), this);
    });
    this.body.addEventListener("mouseover", (event) => {
      const line = event.target.closest(".ln[data-s]");
      hover(line ? Number(line.dataset.s.split(" ")[0]) : null);
    });
    this.body.addEventListener("mouseleave", () => hover(null));
    this.show(key);
  }

  show(key) {
    this.listing = report.listings.find((listing) => listing.key === key);
    for (const tab of this.tabs) {
      const chosen = tab.dataset.key === key;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    }
    this.body.innerHTML = listingMarkup(this.listing);
    this.body.scrollTop = 0;
    this.rows = $$(".ln", this.body);
    this.light("hot", null);
    this.light("on", pinned);
    this.reveal();
  }

  // Move a class to the rows of a source line.
  light(name, number) {
    for (const row of $$(`.ln.${name}`, this.body)) row.classList.remove(name);
    const indices = number === null ? [] : this.listing.at.get(number) || [];
    for (const i of indices) this.rows[i].classList.add(name);
    if (name === "on") {
      const shown = indices.filter((_, k) => k % Math.ceil(indices.length / 400) === 0);
      this.ticks.innerHTML = shown.map((i) => `<i style="top:${(100 * i) / this.rows.length}%"></i>`).join("");
    }
  }

  reveal() {
    const first = pinned === null ? undefined : (this.listing.at.get(pinned) || [])[0];
    if (first === undefined) return;
    const row = this.rows[first];
    const seen = row.offsetTop >= this.body.scrollTop && row.offsetTop < this.body.scrollTop + this.body.clientHeight - 40;
    if (!seen) this.body.scrollTop = Math.max(0, row.offsetTop - this.body.clientHeight / 3);
  }

  count() {
    for (const tab of this.tabs) {
      const listing = report.listings.find((l) => l.key === tab.dataset.key);
      const lit = pinned === null ? 0 : (listing.at.get(pinned) || []).length;
      $("sup", tab).textContent = lit || "";
    }
  }
}

// -- selection ------------------------------------------------------------------------------------

let pinned = null;
const source = $("#source");
source.innerHTML = sourceMarkup();
const keys = report.listings.map((listing) => listing.key);
const tile = keys.includes("laid_out") ? "laid_out" : "tile";
const machine = ["ptx", "asm", "llir"].find((key) => keys.includes(key)) || keys[keys.length - 1];
const panes = $$(".explorer .code").map((element, i) => new Pane(element, i ? machine : tile));

function pin(number, from) {
  pinned = number;
  if (number !== null && from !== undefined && lines[number].block.file === lines[0].block.file)
    history.replaceState(null, "", `#L${lines[number].line}`);
  for (const row of $$(".ln.on", source)) { row.classList.remove("on"); row.setAttribute("aria-selected", "false"); }
  const row = number === null ? null : document.getElementById(`s${number}`);
  if (row) {
    row.classList.add("on");
    row.setAttribute("aria-selected", "true");
    source.setAttribute("aria-activedescendant", row.id);
    const top = row.offsetTop - source.offsetTop;
    if (top < source.scrollTop || top > source.scrollTop + source.clientHeight - 40) source.scrollTop = top - source.clientHeight / 3;
  } else source.removeAttribute("aria-activedescendant");
  for (const pane of panes) {
    pane.light("on", number);
    pane.count();
    if (pane !== from) pane.reveal();
  }
  inspect(number);
}

function hover(number) {
  for (const row of $$(".ln.hot", source)) row.classList.remove("hot");
  if (number !== null) document.getElementById(`s${number}`)?.classList.add("hot");
  for (const pane of panes) pane.light("hot", number);
}

function scaled(value, unit) {
  const prefixes = ["", "k", "M", "G", "T", "P"];
  let i = 0;
  while (value >= 1000 && i < 5) { value /= 1000; i += 1; }
  return `${Number(value.toPrecision(3))} ${prefixes[i]}${unit}`;
}

function inspect(number) {
  const place = $("#inspect");
  if (number === null) { place.innerHTML = `<p class="counts">${escaped(place.dataset.hint)}</p>`; return; }
  const { block, line } = lines[number];
  const counts = report.listings.map((l) => [l.title, (l.at.get(number) || []).length]).filter(([, n]) => n).map(([title, n]) => `${n} of ${title}`);
  const cost = costOf.get(number);
  const does = cost ? [cost.bytes && `moves ${scaled(cost.bytes, "B")}`, cost.work && scaled(cost.work, "FLOP")].filter(Boolean) : [];
  const head = `<p><b>${escaped(block.file.split("/").pop())}:${line}</b> <span class="counts">${escaped([counts.length ? `Lines: ${counts.join(", ")}` : "No code is generated from this line", ...does].join(" · "))}</span></p>`;
  const remarks = (remarksOf.get(number) || []).map((r) => `<p class="message ${r.missed ? "missed" : ""}">${escaped(r.text)}</p>`);
  place.innerHTML = head + remarks.join("");
}

source.addEventListener("click", (event) => {
  const line = event.target.closest(".ln");
  if (line) pin(Number(line.dataset.s) === pinned ? null : Number(line.dataset.s), source);
});
source.addEventListener("mouseover", (event) => {
  const line = event.target.closest(".ln");
  hover(line ? Number(line.dataset.s) : null);
});
source.addEventListener("mouseleave", () => hover(null));
source.addEventListener("keydown", (event) => {
  const last = lines.length - 1;
  const next = { ArrowDown: pinned === null ? 0 : Math.min(last, pinned + 1), ArrowUp: Math.max(0, (pinned ?? 1) - 1), Home: 0, End: last }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  pin(next, source);
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") pin(null); });
for (const button of $$("[data-line]")) button.addEventListener("click", () => {
  pin(Number(button.dataset.line), button);
  $("#code").scrollIntoView();
});

const explorer = $(".explorer");
const split = $("#split");
function setSplit(on) {
  explorer.classList.toggle("two", !on);
  split.setAttribute("aria-pressed", String(on));
}
split.addEventListener("click", () => setSplit(explorer.classList.contains("two")));
setSplit(window.innerWidth >= 1400);

const theme = $("#theme");
theme.addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" || (document.documentElement.style.colorScheme === "" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.style.colorScheme = dark ? "light" : "dark";
});

for (const picture of $$(".picture")) {
  const same = (thread) => { for (const g of $$("g[data-thread]", picture)) g.classList.toggle("same", g.dataset.thread === thread); };
  picture.addEventListener("mouseover", (event) => same(event.target.closest("g[data-thread]")?.dataset.thread ?? ""));
  picture.addEventListener("mouseleave", () => same(""));
}

// A link such as page.html#L25 selects a line of the kernel's file; default: that of the first remark.
function linked() {
  const match = /^#L(\d+)$/.exec(location.hash);
  const number = match ? lines.findIndex(({ block, line }) => line === Number(match[1]) && block.file === lines[0].block.file) : -1;
  return number < 0 ? null : number;
}
const first = report.remarks.find((remark) => remark.missed && remark.lines.length) || report.remarks.find((remark) => remark.lines.length);
pin(linked() ?? (first ? first.lines[0] : null));
if (linked() !== null) addEventListener("load", () => $("#code").scrollIntoView({ behavior: "instant" }));
addEventListener("hashchange", () => { if (linked() !== null) pin(linked()); });
