// A guest in AssemblyScript on Extism's PDK, for benchmarks: "weather" answers
// {"city":NAME,...} and "echo" its input. Built by build beside it.
import { Host } from "@extism/as-pdk";

const conditions = new Map<string, string>();
conditions.set("Paris", "sunny");
conditions.set("Oslo", "snow");

function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  unreachable();
}

export function weather(): i32 {
  const input = Host.inputString();
  const key = '"city":"';
  const from = input.indexOf(key) + key.length;
  const city = input.substring(from, input.indexOf('"', from));
  const condition = conditions.has(city) ? conditions.get(city) : "unknown";
  Host.outputString('{"city":"' + city + '","temperature_c":21,"condition":"' + condition + '"}');
  return 0;
}

export function echo(): i32 {
  Host.output(Host.input());
  return 0;
}
