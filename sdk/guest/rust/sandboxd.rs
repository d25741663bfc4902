//! The SDK of sandboxd for guests in Rust, ABI version 1. Copied by sandboxd plugin new; leave it as it is.
//!
//! One file beside tool.rs or policy.rs, without crates: sandboxd plugin build runs rustc for wasm32-unknown-unknown.
//!
//! ```text
//! #[no_mangle]
//! pub extern "C" fn get_weather() -> i32 {      // a tool; the manifest says export: get_weather
//!     tool(|c| {
//!         let r = c.get("https://api.weather.example/v1/daily", &[("q", &c.arg("/place").text_or(""))])?;
//!         match r.status {
//!             200 => c.ok(r.json()),
//!             404 => c.fail("unknown_place", "no such place"),
//!             s => Err(Error::from(format!("weather service answered {}", s))),
//!         }
//!     })
//! }
//! #[no_mangle]
//! pub extern "C" fn call() -> i32 { hooks(|c| c.unchanged()) }     // all hooks of a module; c.at("/hook") is the point
//! #[no_mangle]
//! pub extern "C" fn judge() -> i32 { guard(|c| allow(), |_| Ok(())) }   // a guard; the manifest says export: judge
//! ```
//!
//! A host call that is refused is an [Error], had no effect, and what a tool returns as an error the model reads. A
//! value that is absent has no members and is no text and no number. JSON is read strictly: a document with a name
//! twice, bytes after its end or text that is not UTF-8 is absent. Numbers keep the text they were written with.
#![allow(dead_code)]

use std::cmp::Ordering;

// ---- Reading JSON ----

/// Deeper documents are absent; the contract has none.
const NESTING: usize = 80;

/// A JSON value as it was written: a part of a document.
#[derive(Clone, Copy, PartialEq)]
pub struct Json<'a>(&'a str);

/// The value that bytes hold, and nothing else; absent if they are not strict JSON.
pub fn parse(bytes: &[u8]) -> Json {
    let s = match std::str::from_utf8(bytes) {
        Ok(s) => s,
        Err(_) => return Json(""),
    };
    let start = space(bytes, 0);
    match check(s, start, 0) {
        Some(end) if space(bytes, end) == bytes.len() => Json(&s[start..end]),
        _ => Json(""),
    }
}

fn space(b: &[u8], mut p: usize) -> usize {
    while p < b.len() && matches!(b[p], b' ' | b'\n' | b'\t' | b'\r') {
        p += 1;
    }
    p
}

fn hex4(b: &[u8], p: usize) -> Option<u32> {
    let mut v = 0;
    for c in b.get(p..p + 4)? {
        v = v << 4 | (*c as char).to_digit(16)?;
    }
    Some(v)
}

// Goes past the string at p, whose form it checks. What is UTF-8 was checked before.
fn check_string(b: &[u8], mut p: usize) -> Option<usize> {
    if b.get(p) != Some(&b'"') {
        return None;
    }
    p += 1;
    loop {
        match *b.get(p)? {
            b'"' => return Some(p + 1),
            c if c < 0x20 => return None,
            b'\\' => match *b.get(p + 1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => p += 2,
                b'u' => match hex4(b, p + 2)? {
                    0xd800..=0xdbff => {
                        if b.get(p + 6..p + 8) != Some(b"\\u") || !(0xdc00..=0xdfff).contains(&hex4(b, p + 8)?) {
                            return None;
                        }
                        p += 12;
                    }
                    0xdc00..=0xdfff => return None,
                    _ => p += 6,
                },
                _ => return None,
            },
            _ => p += 1,
        }
    }
}

fn digits_end(b: &[u8], start: usize) -> Option<usize> {
    let mut p = start;
    while p < b.len() && b[p].is_ascii_digit() {
        p += 1;
    }
    if p == start {
        None
    } else {
        Some(p)
    }
}

fn check_number(b: &[u8], mut p: usize) -> Option<usize> {
    if b.get(p) == Some(&b'-') {
        p += 1;
    }
    p = if b.get(p) == Some(&b'0') { p + 1 } else { digits_end(b, p)? };
    if b.get(p) == Some(&b'.') {
        p = digits_end(b, p + 1)?;
    }
    if matches!(b.get(p), Some(b'e' | b'E')) {
        p += 1;
        if matches!(b.get(p), Some(b'+' | b'-')) {
            p += 1;
        }
        p = digits_end(b, p)?;
    }
    Some(p)
}

