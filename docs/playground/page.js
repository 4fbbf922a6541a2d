// The page: choice of an instruction, operands, result, and the trace of each step.
"use strict";

const library = new Library(Uint8Array.from(atob(LIBRARY), (character) => character.charCodeAt(0)));
const get = (id) => document.getElementById(id);

/** Choices that together determine an instruction of the catalogue on an architecture. */
const FACETS = [
  ["Architecture", (i, arch) => arch],
  ["Family", (i) => i.family],
  ["Sparsity", (i) => ({ "": "dense", "sp": "sparse", "sp::ordered_metadata": "sparse, ordered metadata" })[i.sparse]],
  ["A", (i) => i.a],
  ["B", (i) => i.b],
  ["C and D", (i) => i.d],
  ["K", (i) => String(i.k)],
  ["Kind", (i) => [i.kind, i.satfinite ? "satfinite" : ""].filter(Boolean).join(", ") || "none"],
  ["Block scales", (i) => (i.scales ? `${i.scales} ${i.scale} in K` : "none")],
];
const PAIRS = CATALOGUE.instructions.flatMap((i) => Object.keys(i.on).map((arch) => ({ i, arch })));
const FIRST = { text: "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", arch: "sm_90" };

/** Functions that fill the operands: each returns a random number for an element. Null stands for random bits. */
const uniform = (least, most) => least + Math.random() * (most - least);
const sign = () => (Math.random() < 0.5 ? -1 : 1);
const FILLINGS = {
  "small integers": () => Math.round(uniform(-4, 4)),
  "numbers of one size": () => sign() * uniform(0.5, 2),
  "numbers of many sizes": () => sign() * 2 ** uniform(-8, 8),
  "one large product": (place) => (place === 0 ? 2 ** 10 : sign() * 2 ** uniform(-8, 0)),
  "random bits, any metadata": null,
};

let state;

// ---- operands

/** Returns the sizes of the operands of an instruction: each name with count, format, lowest bit and container. */
function shapes(i) {
  const { formats } = CATALOGUE, result = formats[i.d], nibble = { name: "nibble", bits: 4 };
  const scale = { count: i.scales, format: formats[i.scale], low: 0, bits: 8 };
  return {
    a: { count: i.rule ? i.k / 2 : i.k, format: formats[i.a], low: i.low.a, bits: i.container },
    b: { count: i.k, format: formats[i.b], low: i.low.b, bits: i.container },
    c: { count: 1, format: result, low: 0, bits: result.bits },
    nibbles: { count: i.rule ? i.k / i.logical : 0, format: nibble, low: 0, bits: 4 },
    scaleA: scale,
    scaleB: scale,
  };
}

const filled = (count, make) => Array.from({ length: count }, (_, place) => make(place));
const anyCode = (bits) => Math.floor(Math.random() * 2 ** bits);

/**
 * Returns random operands of an instruction. Unsigned formats get absolute values. A random code replaces a number that
 * a format cannot represent.
 */
function fill(i, name) {
  const make = FILLINGS[name], rule = CATALOGUE.rules[i.rule], operands = {};
  for (const [operand, { count, format, low, bits }] of Object.entries(shapes(i))) {
    operands[operand] = filled(count, (place) => {
      if (operand === "nibbles") return make ? rule.legal[anyCode(8) % rule.legal.length] : anyCode(4);
      if (!make) return anyCode(bits);
      let number = operand.startsWith("scale") ? 2 ** Math.round(uniform(-2, 2)) : make(place);
      if (!format.signed) number = Math.abs(number);
      if (!format.exponentBits) number = Math.round(number);
      return encode(number, format, low) ?? anyCode(bits);
    });
  }
  return operands;
}

/** Returns the operands in the form that trace() takes: c is one code instead of an array. */
const computed = (operands) => ({ ...operands, c: operands.c[0] });

// ---- instruction and operands in the page's address

function toFragment({ i, arch, operands }) {
  const words = new URLSearchParams({ i: i.text, arch });
  for (const [name, { count, bits }] of Object.entries(shapes(i))) {
    if (count) words.set(name, operands[name].map((code) => hexadecimal(code, bits)).join(""));
  }
  return `#${words}`;
}

