// The SDK of sandboxd for guests in AssemblyScript, ABI version 1. Copied by sandboxd plugin new; leave it as it is.
//
// One file beside tool.ts or policy.ts, which may import others. sandboxd plugin build runs asc of the npm package
// assemblyscript, with a runtime that frees nothing: memory lasts as long as the call.
//
//   export function get_weather(): i32 {          a tool; the manifest says export: get_weather
//     return tool(c => {
//       const r = c.get("https://api.weather.example/v1/daily", ["q", c.arg("/place").text]);
//       if (r.status == 200) return c.ok(parse(r.body));
//       if (r.status == 404) return c.fail("unknown_place", "no such place");
//       return c.error(r.error);                  a refused call is status 0 and a reason
//     });
//   }
//   export function call(): i32 { return hooks(c => ...); }   all hooks of a module; c.at("/hook") is the point
//   export function judge(): i32 { return guard(c => allow()); }   a guard; the manifest says export: judge
//
// A value that is absent has no members, and its text and number are empty, so what was read need be looked at only
// once. JSON is read strictly: a document with a name twice, bytes after its end or text that is not UTF-8 is absent.
// Numbers keep the text they were written with.

// ---- Texts ----

/** Percent-encodes a text for a url. */
export function encode(text: string): string {
  const bytes = String.UTF8.encode(text), n = bytes.byteLength, out = new Array<string>();
  for (let i = 0; i < n; i++) {
    const c = load<u8>(changetype<usize>(bytes) + i);
    const plain = (c >= 0x61 && c <= 0x7a) || (c >= 0x41 && c <= 0x5a) || (c >= 0x30 && c <= 0x39) || c == 0x2d || c == 0x5f || c == 0x2e || c == 0x7e;
    out.push(plain ? String.fromCharCode(c) : "%" + HEX.charAt(c >> 4).toUpperCase() + HEX.charAt(c & 15).toUpperCase());
  }
  return out.join("");
}

const HEX = "0123456789abcdef";

/** How many characters a text has: code points, not the units of length. */
export function characters(text: string): i32 {
  let n = 0;
  for (let i = 0; i < text.length; n++) i += pair(text, i) ? 2 : 1;
  return n;
}

/** The first characters of a text, at most that many. */
export function first(text: string, most: i32): string {
  let i = 0;
  for (; i < text.length && most > 0; most--) i += pair(text, i) ? 2 : 1;
  return text.substring(0, i);
}

// Whether two units that make one character stand at i.
function pair(s: string, i: i32): bool {
  return (s.charCodeAt(i) & 0xfc00) == 0xd800 && i + 1 < s.length && (s.charCodeAt(i + 1) & 0xfc00) == 0xdc00;
}

/** The text of bytes that are UTF-8; empty if they are not. */
export function decode(bytes: ArrayBuffer): string {
  const start = changetype<usize>(bytes), n = <usize>bytes.byteLength;
  for (let i: usize = 0; i < n;) {
    const a = load<u8>(start + i);
    if (a < 0x80) {
      i++;
      continue;
    }
    const size: usize = a >= 0xc2 && a <= 0xdf ? 2 : (a & 0xf0) == 0xe0 ? 3 : a >= 0xf0 && a <= 0xf4 ? 4 : 0;
    if (size == 0 || n - i < size) return "";
    for (let k: usize = 1; k < size; k++) if ((load<u8>(start + i + k) & 0xc0) != 0x80) return "";
    const b = load<u8>(start + i + 1);
    if ((a == 0xe0 && b < 0xa0) || (a == 0xed && b > 0x9f) || (a == 0xf0 && b < 0x90) || (a == 0xf4 && b > 0x8f)) return "";
    i += size;
  }
  return String.UTF8.decode(bytes);
}

// ---- Reading JSON ----

const NESTING = 80; // deeper documents are absent; the contract has none

/** A JSON value as it was written: a part of a document. */
export class Json {
  constructor(
    private source: string,
    private start: i32,
    private end: i32,
  ) {}

  /** Whether there is a value; null is one. */
  get exists(): bool {
    return this.end > this.start;
  }

  /** The value as it was written; empty if it is absent. */
  get raw(): string {
    return this.source.substring(this.start, this.end);
  }

  /** What it is: "{", "[", "\"", "0" for a number, "t", "f", "n" for null, or "" if it is absent. */
  get type(): string {
    if (!this.exists) return "";
    const c = this.source.charCodeAt(this.start);
    return c == 0x2d || digit(c) ? "0" : String.fromCharCode(c);
  }

  private is(c: i32): bool {
    return this.exists && this.source.charCodeAt(this.start) == c;
  }

  get isObject(): bool {
    return this.is(0x7b);
  }

  get isList(): bool {
    return this.is(0x5b);
  }

  get isText(): bool {
    return this.is(0x22);
  }

  get isNumber(): bool {
    return this.exists && (this.is(0x2d) || digit(this.source.charCodeAt(this.start)));
  }

  /** Whether it is true. */
  get isTrue(): bool {
    return this.is(0x74);
  }

  /** What a string says; empty if the value is none. */
  get text(): string {
    return this.isText ? unquote(this.source, this.start, this.end) : "";
  }

  /** A number as it was written; empty if the value is none. */
  get number(): string {
    return this.isNumber ? this.raw : "";
  }

