//! A plugin with one tool. What it offers and asks for stands in plugin.yaml.
//!
//!     sandboxd plugin build
mod sandboxd;
use sandboxd::{tool, Error};

#[no_mangle]
pub extern "C" fn get_weather() -> i32 {
    tool(|c| {
        let place = c.arg("/place").text_or("");
        let days = c.arg("/days").int().unwrap_or(3);
        // A refused call is an error, which the model reads.
        let r = c.get("https://api.weather.example/v1/daily", &[("days", &days.to_string()), ("q", &place)])?;
        match r.status {
            200 => c.ok(r.json()),
            404 => c.fail("unknown_place", &format!("no place called \"{}\"", place)),
            status => Err(Error::from(format!("the weather service answered {}", status))),
        }
    })
}

// A hook sees every call of a tool and may change or answer it. It takes two lines in plugin.yaml,
// hooks: [before_tool] and the request log, and hooks in what is used:
//
// #[no_mangle]
// pub extern "C" fn call() -> i32 {
//     hooks(|c| {
//         c.log("info", &format!("{} is called", c.at("/tool").text_or("")));
//         c.unchanged()
//     })
// }
