// Trace of one output: selected elements, products, alignment, sum and rounding of each step. Fields have the names and
// meanings of sptc.verify.trace. The page compares the resulting D with the D that libsptc computes.
"use strict";

/** Number of products that share a block scale (method "grouped"), and exponent of the smallest normal f16. */
const GROUP = 16, LEAST_F16 = -14;

/** Returns {chunk, nibble, selected, b} for each stored element of A. `selected` is a row of B; `b` is its code. */
function select(instruction, mux, rules, operands) {
  const { stored, logical, rule } = instruction;
  if (!rule) return operands.b.map((b, row) => ({ chunk: null, nibble: null, selected: String(row), b }));
  const delivered = rules[rule].delivered[mux];
  return operands.a.map((_, element) => {
    const chunk = Math.floor(element / stored), nibble = operands.nibbles[chunk];
    const indices = [nibble & 3, nibble >> 2];
    if (stored === 1) return { chunk, nibble, ...spliced(chunk, indices, delivered[nibble], operands.b) };
    const unit = logical / 4, slot = element % stored, side = Math.floor(slot / unit);
    if (!delivered[nibble][side]) return { chunk, nibble, selected: "none", b: 0 };
    const row = chunk * logical + indices[side] * unit + (slot % unit);
    return { chunk, nibble, selected: String(row), b: operands.b[row] };
  });
}

/** For 1:2 sparsity, a nibble selects the low and the high half of an element of B separately, counted from row 0. */
function spliced(chunk, indices, delivered, codes) {
  const halves = indices.map((index, side) => (delivered[side] ? 4 * chunk + index : null));
  const [low, high] = halves.map((half) => {
    if (half === null) return 0;
    const code = codes[half >> 1];
    return half & 1 ? Math.floor(code / 65536) : code % 65536;
  });
  const whole = halves[0] !== null && halves[0] % 2 === 0 && halves[1] === halves[0] + 1;
  const names = halves.map((half) => (half === null ? "none" : `half ${half}`));
  return { selected: whole ? String(halves[0] / 2) : names.join(" and "), b: low + high * 65536 };
}

/** Returns the indices of the elements of A in each step, in the order of the steps. */
function stepsOf(instruction, numerics) {
  const elements = Array.from({ length: instruction.rule ? instruction.k / 2 : instruction.k }, (_, place) => place);
  if (numerics.method === "integer") return [elements];
  const isOdd = (element) => Boolean((element >> 1) & 1);
  const parts = numerics.method === "emulated"
    ? [elements.filter((element) => !isOdd(element)), elements.filter(isOdd)] : [elements];
  return parts.flatMap((part) =>
    Array.from({ length: Math.ceil(part.length / numerics.step) }, (_, step) =>
      part.slice(step * numerics.step, (step + 1) * numerics.step)));
}

/** Returns a decoded fp8 number with the exponent that the number has in f16. */
function widened(factor) {
  if (factor.m === 0n) return factor;
  return { ...factor, exponent: Math.max(bitLength(factor.m) - 1 + factor.e, LEAST_F16) };
}

/** Returns NaN, an infinity, or the sign of a finite factor, so that products of these values follow IEEE rules. */
const classOf = (factor) => factor.special ?? Math.sign(factor.number);

function multiplied(element, chosen, instruction, formats, operands, isEmulated) {
  const a = operands.a[element], { chunk, nibble, selected, b } = chosen;
  let x = decode(a, formats[instruction.a], instruction.low.a);
  let y = decode(b, formats[instruction.b], instruction.low.b);
  if (isEmulated) [x, y] = [widened(x), widened(y)];
  const m = x.m * y.m;
  return {
    element, chunk, nibble, selected, a, b, value: x.number * y.number, m, e: x.e + y.e,
    exponent: m === 0n ? null : x.exponent + y.exponent, class: classOf(x) * classOf(y),
  };
}

/** Returns the product of the block scales of A and B for an element of A. */
function scaleOf(element, instruction, formats, operands) {
  if (!instruction.scales) return { m: 1n, e: 0, exponent: 0, special: undefined };
  const place = Math.floor((element * (instruction.rule ? 2 : 1)) / (instruction.k / instruction.scales));
  const [a, b] = ["scaleA", "scaleB"].map((name) => decode(operands[name][place], formats[instruction.scale]));
  return { m: a.m * b.m, e: a.e + b.e, exponent: a.exponent + b.exponent, special: a.special ?? b.special };
}

