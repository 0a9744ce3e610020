"use strict";
// Shows the sentences of the data block: filtered, ordered, a page at a time. The choice is in the address, to be linked.

const PAGE = 50;
const LONGEST = 1e6; // products of word counts up to which differences are marked
const UNSPACED = ["Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"]
  .map(name => `\\p{Script=${name}}`).join("");
const WORDS = new RegExp(`\\s+|[\\p{P}\\p{S}${UNSPACED}]\\p{M}*|[^\\s\\p{P}\\p{S}${UNSPACED}]+`, "gu");

const data = JSON.parse(document.getElementById("data").textContent);
const field = Object.fromEntries(["search", "pair", "fault", "order"].map(id => [id, document.getElementById(id)]));
const list = document.getElementById("sentences");
const systems = [...new Set(data.pairs.flatMap(pair => pair.systems))];
const sentences = data.pairs.flatMap(pair => pair.rows.map(([source, reference, ...cells], place) => ({
  pair, line: place + 1, source, reference,
  systems: new Map(cells.map(([text, score, faults], number) => [pair.systems[number], { text, score, faults }])),
  text: [source, reference, ...cells.map(cell => cell[0])].join("\n").toLowerCase(),
})));
let chosen = [];
let page = 0;
let writing;

function orders() {
  // [value, text, key to sort by]: the sentences with the highest key come first, those without a key last
  const score = name => sentence => sentence.systems.get(name)?.score;
  const rows = [];
  for (const first of systems) {
    for (const second of systems.filter(name => name !== first)) {
      const key = sentence => score(first)(sentence) - score(second)(sentence);
      rows.push([`${first}>${second}`, `${first} better than ${second}`, key]);
    }
  }
  for (const name of systems) {
    rows.push([`-${name}`, `${name}: worst first`, sentence => -score(name)(sentence)]);
    rows.push([`+${name}`, `${name}: best first`, score(name)]);
  }
  return new Map(rows.map(([value, text, key]) => [value, { text, key }]));
}
const orderings = orders();

function choose() {
  const words = field.search.value.trim().toLowerCase();
  const [pair, fault] = [field.pair.value, field.fault.value];
  const faulty = cell => fault === "any" ? cell.faults.length > 0 : cell.faults.includes(fault);
  chosen = sentences.filter(sentence =>
    (!pair || sentence.pair.pair === pair)
    && (!words || sentence.text.includes(words))
    && (!fault || [...sentence.systems.values()].some(faulty)));
  const ordering = orderings.get(field.order.value);
  if (ordering) {
    const height = sentence => { const key = ordering.key(sentence); return Number.isFinite(key) ? key : -1e9; };
    const keyed = chosen.map(sentence => [height(sentence), sentence]);
    chosen = keyed.sort((one, other) => other[0] - one[0]).map(([, sentence]) => sentence);
  }
  page = 0;
  show();
  clearTimeout(writing);
  writing = setTimeout(writeAddress, 300); // browsers limit how often a page may write it
}

function writeAddress() {
  const choice = new URLSearchParams(Object.entries(field).map(([id, each]) => [id, each.value]).filter(([, value]) => value));
  history.replaceState(null, "", `#${choice}`);
}

function show() {
  const start = page * PAGE;
  const part = chosen.slice(start, start + PAGE);
  list.replaceChildren(...part.map(article));
  const count = number => number.toLocaleString("en");
  document.getElementById("count").textContent = chosen.length
    ? `${count(chosen.length)} of ${count(sentences.length)} sentences, ${count(start + 1)} to ${count(start + part.length)} shown`
    : `None of ${count(sentences.length)} sentences fits.`;
  const missing = data.pairs.filter(pair => pair.leftOut.length && (!field.pair.value || pair.pair === field.pair.value))
    .map(pair => `${pair.leftOut.join(", ")} on ${pair.pair}`);
  document.getElementById("missing").textContent = missing.length
    ? `Not shown, because the test set is another one: ${missing.join("; ")}.` : "";
  document.getElementById("previous").disabled = page === 0;
  document.getElementById("next").disabled = start + PAGE >= chosen.length;
}