  /** The decimal that it says: a number, or text that reads like one. */
  get decimal(): Decimal {
    return new Decimal(this.isNumber ? this.raw : this.text);
  }

  /** A whole number, which may be written 3.0 or 3e0; other if the value is none or too large. */
  int(other: i64): i64 {
    if (!this.isNumber) return other;
    const d = this.decimal, n = <i64>d.digits.length;
    if (!d.ok || d.point < n || d.point > 19) return other;
    let u: u64 = 0;
    for (let i: i64 = 0; i < d.point; i++) {
      const next: u64 = i < n ? <u64>(d.digits.charCodeAt(<i32>i) - 0x30) : 0;
      if (u > (u64.MAX_VALUE - next) / 10) return other;
      u = u * 10 + next;
    }
    if (u > <u64>i64.MAX_VALUE + <u64>d.negative) return other;
    return d.negative ? <i64>(0 - u) : <i64>u;
  }

  /** The members of an object or the elements of a list: for (const i = v.each(); i.next();) { i.name, i.index, i.value } */
  each(): Items {
    const has = this.isObject || this.isList;
    return new Items(this.source, has ? this.start : -1, this.end - 1);
  }

  /** The member of an object with exactly that name. */
  member(name: string): Json {
    if (this.isObject) for (const i = this.each(); i.next();) if (i.named(name)) return i.value;
    return ABSENT;
  }

  /** The element of a list, from 0 on. */
  element(index: i32): Json {
    if (this.isList) for (const i = this.each(); i.next();) if (i.index == index) return i.value;
    return ABSENT;
  }

  /** One step of a pointer. */
  step(step: string): Json {
    if (!this.isList) return this.member(step);
    if (step.length == 0 || step.length > 9 || (step.length > 1 && step.charCodeAt(0) == 0x30)) return ABSENT;
    for (let i = 0; i < step.length; i++) if (!digit(step.charCodeAt(i))) return ABSENT;
    return this.element(I32.parseInt(step));
  }

  /** The value at a JSON pointer (RFC 6901), such as "/lines/0/sku"; "" is the value itself. */
  at(pointer: string): Json {
    const list = steps(pointer);
    if (list === null) return ABSENT;
    let v: Json = this;
    for (let i = 0; i < list.length; i++) v = v.step(list[i]);
    return v;
  }

  /** A copy with value at the pointer: it replaces what is there, adds the member, or with "-" as the last step appends
   * to a list. Absent if there is no such place. */
  set(pointer: string, value: Json): Json {
    const list = steps(pointer);
    return list === null || !value.exists ? ABSENT : replace(this, list, 0, value);
  }

  /** A copy without what is at the pointer, if anything is. */
  delete(pointer: string): Json {
    const list = steps(pointer);
    return list === null || !this.at(pointer).exists ? this : replace(this, list, 0, ABSENT);
  }
}

const ABSENT = new Json("", 0, 0);

/** A value that is absent. */
export function absent(): Json {
  return ABSENT;
}

// The steps of a pointer; null if it is none.
function steps(pointer: string): string[] | null {
  if (pointer == "") return [];
  if (pointer.charCodeAt(0) != 0x2f) return null;
  const list = pointer.substring(1).split("/");
  for (let i = 0; i < list.length; i++) list[i] = list[i].replaceAll("~1", "/").replaceAll("~0", "~");
  return list;
}

// A copy of v with value where the steps lead to, without it if value is absent. Absent if there is no such place.
function replace(v: Json, list: string[], from: i32, value: Json): Json {
  if (from == list.length) return value;
  const step = list[from], here = from == list.length - 1, inner = v.step(step);
  const append = here && v.isList && step == "-" && value.exists;
  if ((!v.isObject && !v.isList) || (!inner.exists && !append && !(here && v.isObject))) return ABSENT;
  if (!here) {
    value = replace(inner, list, from + 1, value);
    if (!value.exists) return ABSENT;
  }
  const object = new Obj(), copy = new List();
  let found = false;
  for (const i = v.each(); i.next();) {
    const same = inner.exists && (v.isObject ? i.named(step) : i.index.toString() == step);
    found = found || same;
    if (v.isObject) object.put(i.name, same ? value : i.value);
    else copy.add(same ? value : i.value);
  }
  if (!found) {
    if (v.isObject) object.put(step, value);
    else copy.add(value);
  }
  return v.isObject ? object.done() : copy.done();
}

/** The members of an object or the elements of a list, one after the other. */
export class Items {
  index: i32 = -1;
  value: Json = ABSENT;
  private nameAt: i32 = 0;
  private nameEnd: i32 = 0;

  constructor(
    private source: string,
    private p: i32,
    private end: i32, // where the bracket stands that closes
  ) {}

  /** Goes to the next one; false if there is none. */
  next(): bool {
    if (this.p < 0) return false;
    const s = this.source, end = this.end;
    let p = space(s, this.p, end);
    if (p == end) return false;
    p = space(s, p + 1, end); // past the bracket that opens, or a comma
    if (p == end) return false;
    if (s.charCodeAt(end) == 0x7d) {
      this.nameAt = p;
      this.nameEnd = skip(s, p, end);
      p = space(s, space(s, this.nameEnd, end) + 1, end);
    }
    this.p = skip(s, p, end);
    this.value = new Json(s, p, this.p);
    this.index++;
    return true;
  }