// Goes past the value at p, whose form it checks.
fn check(s: &str, mut p: usize, depth: usize) -> Option<usize> {
    let b = s.as_bytes();
    let c = *b.get(p)?;
    match c {
        b'"' => return check_string(b, p),
        b'-' | b'0'..=b'9' => return check_number(b, p),
        b't' | b'f' | b'n' => {
            let word: &[u8] = if c == b't' { b"true" } else if c == b'f' { b"false" } else { b"null" };
            return if b[p..].starts_with(word) { Some(p + word.len()) } else { None };
        }
        b'{' | b'[' if depth < NESTING => {}
        _ => return None,
    }
    let (start, close) = (p, c + 2);
    p = space(b, p + 1);
    if b.get(p) == Some(&close) {
        return Some(p + 1);
    }
    let mut last: Option<String> = None; // the greatest name so far
    loop {
        if c == b'{' {
            let after = check_string(b, p)?;
            // Documents of the host are sorted by name, so one look is enough there.
            let name = unquote(&s[p..after]);
            match &last {
                Some(l) if *l == name => return None,
                Some(l) if *l > name => {
                    if (Items { s: &s[start..p], p: 0, index: 0 }).any(|i| i.name() == name) {
                        return None;
                    }
                }
                _ => last = Some(name),
            }
            p = space(b, after);
            if b.get(p) != Some(&b':') {
                return None;
            }
            p = space(b, p + 1);
        }
        p = space(b, check(s, p, depth + 1)?);
        match *b.get(p)? {
            d if d == close => return Some(p + 1),
            b',' => p = space(b, p + 1),
            _ => return None,
        }
    }
}

// Goes past a value that was checked.
fn skip(b: &[u8], mut p: usize) -> usize {
    let mut depth = 0;
    loop {
        match b[p] {
            b'"' => {
                p += 1;
                while b[p] != b'"' {
                    p += if b[p] == b'\\' { 2 } else { 1 };
                }
                p += 1;
            }
            b'{' | b'[' => {
                depth += 1;
                p += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                p += 1;
            }
            b',' | b':' | 0..=b' ' => p += 1,
            _ => {
                while p < b.len() && !matches!(b[p], b',' | b'}' | b']' | b':' | 0..=b' ') {
                    p += 1;
                }
            }
        }
        if depth == 0 {
            return p;
        }
    }
}

// What a string that was checked says.
fn unquote(s: &str) -> String {
    let s = &s[1..s.len() - 1];
    let mut out = String::with_capacity(s.len());
    let mut rest = s;
    while let Some(i) = rest.find('\\') {
        out.push_str(&rest[..i]);
        let b = rest.as_bytes();
        let mut used = i + 2;
        out.push(match b[i + 1] {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut u = hex4(b, i + 2).unwrap_or(0xfffd);
                used = i + 6;
                if (0xd800..=0xdbff).contains(&u) {
                    u = 0x10000 + ((u - 0xd800) << 10) + hex4(b, i + 8).unwrap_or(0xdc00) - 0xdc00;
                    used = i + 12;
                }
                char::from_u32(u).unwrap_or('\u{fffd}')
            }
            c => c as char,
        });
        rest = &rest[used..];
    }
    out.push_str(rest);
    out
}

/// One member of an object, or one element of a list.
pub struct Item<'a> {
    name: &'a str, // as it was written; empty in a list
    pub index: usize,
    pub value: Json<'a>,
}

impl<'a> Item<'a> {
    /// The name of a member; empty in a list.
    pub fn name(&self) -> String {
        if self.name.is_empty() {
            String::new()
        } else {
            unquote(self.name)
        }
    }

    fn named(&self, name: &str) -> bool {
        if self.name.contains('\\') {
            return unquote(self.name) == name;
        }
        !self.name.is_empty() && &self.name[1..self.name.len() - 1] == name
    }
}

/// The members of an object or the elements of a list, one after the other.
pub struct Items<'a> {
    s: &'a str, // up to what ends it; empty for none
    p: usize,
    index: usize,
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let b = self.s.as_bytes();
        let mut p = space(b, self.p);
        if p >= b.len() {
            return None;
        }
        p = space(b, p + 1); // past the bracket that opens, or a comma
        if p >= b.len() {
            return None;
        }
        let mut name = "";
        if b[0] == b'{' {
            let after = skip(b, p);
            name = &self.s[p..after];
            p = space(b, space(b, after) + 1);
        }
        self.p = skip(b, p);
        self.index += 1;
        Some(Item { name, index: self.index - 1, value: Json(&self.s[p..self.p]) })
    }
}

impl<'a> Json<'a> {
    /// Whether there is a value; null is one.
    pub fn exists(&self) -> bool {
        !self.0.is_empty()
    }