/** Returns the terms of a sum: scaled products, or scaled sums of groups of products. */
function termsOf(products, scales, isGrouped) {
  if (!isGrouped) {
    const [{ exponent }] = scales;
    return products.map((product) => ({
      elements: [product.element], m: product.m, e: product.e + exponent,
      exponent: product.exponent === null ? null : product.exponent + exponent,
    }));
  }
  return scales.map((scale, group) => {
    const members = products.slice(group * GROUP, (group + 1) * GROUP);
    const sum = members.reduce(add, { m: 0n, e: 0 });
    const counts = scale.m !== 0n && members.some((product) => product.m !== 0n);
    return {
      elements: members.map((product) => product.element), m: sum.m * scale.m, e: sum.e + scale.e,
      exponent: counts ? scale.exponent : null,
    };
  });
}

/** Rounds an exact sum m * 2**e to the result of a step, as a JavaScript number. Zero is positive. */
function roundedSum(m, e, rounding) {
  const isHalf = rounding === "RNE-f16";
  const fractionBits = { "RNE-f16": 10, "RZ-E8M13": 13, "RZ-f32": 23 }[rounding];
  const [least, limit] = isHalf ? [LEAST_F16, 2 ** 16] : [-126, 2 ** 128];
  const { q, last } = rounded(m, e, fractionBits, least, isHalf);
  const number = Number(q) * 2 ** last;
  return q === 0n ? 0 : (m < 0n ? -1 : 1) * (number >= limit ? Infinity : number);
}

function floatStep(products, scales, c, format, numerics) {
  const accumulator = decode(c, format);
  const nanScale = scales.some((scale) => scale.special !== undefined);
  const special = products.reduce((sum, product) => sum + product.class, accumulator.special ?? 0);
  const step = { c, products, rounding: numerics.rounding, e_max: null, alignment_bits: null, total: null };
  const terms = termsOf(products, scales, numerics.method === "grouped");
  const exponentOfC = accumulator.m === 0n ? null : accumulator.exponent;
  terms.push({ elements: [], m: accumulator.m, e: accumulator.e, exponent: exponentOfC });
  if (nanScale || !Number.isFinite(special)) {
    const none = { value: NaN, exponent: null, shift: null, kept: null, cut: null };
    step.terms = terms.map(({ elements }) => ({ elements, ...none }));
    return { ...step, d: encode(nanScale ? NaN : special, format) };
  }
  const bits = numerics.bits;
  const largest = Math.max(numerics.floor, ...terms.map((term) => term.exponent ?? numerics.floor));
  const unit = largest - bits;
  step.terms = terms.map(({ elements, m, e, exponent }) => {
    const kept = truncated(m, e - unit);
    const rest = add({ m, e: e - unit }, { m: -kept, e: 0 });
    return {
      elements, value: Number(m) * 2 ** e, exponent, kept, cut: Number(rest.m) * 2 ** rest.e,
      shift: exponent === null ? null : Math.min(largest - exponent, bits + 2),
    };
  });
  const total = step.terms.reduce((sum, term) => sum + term.kept, 0n);
  const d = encode(roundedSum(total, unit, numerics.rounding), format);
  return { ...step, e_max: largest, alignment_bits: bits, total, d };
}

function integerStep(products, c, format, satfinite) {
  const value = decode(c, format).number;
  const total = products.reduce((sum, product) => sum + product.m, BigInt(value));
  const limit = 2n ** 31n, clamped = total < -limit ? -limit : total >= limit ? limit - 1n : total;
  const result = satfinite ? clamped : BigInt.asIntN(32, total);
  const term = { elements: [], value, exponent: null, shift: null, kept: BigInt(value), cut: null };
  return {
    c, products, terms: [term], e_max: null, alignment_bits: null, total,
    rounding: satfinite ? "clamp to s32" : "wrap to s32", d: encode(Number(result), format),
  };
}

/**
 * Returns the trace {steps, added, d} of one output of an instruction of the catalogue on an architecture. Operands are
 * codes: a and b, nibbles, scaleA and scaleB are arrays, c is one code.
 */
function trace(catalogue, instruction, arch, operands) {
  const { formats, rules, muxes } = catalogue, numerics = catalogue.numerics[instruction.on[arch][0]];
  const selected = select(instruction, muxes[arch], rules, operands), format = formats[instruction.d];
  const isEmulated = numerics.method === "emulated";
  const steps = [];
  let c = isEmulated ? 0 : operands.c;
  for (const elements of stepsOf(instruction, numerics)) {
    const products = elements.map((element) =>
      multiplied(element, selected[element], instruction, formats, operands, isEmulated));
    const starts = numerics.method === "grouped" ? elements.filter((_, place) => place % GROUP === 0) : [elements[0]];
    const scales = starts.map((element) => scaleOf(element, instruction, formats, operands));
    const step = numerics.method === "integer"
      ? integerStep(products, c, format, instruction.satfinite) : floatStep(products, scales, c, format, numerics);
    steps.push(step);
    c = step.d;
  }
  if (!isEmulated) return { steps, added: null, d: c };
  const sum = Math.fround(decode(operands.c, format).number + decode(c, format).number);
  return { steps, added: operands.c, d: encode(sum, format) };
}