  /** The name of a member; empty in a list. */
  get name(): string {
    return this.nameEnd > this.nameAt ? unquote(this.source, this.nameAt, this.nameEnd) : "";
  }

  /** Whether a member has exactly that name. */
  named(name: string): bool {
    return this.nameEnd > this.nameAt && says(this.source, this.nameAt, this.nameEnd, name);
  }
}

/** The value that a text holds, and nothing else; absent if it is not strict JSON. */
export function parse(text: string): Json {
  const end = text.length, start = space(text, 0, end), after = check(text, start, end, 0);
  return after < 0 || space(text, after, end) != end ? ABSENT : new Json(text, start, after);
}

function digit(c: i32): bool {
  return c >= 0x30 && c <= 0x39;
}

function space(s: string, p: i32, end: i32): i32 {
  while (p < end) {
    const c = s.charCodeAt(p);
    if (c != 0x20 && c != 0x0a && c != 0x09 && c != 0x0d) break;
    p++;
  }
  return p;
}

function hex4(s: string, p: i32, end: i32): i32 {
  if (end - p < 4) return -1;
  let v = 0;
  for (let i = 0; i < 4; i++) {
    const c = s.charCodeAt(p + i);
    const d = digit(c) ? c - 0x30 : c >= 0x61 && c <= 0x66 ? c - 0x57 : c >= 0x41 && c <= 0x46 ? c - 0x37 : -1;
    if (d < 0) return -1;
    v = (v << 4) | d;
  }
  return v;
}

// Goes past the string at p, whose form it checks; -1 if it is none.
function checkString(s: string, p: i32, end: i32): i32 {
  if (p >= end || s.charCodeAt(p) != 0x22) return -1;
  p++;
  while (p < end) {
    const c = s.charCodeAt(p);
    if (c == 0x22) return p + 1;
    if (c < 0x20) return -1;
    if (c != 0x5c) {
      if ((c & 0xf800) != 0xd800) p++;
      else if (pair(s, p)) p += 2;
      else return -1;
      continue;
    }
    if (end - p < 2) return -1;
    const e = s.charCodeAt(p + 1);
    if (e != 0x75) {
      if (e != 0x22 && e != 0x5c && e != 0x2f && e != 0x62 && e != 0x66 && e != 0x6e && e != 0x72 && e != 0x74) return -1;
      p += 2;
      continue;
    }
    let u = hex4(s, p + 2, end);
    if (u < 0 || (u & 0xfc00) == 0xdc00) return -1;
    p += 6;
    if ((u & 0xfc00) != 0xd800) continue;
    if (end - p < 6 || s.charCodeAt(p) != 0x5c || s.charCodeAt(p + 1) != 0x75) return -1;
    u = hex4(s, p + 2, end);
    if ((u & 0xfc00) != 0xdc00) return -1;
    p += 6;
  }
  return -1;
}

function digitsEnd(s: string, p: i32, end: i32): i32 {
  const start = p;
  while (p < end && digit(s.charCodeAt(p))) p++;
  return p == start ? -1 : p;
}

// Goes past the number at p; -1 if it is none.
function checkNumber(s: string, p: i32, end: i32): i32 {
  if (p < end && s.charCodeAt(p) == 0x2d) p++;
  if (p < end && s.charCodeAt(p) == 0x30) p++;
  else p = digitsEnd(s, p, end);
  if (p < 0) return -1;
  if (p < end && s.charCodeAt(p) == 0x2e) p = digitsEnd(s, p + 1, end);
  if (p < 0) return -1;
  if (p < end && (s.charCodeAt(p) | 0x20) == 0x65) {
    p++;
    if (p < end && (s.charCodeAt(p) == 0x2b || s.charCodeAt(p) == 0x2d)) p++;
    p = digitsEnd(s, p, end);
  }
  return p;
}

// Whether an object, of which the members up to end were checked, has a name.
function hasName(s: string, object: i32, end: i32, name: string): bool {
  let p = space(s, object + 1, end);
  while (p < end && s.charCodeAt(p) == 0x22) {
    const after = skip(s, p, end);
    if (says(s, p, after, name)) return true;
    p = skip(s, space(s, space(s, after, end) + 1, end), end);
    p = space(s, space(s, p, end) + 1, end);
  }
  return false;
}

// Goes past the value at p, whose form it checks; -1 if it is none.
function check(s: string, p: i32, end: i32, depth: i32): i32 {
  if (p >= end) return -1;
  const c = s.charCodeAt(p);
  if (c == 0x22) return checkString(s, p, end);
  if (c == 0x2d || digit(c)) return checkNumber(s, p, end);
  if (c == 0x74 || c == 0x66 || c == 0x6e) {
    const word = c == 0x74 ? "true" : c == 0x66 ? "false" : "null";
    return end - p >= word.length && s.substr(p, word.length) == word ? p + word.length : -1;
  }
  if ((c != 0x7b && c != 0x5b) || depth == NESTING) return -1;
  const start = p, close = c + 2;
  p = space(s, p + 1, end);
  if (p < end && s.charCodeAt(p) == close) return p + 1;
  let last = "", any = false; // the greatest name so far
  for (;;) {
    if (c == 0x7b) {
      const name = p;
      p = checkString(s, p, end);
      if (p < 0) return -1;
      // Documents of the host are sorted by name, so one look is enough there.
      const text = unquote(s, name, p);
      if (any && text == last) return -1;
      if (!any || text > last) last = text;
      else if (hasName(s, start, name, text)) return -1;
      any = true;
      p = space(s, p, end);
      if (p >= end || s.charCodeAt(p) != 0x3a) return -1;
      p = space(s, p + 1, end);
    }
    p = check(s, p, end, depth + 1);
    if (p < 0) return -1;
    p = space(s, p, end);
    if (p >= end) return -1;
    const d = s.charCodeAt(p);
    if (d == close) return p + 1;
    if (d != 0x2c) return -1;
    p = space(s, p + 1, end);
  }
  return -1;
}