    /// The value as it was written; empty if it is absent.
    pub fn raw(&self) -> &'a str {
        self.0
    }

    fn begins(&self) -> u8 {
        *self.0.as_bytes().first().unwrap_or(&0)
    }

    pub fn is_object(&self) -> bool {
        self.begins() == b'{'
    }

    pub fn is_list(&self) -> bool {
        self.begins() == b'['
    }

    /// Whether it is true.
    pub fn is_true(&self) -> bool {
        self.begins() == b't'
    }

    /// What a string says.
    pub fn text(&self) -> Option<String> {
        if self.begins() == b'"' {
            Some(unquote(self.0))
        } else {
            None
        }
    }

    /// What a string says, or other if the value is none.
    pub fn text_or(&self, other: &str) -> String {
        self.text().unwrap_or_else(|| other.to_string())
    }

    /// Whether it is a string that says exactly that.
    pub fn is(&self, text: &str) -> bool {
        self.text().as_deref() == Some(text)
    }

    /// A number as it was written.
    pub fn number(&self) -> Option<&'a str> {
        match self.begins() {
            b'-' | b'0'..=b'9' => Some(self.0),
            _ => None,
        }
    }

    /// The decimal that it says: a number, or text that reads like one.
    pub fn decimal(&self) -> Option<Decimal> {
        match self.number() {
            Some(n) => Decimal::parse(n),
            None => Decimal::parse(&self.text()?),
        }
    }

    /// A whole number, which may be written 3.0 or 3e0.
    pub fn int(&self) -> Option<i64> {
        let d = Decimal::parse(self.number()?)?;
        if d.point < d.digits.len() as i64 || d.point > 19 {
            return None;
        }
        let plain = format!("{}{}{}", if d.negative { "-" } else { "" }, d.digits, "0".repeat(d.point as usize - d.digits.len()));
        if d.digits.is_empty() {
            Some(0)
        } else {
            plain.parse().ok()
        }
    }

    /// The members of an object or the elements of a list; none of anything else.
    pub fn each(&self) -> Items<'a> {
        let s = if self.is_object() || self.is_list() { &self.0[..self.0.len() - 1] } else { "" };
        Items { s, p: 0, index: 0 }
    }

    /// The member of an object with exactly that name.
    pub fn member(&self, name: &str) -> Json<'a> {
        if !self.is_object() {
            return Json("");
        }
        self.each().find(|i| i.named(name)).map_or(Json(""), |i| i.value)
    }

    fn step(&self, step: &str) -> Json<'a> {
        if !self.is_list() {
            return self.member(step);
        }
        if step.is_empty() || step.len() > 9 || step.len() > 1 && step.starts_with('0') || !step.bytes().all(|c| c.is_ascii_digit()) {
            return Json("");
        }
        let index: usize = step.parse().unwrap_or(usize::MAX);
        self.each().nth(index).map_or(Json(""), |i| i.value)
    }

    /// The value at a JSON pointer (RFC 6901), such as "/lines/0/sku"; "" is the value itself.
    pub fn at(&self, pointer: &str) -> Json<'a> {
        match steps(pointer) {
            Some(list) => list.iter().fold(*self, |v, step| v.step(step)),
            None => Json(""),
        }
    }

    /// A copy with value at the pointer: it replaces what is there, adds the member, or with "-" as the last step
    /// appends to a list. Absent if there is no such place.
    pub fn set(&self, pointer: &str, value: impl Into<Raw>) -> Raw {
        let value = value.into();
        match steps(pointer) {
            Some(list) if !value.0.is_empty() => replace(*self, &list, Some(&value)).unwrap_or_default(),
            _ => Raw::default(),
        }
    }

    /// A copy without what is at the pointer, if anything is.
    pub fn delete(&self, pointer: &str) -> Raw {
        match steps(pointer) {
            Some(list) if self.at(pointer).exists() => replace(*self, &list, None).unwrap_or_default(),
            _ => Raw::from(*self),
        }
    }
}

// The steps of a pointer; none if it is no pointer.
fn steps(pointer: &str) -> Option<Vec<String>> {
    if pointer.is_empty() {
        return Some(vec![]);
    }
    Some(pointer.strip_prefix('/')?.split('/').map(|s| s.replace("~1", "/").replace("~0", "~")).collect())
}

// A copy of v with value where the steps lead to, without it if there is no value.
fn replace(v: Json, list: &[String], value: Option<&Raw>) -> Option<Raw> {
    let (step, rest) = match list.split_first() {
        Some(parts) => parts,
        None => return value.cloned(),
    };
    let inner = v.step(step);
    let here = rest.is_empty();
    let append = here && v.is_list() && step == "-" && value.is_some();
    if !(v.is_object() || v.is_list()) || !inner.exists() && !append && !(here && v.is_object()) {
        return None;
    }
    let value = if here { value.cloned() } else { Some(replace(inner, rest, value)?) };
    let (mut object, mut copy, mut found) = (Obj::new(), List::new(), false);
    for i in v.each() {
        let same = inner.exists() && if v.is_object() { i.named(step) } else { i.index.to_string() == *step };
        found |= same;
        let element = if same { value.clone() } else { Some(Raw::from(i.value)) };
        if let Some(element) = element {
            object = if v.is_object() { object.put(&i.name(), element) } else { copy = copy.add(element); object };
        }
    }
    if let (false, Some(value)) = (found, value) {
        if v.is_object() {
            object = object.put(step, value);
        } else {
            copy = copy.add(value);
        }
    }
    Some(if v.is_object() { object.done() } else { copy.done() })
}

// ---- Decimals ----

/// An exact number, which keeps the text it was written with. Two are equal if they are the same number.
#[derive(Clone)]
pub struct Decimal {
    pub text: String,
    negative: bool,
    digits: String, // significant ones, first and last not '0'; empty for zero
    point: i64,     // the value is 0.digits times ten to the power of point
}

