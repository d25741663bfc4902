// A guard over orders: high prices need a person, higher ones are refused, and what is internal in a result does not
// leave. The examples of the other languages do the same.
import { Call, Decimal, Json, Verdict, allow, confirm, deny, guard, narrow, rewrite } from "../../sandboxd";

export function judge(): i32 {
  return guard(c => {
    const phase = c.at("/phase").text;
    if (phase == "call") return order(c);
    if (phase != "result") return deny("bad_phase", "this guard judges calls and results");
    const result = c.at("/result");
    return result.at("/internal").exists ? rewrite(result.delete("/internal")) : allow();
  }, check);
}

function check(settings: Json): string {
  const ask = settings.at("/ask_from").decimal, never = settings.at("/deny_from").decimal;
  if (!ask.ok || !never.ok) return "ask_from and deny_from are decimals";
  if (ask.compare(never) > 0) return "ask_from is above deny_from, so nothing would ever be asked";
  return "";
}

function order(c: Call): Verdict {
  if (c.at("/call/tool").text != "price_order") return allow();
  const ask = c.at("/settings/ask_from").decimal, never = c.at("/settings/deny_from").decimal;
  const lines = c.at("/call/args/lines");
  if (!lines.isList) return deny("bad_order", "an order has lines");
  let highest = new Decimal("");
  for (const line = lines.each(); line.next();) {
    const price = line.value.at("/price"), d = price.decimal, at = "/lines/" + line.index.toString() + "/price";
    if (!d.ok || d.sign < 0) {
      c.why("", at, price.text);
      return deny("bad_price", "a price is not a decimal from 0 on");
    }
    if (d.compare(never) >= 0) {
      c.why("deny_from", at, d.text);
      return deny("over_limit", "prices of " + never.text + " and more are not accepted");
    }
    if (!highest.ok || d.compare(highest) > 0) highest = d;
  }
  if (highest.ok && highest.compare(ask) >= 0) return confirm("Order at " + highest.text + "?");
  if (c.at("/call/args/rate").isTrue) return allow();
  return narrow(["log", "state read user:currency"]); // no rate is asked for, so no network is needed
}
