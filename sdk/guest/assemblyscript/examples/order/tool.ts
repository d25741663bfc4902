// A tool that prices an order, and a hook that completes and refuses orders. The examples of the other languages do the
// same, and one table of tests holds all of them to it.
import { Call, Decimal, Obj, Result, characters, encode, hooks, parse, quote, tool, whole } from "../../sandboxd";

export function price_order(): i32 {
  return tool(price);
}

function price(c: Call): Result {
  // The currency is what the order says, else what the user prefers, else EUR.
  let currency = c.arg("/currency").text;
  if (!c.arg("/currency").isText) {
    const kept = c.state("user:currency");
    if (kept.error != "") return c.error(kept.error);
    currency = kept.found ? kept.value.text : "EUR";
  }
  let highest = new Decimal(""), longest = "", count = 0;
  for (const line = c.arg("/lines").each(); line.next(); count++) {
    const price = line.value.at("/price").decimal;
    if (!price.ok) return c.fail("bad_price", "line " + (count + 1).toString() + " has no price");
    if (count == 0 || price.compare(highest) > 0) highest = price;
    const name = line.value.at("/name").text;
    if (characters(name) > characters(longest)) longest = name;
  }
  if (count == 0) return c.fail("no_lines", "an order has at least one line");

  const o = new Obj().put("count", whole(count)).put("currency", quote(currency));
  o.put("highest", parse(highest.text)).put("longest", quote(longest)); // the text that the number was written with
  if (c.arg("/rate").isTrue) {
    const r = c.get("https://rates.example/v1/" + encode(currency));
    if (r.status == 404) return c.fail("unknown_currency", 'there is no rate for "' + currency + '"');
    if (r.status == 0) return c.error(r.error);
    const rate = parse(r.body).at("/rate");
    if (r.status != 200 || !rate.isNumber) return c.error("the rate service answered " + r.status.toString());
    o.put("rate", rate);
  }
  c.log("info", count.toString() + " lines");
  return c.ok(o.done());
}

export function call(): i32 {
  return hooks(c => {
    if (c.at("/hook").text != "before_tool" || c.at("/tool").text != "price_order") return c.unchanged();
    const currency = c.arg("/currency"), usual = c.config("currency");
    if (currency.text == "???") return c.hookError('the currency "???" is not known');
    if (currency.text == "none") return c.answer(new Obj().put("count", whole(0)).done());
    if (currency.isText || usual == "") return c.unchanged();
    return c.change("args", c.arg("").set("/currency", quote(usual)));
  });
}