// Goes past a value that was checked.
function skip(s: string, p: i32, end: i32): i32 {
  let depth = 0;
  do {
    const c = s.charCodeAt(p);
    if (c == 0x22) {
      for (p++; s.charCodeAt(p) != 0x22; p++) if (s.charCodeAt(p) == 0x5c) p++;
      p++;
    } else if (c == 0x7b || c == 0x5b) {
      depth++;
      p++;
    } else if (c == 0x7d || c == 0x5d) {
      depth--;
      p++;
    } else if (c == 0x2c || c == 0x3a || c <= 0x20) p++;
    else {
      while (p < end) {
        const w = s.charCodeAt(p);
        if (w == 0x2c || w == 0x7d || w == 0x5d || w == 0x3a || w <= 0x20) break;
        p++;
      }
    }
  } while (depth > 0);
  return p;
}

function escaped(s: string, p: i32, end: i32): bool {
  for (; p < end; p++) if (s.charCodeAt(p) == 0x5c) return true;
  return false;
}

// Whether a string that was checked says exactly that.
function says(s: string, p: i32, end: i32, text: string): bool {
  if (escaped(s, p, end)) return unquote(s, p, end) == text;
  if (end - p - 2 != text.length) return false;
  for (let i = 0; i < text.length; i++) if (s.charCodeAt(p + 1 + i) != text.charCodeAt(i)) return false;
  return true;
}

// What a string that was checked says; p is at its first quote and end behind its last.
function unquote(s: string, p: i32, end: i32): string {
  p++;
  end--;
  if (!escaped(s, p, end)) return s.substring(p, end);
  const parts = new Array<string>();
  let plain = p;
  while (p < end) {
    if (s.charCodeAt(p) != 0x5c) {
      p++;
      continue;
    }
    parts.push(s.substring(plain, p));
    const c = s.charCodeAt(p + 1);
    if (c == 0x75) {
      parts.push(String.fromCharCode(hex4(s, p + 2, end)));
      p += 6;
    } else {
      parts.push(c == 0x62 ? "\b" : c == 0x66 ? "\f" : c == 0x6e ? "\n" : c == 0x72 ? "\r" : c == 0x74 ? "\t" : String.fromCharCode(c));
      p += 2;
    }
    plain = p;
  }
  parts.push(s.substring(plain, end));
  return parts.join("");
}

// ---- Decimals ----

/** An exact number. It keeps the text it was written with. */
export class Decimal {
  /** Whether the text is a number in the form that JSON gives numbers, with an exponent of at most a million. */
  ok: bool = false;
  negative: bool = false;
  /** Significant digits, first and last not "0"; empty for zero. */
  digits: string = "";
  /** The value is 0.digits times ten to the power of point. */
  point: i64 = 0;

  constructor(public text: string) {
    const end = text.length;
    if (end == 0 || checkNumber(text, 0, end) != end) return this;
    this.negative = text.charCodeAt(0) == 0x2d;
    let p = this.negative ? 1 : 0, e = text.indexOf("e");
    if (e < 0) e = text.indexOf("E");
    const mantissa = text.substring(p, e < 0 ? end : e), dot = mantissa.indexOf(".");
    const whole = dot < 0 ? mantissa.length : dot;
    let all = dot < 0 ? mantissa : mantissa.substring(0, dot) + mantissa.substring(dot + 1);
    let exponent: i64 = 0;
    if (e >= 0) {
      p = e + 1;
      const minus = text.charCodeAt(p) == 0x2d;
      if (minus || text.charCodeAt(p) == 0x2b) p++;
      for (; p < end; p++) {
        exponent = exponent * 10 + text.charCodeAt(p) - 0x30;
        if (exponent > 1000000) return this;
      }
      if (minus) exponent = -exponent;
    }
    let leading = 0, n = all.length;
    while (leading < n && all.charCodeAt(leading) == 0x30) leading++;
    while (n > leading && all.charCodeAt(n - 1) == 0x30) n--;
    this.digits = all.substring(leading, n);
    if (this.digits == "") this.negative = false;
    else this.point = <i64>whole - leading + exponent;
    this.ok = true;
  }

  /** -1, 0 or 1. */
  get sign(): i32 {
    return this.digits == "" ? 0 : this.negative ? -1 : 1;
  }

  /** -1, 0 or 1 as it is less than, equal to or greater than b. Both must be ok. */
  compare(b: Decimal): i32 {
    if (this.sign != b.sign) return this.sign < b.sign ? -1 : 1;
    let size = this.point < b.point ? -1 : this.point > b.point ? 1 : this.digits < b.digits ? -1 : this.digits > b.digits ? 1 : 0;
    return this.negative ? -size : size;
  }
}

