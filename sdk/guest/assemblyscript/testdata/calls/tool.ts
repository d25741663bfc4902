// What tests call to see every helper of the SDK at work.
import { Call, List, Obj, Result, absent, bool_, decode, parse, quote, tool, whole } from "../../sandboxd";

let errors = new List();

function note(error: string): void {
  if (error != "") errors.add(quote(error));
}

function keep(c: Call): Result {
  const o = new Obj();
  const n = c.state("session:n");
  note(n.error);
  o.put("state", n.value);
  const none = c.state("user:none");
  note(none.error);
  o.put("found", bool_(none.found));
  note(c.setState("session:m", new Obj().put("x", quote("ä")).done()).error);
  const names = c.artifacts(), text = c.artifact("a.txt", 0, 2), saved = c.saveArtifact("b.txt", "text/plain", String.UTF8.encode("größer"));
  note(names.error);
  note(text.error);
  note(saved.error);
  o.put("names", names.json.at("/names")).text("text", decode(text.bytes)).put("version", saved.json.at("/version"));
  const k = c.kv("k");
  note(k.error);
  o.put("kv", k.value);
  note(c.setKV("k2", new List().add(parse("1.50")).done(), 1000).error);
  note(c.deleteKV("k").error);
  const gone = c.kv("k");
  note(gone.error);
  o.put("gone", bool_(!gone.found));
  const one = c.addKV("c", 2, 3, 0), two = c.addKV("c", 2, 3, 60000);
  note(one.error);
  note(two.error);
  o.put("count", whole(one.count)).put("added", bool_(one.added)).put("again", bool_(two.added));
  const memory = c.searchMemory("INV-7");
  note(memory.error);
  return c.ok(o.put("memory", memory.json.at("/entries")).put("errors", errors.done()).done());
}

function moment(c: Call): Result {
  const t = c.now(), list = new List();
  if (!t.ok) return c.error("no time");
  const parts: i32[] = [t.year, t.month, t.day, t.hour, t.minute, t.second, t.weekday];
  for (let i = 0; i < parts.length; i++) list.add(whole(parts[i]));
  const bytes = Uint8Array.wrap(c.random(16));
  let all = 0;
  for (let i = 0; i < 16; i++) all |= bytes[i];
  return c.ok(list.add(quote(c.clock().toString())).add(bool_(all != 0)).done());
}

function send(c: Call): Result {
  const secret = new Obj().put("secret", quote("BANK_TOKEN")).put("header", quote("Authorization")).put("prefix", quote("Bearer ")).done();
  const r = c.send("POST", "https://pay.bank.example/v1/payments", new Obj().put("Idempotency-Key", quote("call-3")).done(), new List().add(secret).done(), String.UTF8.encode('{"n":1}'));
  if (r.status == 0) return c.error(r.error);
  return c.ok(new Obj().put("status", whole(r.status)).put("type", r.headers.at("/content-type")).put("body", quote(r.body)).done());
}

export function calls(): i32 {
  return tool(c => {
    const what = c.arg("/do").text;
    if (what == "keep") return keep(c);
    if (what == "time") return moment(c);
    if (what == "send") return send(c);
    if (what == "whole") {
      const list = new List();
      for (const i = c.arg("/numbers").each(); i.next();) {
        const v = i.value.int(-77);
        list.add(v == -77 ? parse("null") : whole(v));
      }
      return c.ok(list.done());
    }
    if (what == "edit") {
      const doc = c.arg("/doc"), at = c.arg("/at").text;
      return c.ok(new Obj().put("set", doc.set(at, c.arg("/value"))).put("deleted", doc.exists ? doc.delete(at) : absent()).done());
    }
    if (what == "ask") note(c.askPerson("Sure?", parse('{"n":1.50}')).error);
    if (what == "transfer") note(c.transfer("billing").error);
    if (what == "escalate") note(c.escalate().error);
    if (what == "skip") note(c.skipSummary().error);
    return c.ok(errors.done());
  });
}

export function lines(): i32 {
  return tool(c => {
    let r = c.emit(quote("ä\n"));
    if (r.ok) r = c.emit(parse('{"n":1.50}'));
    return r.ok ? c.nothing() : c.error(r.error);
  });
}
