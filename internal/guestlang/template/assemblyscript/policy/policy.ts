// A policy with one guard. What it is and its settings stand in policy.yaml.
//
//   sandboxd policy test
import { Json, allow, deny, guard } from "./sandboxd";

// Runs for every call of a tool. A guard that traps or loops denies.
export function judge(): i32 {
  return guard(c => {
    let waits = false;
    for (const tool = c.at("/settings/tools").each(); tool.next();) waits = waits || tool.value.text == c.at("/call/tool").text;
    if (!waits) return allow();
    const now = c.now(); // the only time there is, in UTC
    if (!now.ok) return deny("bad_question", "the question has no time");
    // The row "weekend" waits for this:
    //
    // if (now.weekday == 6 || now.weekday == 0) return deny("closed", "the office is closed at weekends");
    if (now.hour < c.at("/settings/from").int(0) || now.hour >= c.at("/settings/until").int(0)) return deny("closed", "the office is closed now");
    return allow();
  }, check);
}

// Runs when the guard is installed; "" is no objection.
function check(settings: Json): string {
  return settings.at("/from").int(0) < settings.at("/until").int(0) ? "" : "until is not after from, so the office would never open";
}