function turn(pages) {
  if (page + pages < 0 || (page + pages) * PAGE >= chosen.length) return;
  page += pages;
  show();
  window.scrollTo(0, 0);
}

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function article(sentence) {
  const [source, target] = ["source", "target"].map(side => {
    const [lang, dir] = sentence.pair[side];
    return { lang, dir };
  });
  const lines = element("dl", { class: "lines" },
    element("dt", {}, "source"), element("dd", source, sentence.source),
    element("dt", {}, "reference"), element("dd", target, sentence.reference));
  for (const [name, { text, score, faults }] of sentence.systems) {
    const label = element("dt", {}, `${name} `, element("b", {}, score.toFixed(0)));
    if (faults.length) {
      label.append(" ", element("span", { class: "fault" }, faults.map(fault => data.faults[fault]).join(", ")));
    }
    lines.append(label, element("dd", target, ...(text ? marked(text, sentence.reference) : ["(empty)"])));
  }
  return element("article", { tabindex: "-1" }, element("h2", {}, `${sentence.pair.pair}, line ${sentence.line}`), lines);
}

function marked(text, reference) {
  // Underlines the words that are not in the longest common subsequence of words.
  const words = text.match(WORDS) ?? [];
  const places = [...words.keys()].filter(place => words[place].trim());
  const others = (reference.match(WORDS) ?? []).filter(word => word.trim());
  const common = places.length * others.length > LONGEST ? new Set(places) : commonPlaces(words, places, others);
  const parts = [];
  let differing = [];
  const flush = () => {
    const end = differing.findLastIndex(word => word.trim()) + 1;
    if (end) parts.push(element("u", {}, differing.slice(0, end).join("")));
    parts.push(differing.slice(end).join(""));
    differing = [];
  };
  words.forEach((word, place) => {
    if (common.has(place) || (!word.trim() && !differing.length)) {
      flush();
      parts.push(word);
    } else {
      differing.push(word);
    }
  });
  flush();
  return parts;
}

function commonPlaces(words, places, others) {
  const lengths = Array.from({ length: places.length + 1 }, () => new Uint16Array(others.length + 1));
  for (let row = places.length - 1; row >= 0; row--) {
    for (let column = others.length - 1; column >= 0; column--) {
      lengths[row][column] = words[places[row]] === others[column]
        ? lengths[row + 1][column + 1] + 1
        : Math.max(lengths[row + 1][column], lengths[row][column + 1]);
    }
  }
  const common = new Set();
  for (let row = 0, column = 0; row < places.length && column < others.length;) {
    if (words[places[row]] === others[column]) {
      common.add(places[row]);
      row++;
      column++;
    } else if (lengths[row + 1][column] >= lengths[row][column + 1]) {
      row++;
    } else {
      column++;
    }
  }
  return common;
}

function step(places) {
  const articles = [...list.children];
  const now = articles.indexOf(document.activeElement);
  const next = articles[now < 0 ? 0 : now + places];
  next?.focus();
}

function readAddress() {
  const choice = new URLSearchParams(location.hash.slice(1));
  for (const [id, each] of Object.entries(field)) each.value = choice.get(id) ?? "";
  for (const each of [field.pair, field.fault, field.order]) if (each.selectedIndex < 0) each.value = "";
  choose();
}

for (const [value, { text }] of orderings) field.order.append(new Option(text, value));
for (const each of Object.values(field)) each.addEventListener("input", choose);
document.querySelector("form").addEventListener("submit", event => event.preventDefault());
document.getElementById("previous").addEventListener("click", () => turn(-1));
document.getElementById("next").addEventListener("click", () => turn(1));
window.addEventListener("hashchange", readAddress);
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const actions = { "/": () => field.search.focus(), j: () => step(1), k: () => step(-1), n: () => turn(1), p: () => turn(-1) };
  if (Object.hasOwn(actions, event.key)) {
    event.preventDefault();
    actions[event.key]();
  }
});
readAddress();