// ---- Writing JSON ----

/** The string that says a text. Half of a character becomes U+FFFD. */
export function quote(text: string): Json {
  const parts = new Array<string>();
  let plain = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    let as = "";
    if (c == 0x22 || c == 0x5c) as = "\\" + String.fromCharCode(c);
    else if (c < 0x20) as = "\\u00" + HEX.charAt(c >> 4) + HEX.charAt(c & 15);
    else if ((c & 0xf800) != 0xd800) continue;
    else if (pair(text, i)) {
      i++;
      continue;
    } else as = "\ufffd";
    parts.push(text.substring(plain, i));
    parts.push(as);
    plain = i + 1;
  }
  const raw = '"' + (plain == 0 ? text : parts.join("") + text.substring(plain)) + '"';
  return new Json(raw, 0, raw.length);
}

/** A whole number. */
export function whole(v: i64): Json {
  return made(v.toString());
}

export function bool_(v: bool): Json {
  return made(v ? "true" : "false");
}

function made(raw: string): Json {
  return new Json(raw, 0, raw.length);
}

/** An object that is being written: new Obj().put("place", quote(place)).done() */
export class Obj {
  private parts: string[] = [];

  /** Adds a member, whose name must be new. An absent value is none. */
  put(name: string, value: Json): Obj {
    if (value.exists) this.parts.push(quote(name).raw + ":" + value.raw);
    return this;
  }

  /** Adds a member that is text. An empty text is none. */
  text(name: string, text: string): Obj {
    return text == "" ? this : this.put(name, quote(text));
  }

  done(): Json {
    return made("{" + this.parts.join(",") + "}");
  }
}

/** A list that is being written. */
export class List {
  private parts: string[] = [];

  /** Adds an element. An absent value is none. */
  add(value: Json): List {
    if (value.exists) this.parts.push(value.raw);
    return this;
  }

  done(): Json {
    return made("[" + this.parts.join(",") + "]");
  }
}

// ---- The call ----

// @ts-ignore: decorator
@external("sandboxd:host", "input_length")
declare function input_length(): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "input_read")
declare function input_read(to: usize, off: u32, n: u32): u32;
// @ts-ignore: decorator
@external("sandboxd:host", "output_set")
declare function output_set(p: usize, n: u32): void;
// @ts-ignore: decorator
@external("sandboxd:host", "reply_read")
declare function reply_read(to: usize, off: u32, n: u32): u32;

/** What a tool or hook answers; only the methods of a call make one. */
export class Result {
  constructor(public document: Json) {}
}

function answer(member: string, v: Json): Result {
  return new Result(new Obj().put(member, v).put("format", whole(1)).done());
}

/** One call of a guest. Its input is the document of the contract: a tool call, a hook call or a question. */
export class Call {
  private reasons: List = new List();
  private entries: i32 = 0;

  // The members of input, so that what is asked for is not looked for from its beginning.
  private names: string[] = [];
  private values: Json[] = [];

  constructor(public input: Json) {
    for (const i = input.each(); i.next();) {
      this.names.push(i.name);
      this.values.push(i.value);
    }
  }

  /** A value of the input, such as c.at("/user/id"). */
  at(pointer: string): Json {
    if (pointer == "" || pointer.charCodeAt(0) != 0x2f) return this.input.at(pointer);
    let end = pointer.indexOf("/", 1);
    if (end < 0) end = pointer.length;
    const i = this.names.indexOf(pointer.substring(1, end));
    return i < 0 ? ABSENT : this.values[i].at(pointer.substring(end));
  }

  /** A value of a tool's arguments; c.arg("") is all of them. */
  arg(pointer: string): Json {
    return this.at("/args").at(pointer);
  }

  /** What the operator configured under a name; empty if nothing. */
  config(name: string): string {
    return this.at("/config").member(name).text;
  }

  /** When the call began, which for a guard is all it may know of time. */
  now(): Time {
    return new Time(this.at("/now").text);
  }

  // Answers of tools.

  /** The result. A value that is absent is a failure. */
  ok(v: Json): Result {
    return v.exists ? answer("result", v) : this.fail("bad_result", "result: no JSON");
  }

  /** A failure that the model reads. The code, [a-z_]{1,40}, is the author's. */
  fail(code: string, message: string): Result {
    return answer("fail", new Obj().text("code", code).put("message", quote(message)).done());
  }

  /** A failure without a code, such as that of a host call. */
  error(message: string): Result {
    return this.fail("", message);
  }

  /** No result: a streaming tool has sent its parts, a long-running one has nothing to say yet. */
  nothing(): Result {
    return answer("", ABSENT);
  }

  // Answers of hooks.

  /** The run goes on as it was. */
  unchanged(): Result {
    return this.nothing();
  }

  /** The run goes on with a changed document: member is args, result, request, response, content or event. A document
   * that is absent is an error. */
  change(member: string, document: Json): Result {
    return document.exists ? answer(member, document) : this.hookError(member + ": there is no such place");
  }

  /** The answer of the hook, an object, which ends the chain of hooks at this point. */
  answer(v: Json): Result {
    return v.isObject ? answer("answer", v) : this.hookError("answer: no object");
  }

  /** The hook failed. */
  hookError(message: string): Result {
    return answer("error", quote(message == "" ? "the hook failed" : message));
  }

  // Of guards.