impl Decimal {
    /// The decimal that a text says, in the form that JSON gives numbers, with an exponent of at most a million.
    pub fn parse(text: &str) -> Option<Decimal> {
        let b = text.as_bytes();
        if b.is_empty() || check_number(b, 0)? != b.len() {
            return None;
        }
        let (mantissa, exponent) = match text.find(|c| c == 'e' || c == 'E') {
            Some(i) => (&text[..i], &text[i + 1..]),
            None => (text, "0"),
        };
        let size = exponent.trim_start_matches(|c| c == '+' || c == '-').trim_start_matches('0');
        if size.len() > 7 {
            return None;
        }
        let mut exponent: i64 = exponent.trim_start_matches('+').parse().ok()?;
        if exponent.abs() > 1_000_000 {
            return None;
        }
        let plain = mantissa.trim_start_matches('-');
        let (whole, fraction) = match plain.find('.') {
            Some(i) => (&plain[..i], &plain[i + 1..]),
            None => (plain, ""),
        };
        let all = format!("{}{}", whole, fraction);
        let digits = all.trim_start_matches('0');
        exponent += whole.len() as i64 - (all.len() - digits.len()) as i64;
        let digits = digits.trim_end_matches('0').to_string();
        let zero = digits.is_empty();
        Some(Decimal { text: text.to_string(), negative: !zero && b[0] == b'-', digits, point: if zero { 0 } else { exponent } })
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (_, true) => -1,
            _ => 1,
        }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Decimal) -> Ordering {
        let size = self.point.cmp(&other.point).then_with(|| self.digits.cmp(&other.digits));
        self.sign().cmp(&other.sign()).then(if self.negative { size.reverse() } else { size })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Decimal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Decimal) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

// ---- Writing JSON ----

/// A JSON value that was written here, or taken from a document. An empty one is absent.
#[derive(Clone, Default)]
pub struct Raw(String);

impl Raw {
    pub fn json(&self) -> Json {
        Json(&self.0)
    }
}

impl From<Json<'_>> for Raw {
    fn from(v: Json<'_>) -> Raw {
        Raw(v.0.to_string())
    }
}

/// A decimal is written as it was.
impl From<&Decimal> for Raw {
    fn from(d: &Decimal) -> Raw {
        Raw(d.text.clone())
    }
}

/// The string that says a text.
pub fn quote(text: &str) -> Raw {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    Raw(out)
}

/// A whole number.
pub fn whole(v: i64) -> Raw {
    Raw(v.to_string())
}

pub fn boolean(v: bool) -> Raw {
    Raw(v.to_string())
}

/// An object that is being written: Obj::new().put("place", quote(&place)).done()
pub struct Obj(String);

impl Obj {
    pub fn new() -> Obj {
        Obj(String::from("{"))
    }

    /// Adds a member, whose name must be new. An absent value is none.
    pub fn put(mut self, name: &str, value: impl Into<Raw>) -> Obj {
        let value = value.into();
        if !value.0.is_empty() {
            if self.0.len() > 1 {
                self.0.push(',');
            }
            self.0 += &quote(name).0;
            self.0.push(':');
            self.0 += &value.0;
        }
        self
    }

    /// Adds a member that is text. An empty text is none.
    pub fn text(self, name: &str, text: &str) -> Obj {
        if text.is_empty() {
            self
        } else {
            self.put(name, quote(text))
        }
    }

    pub fn done(mut self) -> Raw {
        self.0.push('}');
        Raw(self.0)
    }
}

/// A list that is being written.
pub struct List(String);

impl List {
    pub fn new() -> List {
        List(String::from("["))
    }

    /// Adds an element. An absent value is none.
    pub fn add(mut self, value: impl Into<Raw>) -> List {
        let value = value.into();
        if !value.0.is_empty() {
            if self.0.len() > 1 {
                self.0.push(',');
            }
            self.0 += &value.0;
        }
        self
    }

    pub fn done(mut self) -> Raw {
        self.0.push(']');
        Raw(self.0)
    }
}

/// Percent-encodes a text for a url.
pub fn encode(text: &str) -> String {
    let mut out = String::new();
    for c in text.bytes() {
        match c {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(c as char),
            c => out.push_str(&format!("%{:02X}", c)),
        }
    }
    out
}