/** Returns the state that an address contains, or null if the address contains no valid state. */
function fromFragment(fragment) {
  const words = new URLSearchParams(fragment.slice(1)), arch = words.get("arch");
  const i = CATALOGUE.instructions.find((each) => each.text === words.get("i") && each.on[arch]);
  if (!i) return null;
  const operands = {};
  for (const [name, { count, bits }] of Object.entries(shapes(i))) {
    const digits = Math.ceil(bits / 4), text = words.get(name) ?? "";
    if (!/^[0-9a-f]*$/.test(text) || text.length !== digits * count) return null;
    operands[name] = filled(count, (place) => parseInt(text.slice(place * digits, (place + 1) * digits), 16));
  }
  return { i, arch, operands };
}

// ---- drawing

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function table(heads, rows) {
  const cells = heads.map((text) => element("th", { class: text === BITS ? "bits" : "" }, text));
  const head = element("thead", {}, element("tr", {}, ...cells));
  return element("div", { class: "wide" }, element("table", {}, head, element("tbody", {}, ...rows)));
}

/** Draws the selection lists. Each list offers only values that are possible after the selections in earlier lists. */
function drawFacets() {
  let left = PAIRS;
  const fields = FACETS.map(([name, word], place) => {
    const words = [...new Set(left.map(({ i, arch }) => word(i, arch)))];
    const chosen = word(state.i, state.arch);
    const before = left;
    left = left.filter(({ i, arch }) => word(i, arch) === chosen);
    const options = words.map((text) => new Option(text, text, false, text === chosen));
    const select = element("select", { id: `facet-${place}` }, ...options);
    select.addEventListener("change", () => choose(before, place, select.value));
    return element("label", {}, name, select);
  });
  get("facets").replaceChildren(...fields);
}

/** Changes the selection in one list, and keeps each selection in later lists for which an instruction exists. */
function choose(pairs, place, text) {
  let left = pairs.filter(({ i, arch }) => FACETS[place][1](i, arch) === text);
  for (const [, word] of FACETS.slice(place + 1)) {
    const same = left.filter(({ i, arch }) => word(i, arch) === word(state.i, state.arch));
    if (same.length) left = same;
  }
  const { i, arch } = left[0], wanted = shapes(i), had = shapes(state.i);
  const isSame = Object.keys(wanted).every((name) =>
    wanted[name].count === had[name].count && wanted[name].format === had[name].format);
  show({ i, arch, operands: isSame && i.rule === state.i.rule ? state.operands : fill(i, get("filling").value) });
  get(`facet-${place}`).focus();
}

const text = (name, place) => {
  const { format, low, bits } = shapes(state.i)[name], code = state.operands[name][place];
  return name === "nibbles" ? code.toString(2).padStart(4, "0") : spell(code, format, low, bits);
};

/** Draws the input field of one element of an operand. */
function field(name, place, classes, note) {
  const label = { nibbles: "nibble", scaleA: "scale of A", scaleB: "scale of B" }[name] ?? name.toUpperCase();
  const input = element("input", { value: text(name, place), "aria-label": `${label} ${place}`, spellcheck: "false" });
  input.addEventListener("change", () => {
    const { format, low, bits } = shapes(state.i)[name];
    const isNibble = name === "nibbles";
    const code = isNibble ? (/^[01]{4}$/.test(input.value.trim()) ? parseInt(input.value, 2) : null)
      : parse(input.value, format, low, bits);
    input.setAttribute("aria-invalid", code === null);
    get("problem").textContent = code === null ? `${input.value} is no ${isNibble ? "nibble" : format.name}.` : "";
    if (code === null) return;
    state.operands[name][place] = code;
    input.value = text(name, place);
    compute();
  });
  return element("span", { class: `operand ${classes}` }, input, element("small", {}, note));
}

function fields(name, first, count, describe = () => ["", ""]) {
  return filled(count, (place) => field(name, first + place, ...describe(first + place)));
}

/** Returns, for each row of B, the elements of A that multiply the element of B or one half of it (tf32). */
function meetings(products) {
  const meets = new Map();
  for (const { element: kept, selected } of products) {
    const rows = selected.match(/\d+/g) ?? [], halves = selected.includes("half") ? 2 : 1;
    for (const row of new Set(rows.map((text) => Math.floor(text / halves)))) {
      meets.set(row, [...(meets.get(row) ?? []), `A${kept}`]);
    }
  }
  return meets;
}