  /** Tells the operator what a verdict rests on, at most 16 times. at is a JSON pointer into the judged document; texts
   * may be empty, and are cut at 256 characters. */
  why(rule: string, at: string, saw: string): void {
    if (this.entries++ >= 16) return;
    this.reasons.add(new Obj().text("rule", first(rule, 256)).text("at", first(at, 256)).text("saw", first(saw, 256)).done());
  }

  /** What why was told; absent if nothing. */
  whys(): Json {
    return this.entries == 0 ? ABSENT : this.reasons.done();
  }

  // Host calls. One that is refused is a value: it had no effect, and the guest goes on.

  /** Writes a line to the operator's log; level is debug, info, warn or error. One that the host refuses is lost. */
  log(level: string, message: string): void {
    ask("log", host_log, new Obj().put("level", quote(level)).put("message", quote(message)).done());
  }

  /** Gets a url, with names and values in turn, percent-encoded, as its query. */
  get(url: string, query: string[] = []): Http {
    for (let i = 0; i + 1 < query.length; i += 2) url += (i == 0 ? "?" : "&") + encode(query[i]) + "=" + encode(query[i + 1]);
    return this.send("GET", url);
  }

  /** Sends a request. headers is an object of texts, secrets a list of {"secret": NAME, "header": NAME, "prefix":
   * TEXT}, which the guest never sees; either may be absent. */
  send(method: string, url: string, headers: Json = ABSENT, secrets: Json = ABSENT, body: ArrayBuffer = new ArrayBuffer(0)): Http {
    const head = new Obj().text("method", method).put("url", quote(url)).put("headers", headers).put("secrets", secrets).done();
    const bytes = String.UTF8.encode(head.raw);
    return new Http(reply("http", host_http(changetype<usize>(bytes), bytes.byteLength, changetype<usize>(body), body.byteLength)));
  }

  /** Reads a state value. Keys have their scope: session:, user:, app: or temp:. */
  state(key: string): Value {
    return new Value(ask("state_get", host_state_get, new Obj().put("key", quote(key)).done()));
  }

  /** Writes a state value. It counts unless the call is denied. */
  setState(key: string, value: Json): Reply {
    return ask("state_set", host_state_set, new Obj().put("values", new Obj().put(key, value).done()).done());
  }

  /** The names of artifacts that are granted: {"names": [...]}. */
  artifacts(): Reply {
    return ask("artifact_list", host_artifact_list, new Obj().done());
  }

  /** Reads at most 64 KiB of an artifact, from an offset on; no bytes at its end. Version 0 is the newest. */
  artifact(name: string, version: i64, offset: i64): Reply {
    const o = new Obj().put("name", quote(name)).put("offset", whole(offset));
    if (version != 0) o.put("version", whole(version));
    return ask("artifact_read", host_artifact_read, o.done());
  }

  /** Saves an artifact: {"version": N}. type is its media type. */
  saveArtifact(name: string, type: string, body: ArrayBuffer): Reply {
    const bytes = String.UTF8.encode(new Obj().put("name", quote(name)).put("type", quote(type)).done().raw);
    return reply("artifact_save", host_artifact_save(changetype<usize>(bytes), bytes.byteLength, changetype<usize>(body), body.byteLength));
  }

  /** kv keeps small values and counters between calls. ttl_ms is how long one lives, 0 until it is deleted. A guard
   * that cannot read or count should deny. */
  kv(key: string): Value {
    return new Value(ask("kv_get", host_kv_get, new Obj().put("key", quote(key)).done()));
  }

  setKV(key: string, value: Json, ttl_ms: i64): Reply {
    const o = new Obj().put("key", quote(key)).put("value", value);
    if (ttl_ms != 0) o.put("ttl_ms", whole(ttl_ms));
    return ask("kv_set", host_kv_set, o.done());
  }

  deleteKV(key: string): Reply {
    return ask("kv_delete", host_kv_delete, new Obj().put("key", quote(key)).done());
  }

  /** Adds n to a counter in one step, unless the sum would exceed most. */
  addKV(key: string, n: i64, most: i64, ttl_ms: i64): Count {
    const o = new Obj().put("key", quote(key)).put("most", whole(most)).put("n", whole(n));
    if (ttl_ms != 0) o.put("ttl_ms", whole(ttl_ms));
    return new Count(ask("kv_add", host_kv_add, o.done()));
  }

  /** What was said in earlier sessions of the user: {"entries": [{"author", "text", "time"}]}. */
  searchMemory(query: string): Reply {
    return ask("memory_search", host_memory_search, new Obj().put("query", quote(query)).done());
  }

  /** Sends a part of the result, in a streaming tool. One that goes on when it is not ok is stopped. */
  emit(chunk: Json): Reply {
    return ask("emit", host_emit, new Obj().put("chunk", chunk).done());
  }

  /** Asks a person about this call. The tool should return at once; it is called again with c.at("/confirmation").
   * payload is shown beside the hint; it may be absent. */
  askPerson(hint: string, payload: Json = ABSENT): Reply {
    return ask("confirm", host_confirm, new Obj().put("hint", quote(hint)).put("payload", payload).done());
  }

  /** Hands the conversation to another agent after this step. */
  transfer(agent: string): Reply {
    return ask("transfer", host_transfer, new Obj().put("agent", quote(agent)).done());
  }

