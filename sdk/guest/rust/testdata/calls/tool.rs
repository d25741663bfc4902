//! What tests call to see every helper of the SDK at work.
#[path = "../../sandboxd.rs"]
mod sandboxd;
use sandboxd::{boolean, parse, quote, tool, whole, Answer, Call, Error, List, Obj, Raw};

/// The value that was got, or none and a note of why.
fn noted<T>(errors: &mut Vec<Raw>, r: Result<T, Error>) -> Option<T> {
    r.map_err(|e| errors.push(quote(&e.message))).ok()
}

fn at(bytes: Option<Vec<u8>>, pointer: &str) -> Raw {
    bytes.map_or(Raw::default(), |b| Raw::from(parse(&b).at(pointer)))
}

fn keep(c: &Call) -> Result<Answer, Error> {
    let mut e = vec![];
    let n = noted(&mut e, c.state("session:n"));
    let none = noted(&mut e, c.state("user:none"));
    noted(&mut e, c.set_state("session:m", Obj::new().put("x", quote("ä")).done()));
    let names = noted(&mut e, c.artifacts());
    let text = noted(&mut e, c.artifact("a.txt", 0, 2));
    let saved = noted(&mut e, c.save_artifact("b.txt", "text/plain", "größer".as_bytes()));
    let k = noted(&mut e, c.kv("k"));
    noted(&mut e, c.set_kv("k2", List::new().add(parse(b"1.50")).done(), 1000));
    noted(&mut e, c.delete_kv("k"));
    let gone = noted(&mut e, c.kv("k"));
    let first = noted(&mut e, c.add_kv("c", 2, 3, 0));
    let second = noted(&mut e, c.add_kv("c", 2, 3, 60000));
    let memory = noted(&mut e, c.search_memory("INV-7"));
    let o = Obj::new().put("state", n.unwrap_or_default()).put("found", boolean(none.map_or(false, |v| v.json().exists())));
    let o = o.put("names", at(names, "/names")).text("text", &text.map_or(String::new(), |t| String::from_utf8(t).unwrap()));
    let o = o.put("version", at(saved, "/version")).put("kv", k.unwrap_or_default()).put("gone", boolean(gone.map_or(true, |v| !v.json().exists())));
    let (count, added) = first.unwrap_or_default();
    let o = o.put("count", whole(count)).put("added", boolean(added)).put("again", boolean(second.unwrap_or_default().1));
    c.ok(o.put("memory", at(memory, "/entries")).put("errors", e.into_iter().fold(List::new(), List::add).done()).done())
}

fn moment(c: &Call) -> Result<Answer, Error> {
    let t = c.now().ok_or("no time")?;
    let parts = [t.year, t.month, t.day, t.hour, t.minute, t.second, t.weekday];
    let mut bytes = [0; 16];
    c.random(&mut bytes);
    let list = parts.iter().fold(List::new(), |l, p| l.add(whole(i64::from(*p))));
    c.ok(list.add(quote(&c.clock().to_string())).add(boolean(bytes != [0; 16])).done())
}

fn send(c: &Call) -> Result<Answer, Error> {
    let headers = Obj::new().put("Idempotency-Key", quote("call-3")).done();
    let secret = Obj::new().put("secret", quote("BANK_TOKEN")).put("header", quote("Authorization")).put("prefix", quote("Bearer "));
    let r = c.send("POST", "https://pay.bank.example/v1/payments", headers, List::new().add(secret.done()).done(), b"{\"n\":1}")?;
    let o = Obj::new().put("status", whole(r.status)).put("type", r.headers.json().at("/content-type"));
    c.ok(o.put("body", quote(std::str::from_utf8(&r.body).unwrap())).done())
}

#[no_mangle]
pub extern "C" fn calls() -> i32 {
    tool(|c| {
        let done = match c.arg("/do").text_or("").as_str() {
            "keep" => return keep(c),
            "time" => return moment(c),
            "whole" => {
                let list = c.arg("/numbers").each().fold(List::new(), |l, i| match i.value.int() {
                    Some(v) => l.add(whole(v)),
                    None => l.add(parse(b"null")),
                });
                return c.ok(list.done());
            }
            "edit" => {
                let (doc, at) = (c.arg("/doc"), c.arg("/at").text_or(""));
                return c.ok(Obj::new().put("set", doc.set(&at, c.arg("/value"))).put("deleted", doc.delete(&at)).done());
            }
            "send" => return send(c),
            "ask" => c.ask_person("Sure?", parse(b"{\"n\":1.50}").into()),
            "transfer" => c.transfer("billing"),
            "escalate" => c.escalate(),
            "skip" => c.skip_summary(),
            other => Err(Error::from(other)),
        };
        c.ok(done.err().map_or(List::new(), |e| List::new().add(quote(&e.message))).done())
    })
}

#[no_mangle]
pub extern "C" fn lines() -> i32 {
    tool(|c| {
        c.emit(quote("ä\n"))?;
        c.emit(parse(b"{\"n\":1.50}"))?;
        c.nothing()
    })
}