function drawOperands(products) {
  const { i, operands } = state, legal = CATALOGUE.rules[i.rule]?.legal, meets = meetings(products);
  const [stored, logical] = i.rule ? [i.stored, i.logical] : [4, 4];
  const width = i.container === 32 ? "long" : "";
  const ofA = (place) => [width, `A${place}`];
  const ofB = (row) => (i.rule && meets.has(row) ? [`met ${width}`, meets.get(row).join(" ")]
    : [width, i.rule ? "" : `B${row}`]);
  const isDefined = (chunk) => legal.includes(operands.nibbles[chunk]);
  const ofNibble = (chunk) => (isDefined(chunk) ? ["nibble", ""] : ["nibble undefined", "undefined"]);
  const columns = [
    ["chunk", (chunk) => [String(chunk)]],
    ["nibble", (chunk) => fields("nibbles", chunk, 1, ofNibble)],
    [`A, ${i.a}`, (chunk) => fields("a", chunk * stored, stored, ofA)],
    [`B, ${i.b}`, (chunk) => fields("b", chunk * logical, logical, ofB)],
  ].slice(i.rule ? 0 : 2);
  const rows = filled(i.k / logical, (chunk) => element("tr", {},
    ...columns.map(([name, make]) => element("td", { "data-name": name.split(",")[0] }, ...make(chunk)))));
  const others = [element("p", {}, `C, ${i.d} `, field("c", 0, "long", ""))];
  for (const [name, words] of i.scales ? [["scaleA", "Block scales of A"], ["scaleB", "Block scales of B"]] : []) {
    others.push(element("p", {}, `${words}, ${i.scale} `, ...fields(name, 0, i.scales)));
  }
  const focused = document.activeElement?.getAttribute("aria-label");
  get("operands").replaceChildren(table(columns.map(([name]) => name), rows), ...others);
  if (focused) document.querySelector(`[aria-label="${focused}"]`)?.focus();
  const wrong = operands.nibbles.map((_, chunk) => chunk).filter((chunk) => !isDefined(chunk));
  get("undefined").textContent = wrong.length ? `The nibbles of these chunks are undefined: ${wrong.join(", ")}. `
    + "D is the result for the elements that the multiplexers select." : "";
}

/** Returns a number as text: integers below 2**53 exactly, other numbers with nine digits. */
const decimal = (number) => String(Number.isSafeInteger(number) ? number : Number(number.toPrecision(9)));
const withCode = (code, format) => `0x${hexadecimal(code, format.bits)} (${spellNumber(code, format)})`;
const spellNumber = (code, format) => decimal(decode(code, format).number);

/** Draws the bits of a term: the kept bits, a vertical line, and up to sixteen of the truncated bits. */
function bitsOf(kept, cut, width) {
  const isNegative = kept < 0n || cut < 0;
  let rest = Math.abs(cut), behind = "";
  for (; rest > 0 && behind.length < 16; rest %= 1) behind += Math.floor(rest *= 2);
  const front = `${isNegative ? "-" : " "}${magnitude(kept).toString(2)}`.padStart(width);
  return element("td", { class: "bits" }, front, ...(behind ? [element("s", {}, behind + (rest ? "…" : ""))] : []));
}

const BITS = "bits kept | cut off";
const HEADS = ["A", "nibble", "row of B", "a", "b", "product", "exponent", "shift", "kept", "cut off", BITS];