  /** Ends the work of this agent and returns to the one above it. */
  escalate(): Reply {
    return ask("escalate", host_escalate, new Obj().done());
  }

  /** Makes the result of this call the answer, without another turn of the model. */
  skipSummary(): Reply {
    return ask("skip_summary", host_skip_summary, new Obj().done());
  }

  /** Randomness from the host. */
  random(n: i32): ArrayBuffer {
    const bytes = new ArrayBuffer(n);
    if (random_get(changetype<usize>(bytes), n) != 0) unreachable();
    return bytes;
  }

  /** Nanoseconds since 1970. Time stands at the start of the call unless it was granted the clock. */
  clock(): i64 {
    const bytes = new ArrayBuffer(8);
    if (clock_time_get(0, 1, changetype<usize>(bytes)) != 0) unreachable();
    return load<i64>(changetype<usize>(bytes));
  }
}

/** A moment, in UTC. */
export class Time {
  /** Whether the text was one. */
  ok: bool = false;
  year: i32 = 0;
  month: i32 = 0;
  day: i32 = 0;
  hour: i32 = 0;
  minute: i32 = 0;
  second: i32 = 0;
  /** 0 on Sundays. */
  weekday: i32 = 0;

  constructor(text: string) {
    const form = "dddd-dd-ddTdd:dd:dd";
    if (text.length < 20 || text.charCodeAt(text.length - 1) != 0x5a) return this;
    const f = new StaticArray<i32>(6);
    let field = 0;
    for (let i = 0; i < form.length; i++) {
      const c = text.charCodeAt(i);
      if (form.charCodeAt(i) != 0x64) {
        if (c != form.charCodeAt(i)) return this;
        field++;
      } else if (!digit(c)) return this;
      else f[field] = f[field] * 10 + c - 0x30;
    }
    if (f[1] < 1 || f[1] > 12 || f[2] < 1 || f[2] > 31 || f[3] > 23 || f[4] > 59 || f[5] > 60) return this;
    this.year = f[0];
    this.month = f[1];
    this.day = f[2];
    this.hour = f[3];
    this.minute = f[4];
    this.second = f[5];
    const shift: StaticArray<i32> = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4]; // Sakamoto's
    const y = f[1] < 3 ? f[0] - 1 : f[0];
    this.weekday = (y + y / 4 - y / 100 + y / 400 + shift[f[1] - 1] + f[2]) % 7;
    this.ok = true;
  }
}

function readAll(n: u32, read: (to: usize, off: u32, n: u32) => u32): ArrayBuffer {
  const bytes = new ArrayBuffer(n);
  for (let off: u32 = 0; off < n;) {
    const got = read(changetype<usize>(bytes) + off, off, n - off);
    if (got == 0) unreachable();
    off += got;
  }
  return bytes;
}

// Reads the input; what is not a document of this contract traps.
function begin(): Call {
  const n = input_length();
  if (n > i32.MAX_VALUE) unreachable();
  const c = new Call(parse(decode(readAll(<u32>n, (to: usize, off: u32, n: u32): u32 => input_read(to, off, n)))));
  if (c.at("/format").number != "1") unreachable();
  return c;
}

function output(v: Json): i32 {
  if (!v.exists) unreachable();
  const bytes = String.UTF8.encode(v.raw);
  output_set(changetype<usize>(bytes), bytes.byteLength);
  return 0;
}

/** Serves a call of a tool. */
export function tool(f: (c: Call) => Result): i32 {
  const c = begin();
  if (c.at("/kind").text != "tool") unreachable();
  return output(f(c).document);
}

/** Serves a call of a hook; c.at("/hook") is the point. */
export function hooks(f: (c: Call) => Result): i32 {
  const c = begin();
  if (c.at("/kind").text != "hook") unreachable();
  return output(f(c).document);
}

// ---- Guards ----

/** What a guard decides; only the functions below make one. */
export class Verdict {
  code: string = "";
  text: string = ""; // reason or hint
  grants: Json = ABSENT;
  document: Json = ABSENT;
  hold: i32 = 0;
  constructor(public ruling: string) {}
}

export function allow(): Verdict {
  return new Verdict("allow");
}

/** Allows a response but for the last characters of a stream, at most 8192, until the guard has seen what follows. */
export function allowBut(hold: i32): Verdict {
  const v = new Verdict("allow");
  v.hold = hold;
  return v;
}

/** Refuses. The code, [a-z_]{1,40}, is the author's; the model reads the reason, which is cut at 256 characters. */
export function deny(code: string, reason: string): Verdict {
  const v = new Verdict("deny");
  v.code = code;
  v.text = reason;
  return v;
}

/** Asks a person, who reads the hint, cut at 256 characters. */
export function confirm(hint: string): Verdict {
  const v = new Verdict("confirm");
  v.text = hint;
  return v;
}

/** Lets the call pass with at most these grants. */
export function narrow(grants: string[]): Verdict {
  const v = new Verdict("narrow"), list = new List();
  for (let i = 0; i < grants.length; i++) list.add(quote(grants[i]));
  v.grants = list.done();
  return v;
}

/** Replaces the judged document, in a phase that the manifest lists under mutates. An absent one denies. */
export function rewrite(document: Json): Verdict {
  if (!document.exists) unreachable();
  const v = new Verdict("rewrite");
  v.document = document;
  return v;
}