fn first(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

// ---- The call ----

#[link(wasm_import_module = "sandboxd:host")]
extern "C" {
    fn input_length() -> i64;
    fn input_read(to: *mut u8, off: u32, n: u32) -> u32;
    fn output_set(p: *const u8, n: u32);
    fn reply_read(to: *mut u8, off: u32, n: u32) -> u32;
    #[link_name = "log"]
    fn host_log(p: *const u8, n: u32) -> i64;
    #[link_name = "http"]
    fn host_http(p: *const u8, n: u32, body: *const u8, size: u32) -> i64;
    fn state_get(p: *const u8, n: u32) -> i64;
    fn state_set(p: *const u8, n: u32) -> i64;
    fn artifact_list(p: *const u8, n: u32) -> i64;
    fn artifact_read(p: *const u8, n: u32) -> i64;
    fn artifact_save(p: *const u8, n: u32, body: *const u8, size: u32) -> i64;
    fn kv_get(p: *const u8, n: u32) -> i64;
    fn kv_set(p: *const u8, n: u32) -> i64;
    fn kv_delete(p: *const u8, n: u32) -> i64;
    fn kv_add(p: *const u8, n: u32) -> i64;
    fn memory_search(p: *const u8, n: u32) -> i64;
    fn emit(p: *const u8, n: u32) -> i64;
    #[link_name = "confirm"]
    fn host_confirm(p: *const u8, n: u32) -> i64;
    fn transfer(p: *const u8, n: u32) -> i64;
    fn escalate(p: *const u8, n: u32) -> i64;
    fn skip_summary(p: *const u8, n: u32) -> i64;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
extern "C" {
    fn random_get(p: *mut u8, n: u32) -> i32;
    fn clock_time_get(clock: i32, precision: i64, ns: *mut i64) -> i32;
}

fn read_all(n: usize, read: unsafe extern "C" fn(*mut u8, u32, u32) -> u32) -> Vec<u8> {
    let mut bytes = vec![0; n];
    let mut off = 0;
    while off < n {
        let part = &mut bytes[off..];
        // What the host writes lies inside part, whose length it is told.
        let got = unsafe { read(part.as_mut_ptr(), off as u32, part.len() as u32) } as usize;
        if got == 0 {
            trap();
        }
        off += got;
    }
    bytes
}

fn trap() -> ! {
    std::process::abort()
}

/// Why a tool or hook failed, or a host call was refused.
pub struct Error {
    /// Of a host call that was refused, such as capability_denied; else empty.
    pub code: String,
    /// What the model reads; of a host call "FUNCTION: CODE: MESSAGE".
    pub message: String,
}

impl From<String> for Error {
    fn from(message: String) -> Error {
        Error { code: String::new(), message }
    }
}

impl From<&str> for Error {
    fn from(message: &str) -> Error {
        Error::from(message.to_string())
    }
}

/// What a tool or hook answers; only the methods of a call make one.
pub struct Answer(Raw);

fn answer(member: &str, v: Raw) -> Answer {
    Answer(Obj::new().put(member, v).put("format", whole(1)).done())
}

/// One call of a guest. Its input is the document of the contract: a tool call, a hook call or a question.
pub struct Call {
    input: Vec<u8>,
    at: (usize, usize), // the document in input
    // Its members, so that what is asked for is not looked for from the beginning.
    members: Vec<(String, usize, usize)>,
    why: List,
    entries: usize,
}

/// A moment, in UTC. weekday is 0 on Sundays.
pub struct Time {
    pub year: i32,
    pub month: i32,
    pub day: i32,
    pub hour: i32,
    pub minute: i32,
    pub second: i32,
    pub weekday: i32,
}

impl Call {
    // Reads the input; what is not a document of this contract traps.
    fn begin() -> Call {
        let n = unsafe { input_length() };
        if n > i32::MAX as i64 {
            trap();
        }
        let input = read_all(n as usize, input_read);
        let document = parse(&input).0;
        if document.is_empty() {
            trap();
        }
        let place = |s: &str| s.as_ptr() as usize - input.as_ptr() as usize;
        let members = Json(document).each().map(|i| (i.name(), place(i.value.0), i.value.0.len())).collect();
        let at = (place(document), document.len());
        let c = Call { at, members, input, why: List::new(), entries: 0 };
        if c.at("/format").number() != Some("1") {
            trap();
        }
        c
    }

    fn part(&self, start: usize, len: usize) -> Json {
        // It was checked to be UTF-8 and JSON when the call began.
        Json(unsafe { std::str::from_utf8_unchecked(&self.input[start..start + len]) })
    }

    /// The whole input.
    pub fn input(&self) -> Json {
        self.part(self.at.0, self.at.1)
    }

    /// A value of the input, such as c.at("/user/id").
    pub fn at(&self, pointer: &str) -> Json {
        let path = match pointer.strip_prefix('/') {
            Some(path) => path,
            None => return self.input().at(pointer),
        };
        let end = path.find('/').unwrap_or(path.len());
        match self.members.iter().find(|m| m.0 == path[..end]) {
            Some(m) => self.part(m.1, m.2).at(&path[end..]),
            None => Json(""),
        }
    }

    /// A value of a tool's arguments; c.arg("") is all of them.
    pub fn arg(&self, pointer: &str) -> Json {
        self.at("/args").at(pointer)
    }

    /// What the operator configured under a name.
    pub fn config(&self, name: &str) -> Option<String> {
        self.at("/config").member(name).text()
    }

    /// When the call began, which for a guard is all it may know of time.
    pub fn now(&self) -> Option<Time> {
        let text = self.at("/now").text()?;
        let b = text.as_bytes();
        let (mut f, mut field) = ([0i32; 6], 0);
        for (i, form) in "dddd-dd-ddTdd:dd:dd".bytes().enumerate() {
            match *b.get(i)? {
                c if form == b'd' && c.is_ascii_digit() => f[field] = f[field] * 10 + (c - b'0') as i32,
                c if form != b'd' && c == form => field += 1,
                _ => return None,
            }
        }
        let [year, month, day, hour, minute, second] = f;
        if b[b.len() - 1] != b'Z' || !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let shift = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4][month as usize - 1]; // Sakamoto's
        let y = if month < 3 { year - 1 } else { year };
        Some(Time { year, month, day, hour, minute, second, weekday: (y + y / 4 - y / 100 + y / 400 + shift + day) % 7 })
    }

    // Answers of tools.

    /// The result. A value that is absent is a failure.
    pub fn ok(&self, v: impl Into<Raw>) -> Result<Answer, Error> {
        let v = v.into();
        if v.0.is_empty() {
            return self.fail("bad_result", "result: no JSON");
        }
        Ok(answer("result", v))
    }

    /// A failure that the model reads. The code, [a-z_]{1,40}, is the author's.
    pub fn fail(&self, code: &str, message: &str) -> Result<Answer, Error> {
        Ok(answer("fail", Obj::new().text("code", code).put("message", quote(message)).done()))
    }

    /// No result: a streaming tool has sent its parts, a long-running one has nothing to say yet.
    pub fn nothing(&self) -> Result<Answer, Error> {
        Ok(answer("", Raw::default()))
    }

    // Answers of hooks.

    /// The run goes on as it was.
    pub fn unchanged(&self) -> Result<Answer, Error> {
        self.nothing()
    }

    /// The run goes on with a changed document: member is args, result, request, response, content or event. A
    /// document that is absent is an error.
    pub fn change(&self, member: &str, document: impl Into<Raw>) -> Result<Answer, Error> {
        let document = document.into();
        if document.0.is_empty() {
            return Err(Error::from(format!("{}: there is no such place", member)));
        }
        Ok(answer(member, document))
    }

    /// The answer of the hook, an object, which ends the chain of hooks at this point.
    pub fn answer(&self, v: impl Into<Raw>) -> Result<Answer, Error> {
        let v = v.into();
        if !v.json().is_object() {
            return Err(Error::from("answer: no object"));
        }
        Ok(answer("answer", v))
    }

    // Of guards.

    /// Tells the operator what the verdict rests on, at most 16 times. at is a JSON pointer into the judged document;
    /// texts may be empty, and are cut at 256 characters.
    pub fn why(&mut self, rule: &str, at: &str, saw: &str) {
        self.entries += 1;
        if self.entries > 16 {
            return;
        }
        let entry = Obj::new().text("rule", &first(rule, 256)).text("at", &first(at, 256)).text("saw", &first(saw, 256)).done();
        self.why = std::mem::replace(&mut self.why, List::new()).add(entry);
    }

    // Host calls.

    /// Writes a line to the operator's log; level is debug, info, warn or error. One that the host refuses is lost.
    pub fn log(&self, level: &str, message: &str) {
        let _ = ask("log", host_log, Obj::new().put("level", quote(level)).put("message", quote(message)));
    }

    /// Gets a url, with a query of percent-encoded names and values.
    pub fn get(&self, url: &str, query: &[(&str, &str)]) -> Result<Http, Error> {
        let mut url = url.to_string();
        for (i, (name, value)) in query.iter().enumerate() {
            url += &format!("{}{}={}", if i == 0 { '?' } else { '&' }, encode(name), encode(value));
        }
        self.send("GET", &url, Raw::default(), Raw::default(), &[])
    }

    /// Sends a request. headers is an object of texts, secrets a list of {"secret": NAME, "header": NAME, "prefix":
    /// TEXT}, which the guest never sees; either may be absent. Any status is an answer.
    pub fn send(&self, method: &str, url: &str, headers: Raw, secrets: Raw, body: &[u8]) -> Result<Http, Error> {
        let head = Obj::new().text("method", method).put("url", quote(url)).put("headers", headers).put("secrets", secrets).done().0;
        let bytes = reply("http", unsafe { host_http(head.as_ptr(), head.len() as u32, body.as_ptr(), body.len() as u32) })?;
        let n = match bytes.get(..4) {
            Some(n) => u32::from_le_bytes([n[0], n[1], n[2], n[3]]) as usize,
            None => trap(),
        };
        let head = match bytes.get(4..4 + n) {
            Some(head) => parse(head),
            None => trap(),
        };
        let status = match head.at("/status").int() {
            Some(status) => status,
            None => trap(),
        };
        Ok(Http { status, headers: Raw::from(head.at("/headers")), body: bytes[4 + n..].to_vec() })
    }

    /// Reads a state value; absent if there is none. Keys have their scope: session:, user:, app: or temp:.
    pub fn state(&self, key: &str) -> Result<Raw, Error> {
        value(ask("state_get", state_get, Obj::new().put("key", quote(key)))?)
    }

    /// Writes a state value. It counts unless the call is denied.
    pub fn set_state(&self, key: &str, value: impl Into<Raw>) -> Result<(), Error> {
        ask("state_set", state_set, Obj::new().put("values", Obj::new().put(key, value).done())).map(drop)
    }

    /// The names of artifacts that are granted: {"names": [...]}.
    pub fn artifacts(&self) -> Result<Vec<u8>, Error> {
        ask("artifact_list", artifact_list, Obj::new())
    }

    /// Reads at most 64 KiB of an artifact, from an offset on; no bytes at its end. Version 0 is the newest.
    pub fn artifact(&self, name: &str, version: i64, offset: i64) -> Result<Vec<u8>, Error> {
        ask("artifact_read", artifact_read, Obj::new().put("name", quote(name)).put("offset", whole(offset)).put("version", whole(version)))
    }

    /// Saves an artifact: {"version": N}. kind is its media type.
    pub fn save_artifact(&self, name: &str, kind: &str, body: &[u8]) -> Result<Vec<u8>, Error> {
        let head = Obj::new().put("name", quote(name)).put("type", quote(kind)).done().0;
        reply("artifact_save", unsafe { artifact_save(head.as_ptr(), head.len() as u32, body.as_ptr(), body.len() as u32) })
    }

    /// kv keeps small values and counters between calls. A value that is not there is absent. A guard that cannot read
    /// or count should deny.
    pub fn kv(&self, key: &str) -> Result<Raw, Error> {
        value(ask("kv_get", kv_get, Obj::new().put("key", quote(key)))?)
    }

    /// ttl_ms is how long a value lives, 0 until it is deleted.
    pub fn set_kv(&self, key: &str, value: impl Into<Raw>, ttl_ms: i64) -> Result<(), Error> {
        ask("kv_set", kv_set, lives(Obj::new().put("key", quote(key)).put("value", value), ttl_ms)).map(drop)
    }

    pub fn delete_kv(&self, key: &str) -> Result<(), Error> {
        ask("kv_delete", kv_delete, Obj::new().put("key", quote(key))).map(drop)
    }

    /// Adds n to a counter in one step, unless the sum would exceed most: the count, and whether n was added.
    pub fn add_kv(&self, key: &str, n: i64, most: i64, ttl_ms: i64) -> Result<(i64, bool), Error> {
        let bytes = ask("kv_add", kv_add, lives(Obj::new().put("key", quote(key)).put("most", whole(most)).put("n", whole(n)), ttl_ms))?;
        let v = parse(&bytes);
        match v.at("/count").int() {
            Some(count) => Ok((count, v.at("/added").is_true())),
            None => trap(),
        }
    }

    /// What was said in earlier sessions of the user: {"entries": [{"author", "text", "time"}]}.
    pub fn search_memory(&self, query: &str) -> Result<Vec<u8>, Error> {
        ask("memory_search", memory_search, Obj::new().put("query", quote(query)))
    }

    /// Sends a part of the result, in a streaming tool. One that goes on after an error is stopped.
    pub fn emit(&self, chunk: impl Into<Raw>) -> Result<(), Error> {
        ask("emit", emit, Obj::new().put("chunk", chunk)).map(drop)
    }

    /// Asks a person about this call. The tool should return at once; it is called again with c.at("/confirmation").
    /// payload is shown beside the hint; it may be absent.
    pub fn ask_person(&self, hint: &str, payload: Raw) -> Result<(), Error> {
        ask("confirm", host_confirm, Obj::new().put("hint", quote(hint)).put("payload", payload)).map(drop)
    }

    /// Hands the conversation to another agent after this step.
    pub fn transfer(&self, agent: &str) -> Result<(), Error> {
        ask("transfer", transfer, Obj::new().put("agent", quote(agent))).map(drop)
    }

    /// Ends the work of this agent and returns to the one above it.
    pub fn escalate(&self) -> Result<(), Error> {
        ask("escalate", escalate, Obj::new()).map(drop)
    }

    /// Makes the result of this call the answer, without another turn of the model.
    pub fn skip_summary(&self) -> Result<(), Error> {
        ask("skip_summary", skip_summary, Obj::new()).map(drop)
    }

    /// Fills bytes with randomness from the host.
    pub fn random(&self, bytes: &mut [u8]) {
        if unsafe { random_get(bytes.as_mut_ptr(), bytes.len() as u32) } != 0 {
            trap();
        }
    }

    /// Nanoseconds since 1970. Time stands at the start of the call unless it was granted the clock.
    pub fn clock(&self) -> i64 {
        let mut ns = 0;
        if unsafe { clock_time_get(0, 1, &mut ns) } != 0 {
            trap();
        }
        ns
    }
}

fn lives(o: Obj, ttl_ms: i64) -> Obj {
    if ttl_ms == 0 {
        o
    } else {
        o.put("ttl_ms", whole(ttl_ms))
    }
}

fn value(bytes: Vec<u8>) -> Result<Raw, Error> {
    let v = parse(&bytes);
    Ok(if v.at("/found").is_true() { Raw::from(v.at("/value")) } else { Raw::default() })
}

fn ask(name: &str, host: unsafe extern "C" fn(*const u8, u32) -> i64, request: Obj) -> Result<Vec<u8>, Error> {
    let request = request.done().0;
    reply(name, unsafe { host(request.as_ptr(), request.len() as u32) })
}

fn reply(name: &str, code: i64) -> Result<Vec<u8>, Error> {
    let bytes = read_all(code as u32 as usize, reply_read);
    if code >= 0 {
        return Ok(bytes);
    }
    let e = parse(&bytes);
    let code = e.at("/code").text_or("");
    Err(Error { message: format!("{}: {}: {}", name, code, e.at("/message").text_or("")), code })
}

/// The answer to a request.
pub struct Http {
    pub status: i64,
    /// An object; names in lower case.
    pub headers: Raw,
    pub body: Vec<u8>,
}

impl Http {
    /// What the body says; absent if that is not strict JSON.
    pub fn json(&self) -> Json {
        parse(&self.body)
    }
}

fn output(v: Raw) -> i32 {
    if v.0.is_empty() {
        trap();
    }
    unsafe { output_set(v.0.as_ptr(), v.0.len() as u32) };
    0
}

/// Serves a call of a tool.
pub fn tool(f: impl FnOnce(&Call) -> Result<Answer, Error>) -> i32 {
    let c = Call::begin();
    if !c.at("/kind").is("tool") {
        trap();
    }
    output(match f(&c) {
        Ok(a) => a.0,
        Err(e) => answer("fail", Obj::new().put("message", quote(&e.message)).done()).0,
    })
}

/// Serves a call of a hook; c.at("/hook") is the point. An error says that the hook failed.
pub fn hooks(f: impl FnOnce(&Call) -> Result<Answer, Error>) -> i32 {
    let c = Call::begin();
    if !c.at("/kind").is("hook") {
        trap();
    }
    output(match f(&c) {
        Ok(a) => a.0,
        Err(e) => answer("error", quote(if e.message.is_empty() { "the hook failed" } else { &e.message })).0,
    })
}

// ---- Guards ----

/// What a guard decides; only the functions below make one.
#[derive(Default)]
pub struct Verdict {
    ruling: &'static str,
    code: String,
    text: String, // reason or hint
    grants: Raw,
    document: Raw,
    hold: i64,
}

pub fn allow() -> Verdict {
    Verdict { ruling: "allow", ..Default::default() }
}

/// Allows a response but for the last characters of a stream, at most 8192, until the guard has seen what follows.
pub fn allow_but(hold: i64) -> Verdict {
    Verdict { ruling: "allow", hold, ..Default::default() }
}

/// Refuses. The code, [a-z_]{1,40}, is the author's; the model reads the reason, which is cut at 256 characters.
pub fn deny(code: &str, reason: &str) -> Verdict {
    Verdict { ruling: "deny", code: code.to_string(), text: reason.to_string(), ..Default::default() }
}

/// Asks a person, who reads the hint, cut at 256 characters.
pub fn confirm(hint: &str) -> Verdict {
    Verdict { ruling: "confirm", text: hint.to_string(), ..Default::default() }
}

/// Lets the call pass with at most these grants.
pub fn narrow(grants: &[&str]) -> Verdict {
    let list = grants.iter().fold(List::new(), |list, g| list.add(quote(g)));
    Verdict { ruling: "narrow", grants: list.done(), ..Default::default() }
}

/// Replaces the judged document, in a phase that the manifest lists under mutates. An absent one denies.
pub fn rewrite(document: impl Into<Raw>) -> Verdict {
    let document = document.into();
    if document.0.is_empty() {
        trap();
    }
    Verdict { ruling: "rewrite", document, ..Default::default() }
}

/// Serves a question of the host: c.at("/phase"), "/call/tool", "/call/args/..." and "/settings/..." are what a guard
/// judges by. If the manifest says check, it serves settings calls: check says what is wrong with them. A guard that
/// traps denies.
pub fn guard(judge: impl FnOnce(&mut Call) -> Verdict, check: impl FnOnce(Json) -> Result<(), String>) -> i32 {
    let mut c = Call::begin();
    if c.at("/kind").is("settings") {
        return output(match check(c.at("/settings")) {
            Ok(()) => answer("", Raw::default()).0,
            Err(wrong) => answer("error", quote(if wrong.is_empty() { "not accepted" } else { &wrong })).0,
        });
    }
    if !c.at("/kind").is("guard") {
        trap();
    }
    let v = judge(&mut c);
    let mut o = Obj::new().text("code", &v.code).put("document", v.document).put("document_sha256", c.at("/document_sha256"));
    o = o.put("grants", v.grants);
    if v.hold != 0 {
        o = o.put("hold", whole(v.hold));
    }
    o = o.put("nonce", c.at("/nonce")).text(if v.ruling == "confirm" { "hint" } else { "reason" }, &first(&v.text, 256));
    o = o.put("verdict", quote(v.ruling));
    if c.entries > 0 {
        o = o.put("why", std::mem::replace(&mut c.why, List::new()).done());
    }
    output(o.done())
}
