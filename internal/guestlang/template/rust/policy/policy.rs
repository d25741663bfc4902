//! A policy with one guard. What it is and its settings stand in policy.yaml.
//!
//!     sandboxd policy test
mod sandboxd;
use sandboxd::{allow, deny, guard, Json};

/// Runs for every call of a tool. A guard that panics or loops denies.
#[no_mangle]
pub extern "C" fn judge() -> i32 {
    guard(
        |c| {
            let tool = c.at("/call/tool").text_or("");
            if !c.at("/settings/tools").each().any(|t| t.value.is(&tool)) {
                return allow();
            }
            // c.now() is the only time there is, in UTC.
            let (now, from, until) = match (c.now(), c.at("/settings/from").int(), c.at("/settings/until").int()) {
                (Some(now), Some(from), Some(until)) => (now, from, until),
                _ => return deny("bad_question", "the question is not complete"),
            };
            // The row "weekend" waits for this:
            //
            // if now.weekday == 6 || now.weekday == 0 { return deny("closed", "the office is closed at weekends"); }
            if i64::from(now.hour) < from || i64::from(now.hour) >= until {
                return deny("closed", "the office is closed now");
            }
            allow()
        },
        check,
    )
}

/// Runs when the guard is installed.
fn check(settings: Json) -> Result<(), String> {
    match (settings.at("/from").int(), settings.at("/until").int()) {
        (Some(from), Some(until)) if from < until => Ok(()),
        _ => Err("until is not after from, so the office would never open".to_string()),
    }
}
