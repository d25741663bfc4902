// A plugin with one tool. What it offers and asks for stands in plugin.yaml.
//
//   sandboxd plugin build
import { parse, tool } from "./sandboxd";

export function get_weather(): i32 {
  return tool(c => {
    const place = c.arg("/place").text, days = c.arg("/days").int(3);
    const r = c.get("https://api.weather.example/v1/daily", ["days", days.toString(), "q", place]);
    if (r.status == 200) return c.ok(parse(r.body));
    if (r.status == 404) return c.fail("unknown_place", 'no place called "' + place + '"');
    if (r.status == 0) return c.error(r.error); // a refused call is a value
    return c.error("the weather service answered " + r.status.toString());
  });
}

// A hook sees every call of a tool and may change or answer it. It takes two lines in plugin.yaml,
// hooks: [before_tool] and the request log, and hooks in the import:
//
// export function call(): i32 {
//   return hooks(c => {
//     c.log("info", c.at("/tool").text + " is called");
//     return c.unchanged();
//   });
// }
