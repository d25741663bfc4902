# Calls pass while the office is open; at other hours a person is asked.
package guard

open if {
	[hour, _, _] := time.clock([time.parse_rfc3339_ns(input.now), "UTC"])
	hour >= input.settings.from
	hour < input.settings.to
	not time.weekday(time.parse_rfc3339_ns(input.now)) in {"Saturday", "Sunday"}
}

# A rule that fails is silence. So say what is allowed, never what is left over, and
# refuse what you do not know.
deny contains {"code": "unknown_tool", "reason": "there is no such tool"} if not input.call.known

allow if open

confirm contains sprintf("Call %s now, out of hours?", [input.call.tool]) if not open