function accept(settings: Json): string {
  return "";
}

/** Serves a question of the host: c.at("/phase"), "/call/tool", "/call/args/..." and "/settings/..." are what a guard
 * judges by. With check, which the manifest says too, it serves settings calls: check says what is wrong with them,
 * "" for nothing. A guard that traps denies. */
export function guard(judge: (c: Call) => Verdict, check: (settings: Json) => string = accept): i32 {
  const c = begin();
  if (c.at("/kind").text == "settings") {
    const wrong = check(c.at("/settings"));
    return output(answer("error", wrong == "" ? ABSENT : quote(wrong)).document);
  }
  if (c.at("/kind").text != "guard") unreachable();
  const v = judge(c), o = new Obj();
  o.text("code", v.code).put("document", v.document).put("document_sha256", c.at("/document_sha256")).put("grants", v.grants);
  if (v.hold != 0) o.put("hold", whole(v.hold));
  o.put("nonce", c.at("/nonce")).text(v.ruling == "confirm" ? "hint" : "reason", first(v.text, 256));
  return output(o.put("verdict", quote(v.ruling)).put("why", c.whys()).done());
}

// ---- Host calls ----

// @ts-ignore: decorator
@external("sandboxd:host", "log")
declare function host_log(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "http")
declare function host_http(p: usize, n: u32, body: usize, size: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "state_get")
declare function host_state_get(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "state_set")
declare function host_state_set(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "artifact_list")
declare function host_artifact_list(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "artifact_read")
declare function host_artifact_read(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "artifact_save")
declare function host_artifact_save(p: usize, n: u32, body: usize, size: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "kv_get")
declare function host_kv_get(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "kv_set")
declare function host_kv_set(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "kv_delete")
declare function host_kv_delete(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "kv_add")
declare function host_kv_add(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "memory_search")
declare function host_memory_search(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "emit")
declare function host_emit(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "confirm")
declare function host_confirm(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "transfer")
declare function host_transfer(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "escalate")
declare function host_escalate(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("sandboxd:host", "skip_summary")
declare function host_skip_summary(p: usize, n: u32): i64;
// @ts-ignore: decorator
@external("wasi_snapshot_preview1", "random_get")
declare function random_get(p: usize, n: u32): i32;
// @ts-ignore: decorator
@external("wasi_snapshot_preview1", "clock_time_get")
declare function clock_time_get(clock: i32, precision: i64, ns: usize): i32;

/** What a host call gave. */
export class Reply {
  ok: bool = false;
  /** Of one that is ok. */
  bytes: ArrayBuffer = new ArrayBuffer(0);
  /** Of one that is not, such as capability_denied. */
  code: string = "";
  /** "FUNCTION: CODE: MESSAGE" */
  error: string = "";

  /** What the bytes say; absent if that is not strict JSON. */
  get json(): Json {
    return parse(decode(this.bytes));
  }
}

function reply(name: string, code: i64): Reply {
  const r = new Reply();
  r.bytes = readAll(<u32>code, (to: usize, off: u32, n: u32): u32 => reply_read(to, off, n));
  r.ok = code >= 0;
  if (!r.ok) {
    const e = r.json;
    r.bytes = new ArrayBuffer(0);
    r.code = e.at("/code").text;
    r.error = name + ": " + r.code + ": " + e.at("/message").text;
  }
  return r;
}

// Makes a host call. The function is inlined, so that a guest imports what it calls and nothing else.
// @ts-ignore: decorator
@inline
function ask(name: string, host: (p: usize, n: u32) => i64, request: Json): Reply {
  const bytes = String.UTF8.encode(request.raw);
  return reply(name, host(changetype<usize>(bytes), bytes.byteLength));
}

/** The answer to a request, or why there is none: then the status is 0. Any other status is an answer. */
export class Http {
  status: i32 = 0;
  /** Names in lower case. */
  headers: Json = ABSENT;
  bytes: ArrayBuffer = new ArrayBuffer(0);
  code: string;
  error: string;

  constructor(r: Reply) {
    this.code = r.code;
    this.error = r.error;
    if (!r.ok) return this;
    if (r.bytes.byteLength < 4) unreachable();
    const n = load<u32>(changetype<usize>(r.bytes));
    if (n > <u32>r.bytes.byteLength - 4) unreachable();
    const head = parse(decode(r.bytes.slice(4, 4 + n)));
    this.status = <i32>head.at("/status").int(0);
    if (this.status == 0) unreachable();
    this.headers = head.at("/headers");
    this.bytes = r.bytes.slice(4 + n);
  }

  /** The body as text; empty if it is not UTF-8. */
  get body(): string {
    return decode(this.bytes);
  }
}

/** A value that was read: of a state, or of kv. */
export class Value {
  found: bool;
  value: Json;
  /** Of a read that was refused. */
  code: string;
  error: string;

  constructor(r: Reply) {
    const v = r.json;
    this.found = v.at("/found").isTrue;
    this.value = v.at("/value");
    this.code = r.code;
    this.error = r.error;
  }
}

/** A counter after an addition. */
export class Count {
  added: bool;
  count: i64;
  code: string;
  error: string;

  constructor(r: Reply) {
    const v = r.json;
    this.added = v.at("/added").isTrue;
    this.count = v.at("/count").int(0);
    this.code = r.code;
    this.error = r.error;
  }
}