function drawStep(step, number, count) {
  const { i } = state, format = CATALOGUE.formats[i.d], { a, b } = shapes(i);
  const isAligned = step.e_max !== null, unit = step.e_max - step.alignment_bits;
  const width = isAligned ? Math.max(...[step.total, ...step.terms.map((term) => term.kept)].map(bitLength)) + 2 : 0;
  const heads = isAligned ? HEADS : HEADS.slice(0, HEADS.indexOf("exponent"));
  const row = (cells, bits = "", name = "") => {
    const drawn = cells.map((cell) => element("td", { class: "number" }, cell === null ? "-" : String(cell)));
    return element("tr", { class: name }, ...[...drawn, bits || element("td")].slice(0, heads.length));
  };
  const aligned = (term) => [term.exponent, term.shift, term.kept, isAligned ? decimal(term.cut) : ""];
  const bits = (term) => (isAligned ? bitsOf(term.kept, term.cut, width) : "");
  const isSingle = step.terms.length === step.products.length + 1;
  const rows = step.products.map((product, place) => {
    const { nibble, selected } = product, term = step.terms[place];
    const cells = [
      product.element, nibble === null ? "" : nibble.toString(2).padStart(4, "0"), selected,
      spell(product.a, a.format, a.low, a.bits), spell(product.b, b.format, b.low, b.bits), decimal(product.value),
    ];
    return row([...cells, ...(isSingle ? aligned(term) : ["", "", "", ""])], isSingle ? bits(term) : "");
  });
  for (const term of isAligned && !isSingle ? step.terms : step.terms.slice(-1)) {
    const { elements, value } = term;
    const [name, number] = elements.length ? [`${elements[0]} to ${elements.at(-1)}`, decimal(value)]
      : ["C", spellNumber(step.c, format)];
    rows.push(row([name, "", "", "", "", number, ...aligned(term)], bits(term)));
  }
  if (step.total !== null) {
    const value = decimal(isAligned ? Number(step.total) * 2 ** unit : Number(step.total));
    const drawn = isAligned ? bitsOf(step.total, 0, width) : "";
    rows.push(row(["sum", "", "", "", "", value, "", "", step.total, ""], drawn, "sum"));
  }
  const scale = isAligned ? `e_max ${step.e_max}, F ${step.alignment_bits}: the last bit kept is worth 2^${unit}`
    : step.total === null ? "the result follows from a NaN or an infinity" : "exact sum of integers";
  return element("section", {},
    element("h3", {}, `Step ${number + 1} of ${count}: ${scale}`),
    table(heads, rows),
    element("p", {}, `${step.rounding}: `, element("b", {}, withCode(step.d, format))));
}

// ---- computing

/** Computes D by libsptc and by trace(), and shows both results. */
function compute() {
  const { i, arch } = state, operands = computed(state.operands), format = CATALOGUE.formats[i.d];
  const traced = trace(CATALOGUE, i, arch, operands);
  const d = library.multiply(i.text, arch, i.k, operands, i.container, format.bits);
  drawOperands(traced.steps.flatMap((step) => step.products));
  get("result").replaceChildren("D by libsptc: ", element("b", {}, withCode(d, format)));
  const isSame = d === traced.d;
  get("verdict").className = isSame ? "good" : "bad";
  get("verdict").textContent = isSame ? "The steps below, which the page computes separately, give the same bits."
    : `The steps below give ${withCode(traced.d, format)}. The page has a fault: please report the URL of the page.`;
  const steps = traced.steps.map((step, number) => drawStep(step, number, traced.steps.length));
  if (traced.added !== null) {
    const sum = `C ${withCode(traced.added, format)} is added under IEEE rules, rounded to nearest even: `;
    steps.push(element("p", {}, sum, element("b", {}, withCode(traced.d, format))));
  }
  get("steps").replaceChildren(...steps);
  history.replaceState(null, "", toFragment(state));
}

function show(next) {
  state = next;
  get("problem").textContent = "";
  get("instruction").textContent = `${state.i.text} on ${state.arch}`;
  get("evidence").textContent = `Evidence for the model of this instruction: ${state.i.on[state.arch][1]}.`;
  drawFacets();
  compute();
}

/** Shows the instruction and operands of the page's address, or a default instruction with random operands. */
function start() {
  const i = CATALOGUE.instructions.find((each) => each.text === FIRST.text);
  show(fromFragment(location.hash) ?? { i, arch: FIRST.arch, operands: fill(i, "numbers of many sizes") });
}

get("filling").append(...Object.keys(FILLINGS).map((name) => new Option(name)));
get("filling").value = "numbers of many sizes";
get("fill").addEventListener("click", () => show({ ...state, operands: fill(state.i, get("filling").value) }));
addEventListener("hashchange", start);
start();
