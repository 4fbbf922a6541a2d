// Codes of number formats, and exact arithmetic. A number is an integer m (BigInt) times 2 to the power of e.
"use strict";

const magnitude = (m) => (m < 0n ? -m : m);
const bitLength = (m) => (m === 0n ? 0 : magnitude(m).toString(2).length);

/** Returns the exact sum of two numbers {m, e}. */
function add(one, other) {
  const e = Math.min(one.e, other.e);
  return { m: (one.m << BigInt(one.e - e)) + (other.m << BigInt(other.e - e)), e };
}

/** Truncates m * 2**e toward zero to an integer. */
function truncated(m, e) {
  const kept = e < 0 ? magnitude(m) >> BigInt(-e) : magnitude(m) << BigInt(e);
  return m < 0n ? -kept : kept;
}

/** Rounds m * 2**e to `fractionBits` fraction bits. Returns the magnitude of the result, q * 2**last, as {q, last}. */
function rounded(m, e, fractionBits, leastExponent, toNearest) {
  const last = Math.max(m === 0n ? leastExponent : bitLength(m) - 1 + e, leastExponent) - fractionBits;
  const down = BigInt(Math.max(last - e, 0));
  let q = last < e ? magnitude(m) << BigInt(e - last) : magnitude(m) >> down;
  if (toNearest && down > 0n) {
    const half = 1n << (down - 1n), rest = magnitude(m) & ((1n << down) - 1n);
    if (rest > half || (rest === half && q & 1n)) q += 1n;
  }
  return { q, last };
}

/** Returns a finite JavaScript number as {m, e}. */
function exactly(number) {
  let e = 0;
  for (; !Number.isInteger(number); --e) number *= 2;
  return { m: BigInt(number), e };
}

/**
 * Decodes a code in its container to {m, e, exponent, special, number}. The exponent is that of the significand, which
 * is not normalised. For NaN and infinities, m is 0 and `special` is the value; for numbers, `special` is undefined.
 */
function decode(code, format, lowBit = 0) {
  const raw = Math.floor(code / 2 ** lowBit) % 2 ** format.bits;
  const negative = format.signed && raw >= 2 ** (format.bits - 1);
  if (format.exponentBits === 0) {
    const number = negative ? raw - 2 ** format.bits : raw;
    return { m: BigInt(number), e: 0, exponent: 0, special: undefined, number };
  }
  const one = 2 ** format.fractionBits, top = 2 ** format.exponentBits - 1;
  const fraction = raw % one, field = Math.floor(raw / one) % (top + 1);
  let special;
  if (format.specials === "ieee" && field === top) special = fraction ? NaN : negative ? -Infinity : Infinity;
  if (format.specials === "nan" && field === top && fraction === one - 1) special = NaN;
  if (special !== undefined) return { m: 0n, e: 0, exponent: 0, special, number: special };
  const significand = format.subnormals && field === 0 ? fraction : fraction + one;
  const exponent = Math.max(field, Number(format.subnormals)) - format.bias;
  const e = exponent - format.fractionBits, signed = negative ? -significand : significand;
  return { m: BigInt(signed), e, exponent, special, number: signed * 2 ** e };
}

/** Rounds a number to the nearest code of a format, in its container. Returns null if no code fits. */
function encode(number, format, lowBit = 0) {
  const code = encodeRaw(number, format);
  return code === null ? null : code * 2 ** lowBit;
}

function encodeRaw(number, format) {
  const codes = 2 ** format.bits, negative = number < 0 || Object.is(number, -0);
  if (format.exponentBits === 0) {
    const least = format.signed ? -codes / 2 : 0;
    if (!Number.isInteger(number) || number < least || number >= least + codes) return null;
    return number < 0 ? number + codes : number + 0;
  }
  const largest = codes / (format.signed ? 2 : 1) - 1, one = 2 ** format.fractionBits;
  if (Number.isNaN(number)) return format.specials === "none" ? null : largest;
  if (negative && !format.signed) return null;
  const infinite = format.specials === "ieee" ? largest + 1 - one : Infinity;
  let code = infinite;
  if (Number.isFinite(number)) {
    const { m, e } = exactly(number);
    const { q, last } = rounded(m, e, format.fractionBits, format.least, true);
    if (q === 0n && !format.subnormals) return null;
    code = (last + format.fractionBits - format.least) * one + Number(q) - (format.subnormals ? 0 : one);
    if (code >= infinite) code = infinite;
  }
  if (code > largest - Number(format.specials === "nan")) return null;
  return code + (negative ? codes / 2 : 0);
}

const hexadecimal = (code, bits) => code.toString(16).padStart(Math.ceil(bits / 4), "0");

/**
 * Returns a code as text: the exact decimal if the code has up to 8 bits, or the shortest decimal that is rounded to
 * the code. If no decimal is rounded to the code, the text is a hexadecimal number.
 */
function spell(code, format, lowBit, container) {
  const { number } = decode(code, format, lowBit);
  let text = Number.isNaN(number) ? "nan" : number === Infinity ? "inf" : number === -Infinity ? "-inf" : "";
  for (let digits = format.bits > 8 ? 1 : 17; !text && digits <= 17; ++digits) {
    const shorter = String(Number(number.toPrecision(digits)));
    if (encode(Number(shorter), format, lowBit) === code) text = shorter;
  }
  if (Object.is(number, -0)) text = "-0";
  return parse(text, format, lowBit, container) === code ? text : `0x${hexadecimal(code, container)}`;
}

/** Parses a number, which is rounded to the nearest code, or a code such as 0x3c00. Returns null for invalid text. */
function parse(text, format, lowBit, container) {
  const word = text.trim().toLowerCase();
  if (/^0x[0-9a-f]+$/.test(word)) return Number(word) < 2 ** container ? Number(word) : null;
  const named = { nan: NaN, inf: Infinity, "+inf": Infinity, "-inf": -Infinity }[word];
  if (named !== undefined) return encode(named, format, lowBit);
  return word && Number.isFinite(Number(word)) ? encode(Number(word), format, lowBit) : null;
}
