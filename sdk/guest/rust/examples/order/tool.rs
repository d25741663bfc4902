//! A tool that prices an order, and a hook that completes and refuses orders. The examples of the other languages do
//! the same, and one table of tests holds all of them to it.
#[path = "../../sandboxd.rs"]
mod sandboxd;
use sandboxd::{encode, hooks, quote, tool, whole, Answer, Call, Decimal, Error, Obj};

#[no_mangle]
pub extern "C" fn price_order() -> i32 {
    tool(price)
}

fn price(c: &Call) -> Result<Answer, Error> {
    // What the order says, else what the user prefers, else EUR.
    let currency = match c.arg("/currency").text() {
        Some(currency) => currency,
        None => c.state("user:currency")?.json().text_or("EUR"),
    };
    let (mut highest, mut longest, mut count): (Option<Decimal>, _, _) = (None, String::new(), 0);
    for line in c.arg("/lines").each() {
        count += 1;
        let price = match line.value.at("/price").decimal() {
            Some(price) => price,
            None => return c.fail("bad_price", &format!("line {} has no price", count)),
        };
        let name = line.value.at("/name").text_or("");
        if name.chars().count() > longest.chars().count() {
            longest = name;
        }
        if highest.as_ref().map_or(true, |h| price > *h) {
            highest = Some(price);
        }
    }
    let highest = match highest {
        Some(highest) => highest,
        None => return c.fail("no_lines", "an order has at least one line"),
    };

    let mut o = Obj::new().put("count", whole(count)).put("currency", quote(&currency));
    o = o.put("highest", &highest).put("longest", quote(&longest)); // the text that the number was written with
    if c.arg("/rate").is_true() {
        let r = c.get(&format!("https://rates.example/v1/{}", encode(&currency)), &[])?;
        if r.status == 404 {
            return c.fail("unknown_currency", &format!("there is no rate for \"{}\"", currency));
        }
        let rate = r.json().at("/rate");
        if r.status != 200 || rate.number().is_none() {
            return Err(Error::from(format!("the rate service answered {}", r.status)));
        }
        o = o.put("rate", rate);
    }
    c.log("info", &format!("{} lines", count));
    c.ok(o.done())
}

#[no_mangle]
pub extern "C" fn call() -> i32 {
    hooks(|c| {
        if !c.at("/hook").is("before_tool") || !c.at("/tool").is("price_order") {
            return c.unchanged();
        }
        match (c.arg("/currency").text().as_deref(), c.config("currency").filter(|usual| !usual.is_empty())) {
            (Some("???"), _) => Err(Error::from("the currency \"???\" is not known")),
            (Some("none"), _) => c.answer(Obj::new().put("count", whole(0)).done()),
            (None, Some(usual)) => c.change("args", c.arg("").set("/currency", quote(&usual))),
            _ => c.unchanged(),
        }
    })
}
