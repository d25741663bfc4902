//! A guard over orders: high prices need a person, higher ones are refused, and what is internal in a result does not
//! leave. The examples of the other languages do the same.
#[path = "../../sandboxd.rs"]
mod sandboxd;
use sandboxd::{allow, confirm, deny, guard, narrow, rewrite, Call, Decimal, Json, Verdict};

#[no_mangle]
pub extern "C" fn judge() -> i32 {
    guard(
        |c| match c.at("/phase").text_or("").as_str() {
            "call" => order(c),
            "result" if c.at("/result/internal").exists() => rewrite(c.at("/result").delete("/internal")),
            "result" => allow(),
            _ => deny("bad_phase", "this guard judges calls and results"),
        },
        check,
    )
}

fn check(settings: Json) -> Result<(), String> {
    match (settings.at("/ask_from").decimal(), settings.at("/deny_from").decimal()) {
        (Some(ask), Some(never)) if ask > never => Err("ask_from is above deny_from, so nothing would ever be asked".to_string()),
        (Some(_), Some(_)) => Ok(()),
        _ => Err("ask_from and deny_from are decimals".to_string()),
    }
}

fn order(c: &mut Call) -> Verdict {
    if !c.at("/call/tool").is("price_order") {
        return allow();
    }
    let (ask, never) = match (c.at("/settings/ask_from").decimal(), c.at("/settings/deny_from").decimal()) {
        (Some(ask), Some(never)) => (ask, never),
        _ => return deny("bad_settings", "ask_from and deny_from are decimals"),
    };
    if !c.at("/call/args/lines").is_list() {
        return deny("bad_order", "an order has lines");
    }
    let lines: Vec<(Option<Decimal>, String)> =
        c.at("/call/args/lines").each().map(|line| (line.value.at("/price").decimal(), line.value.at("/price").text_or(""))).collect();
    let mut highest: Option<Decimal> = None;
    for (i, (price, text)) in lines.into_iter().enumerate() {
        let at = format!("/lines/{}/price", i);
        let price = match price {
            Some(price) if price.sign() >= 0 => price,
            _ => {
                c.why("", &at, &text);
                return deny("bad_price", "a price is not a decimal from 0 on");
            }
        };
        if price >= never {
            c.why("deny_from", &at, &price.text);
            return deny("over_limit", &format!("prices of {} and more are not accepted", never.text));
        }
        if highest.as_ref().map_or(true, |h| price > *h) {
            highest = Some(price);
        }
    }
    match highest {
        Some(highest) if highest >= ask => confirm(&format!("Order at {}?", highest.text)),
        _ if c.at("/call/args/rate").is_true() => allow(),
        _ => narrow(&["log", "state read user:currency"]), // no rate is asked for, so no network is needed
    }
}
