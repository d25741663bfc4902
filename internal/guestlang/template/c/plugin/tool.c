/* A plugin with one tool. What it offers and asks for stands in plugin.yaml.
 *
 *   sandboxd plugin build */
#include "sandboxd.h"

SBX_TOOL(get_weather) {
	sbx_text place = sbx_str(sbx_arg(c, "/place"));
	int64_t days = 3;
	sbx_int(sbx_arg(c, "/days"), &days);
	sbx_http r = sbx_get("https://api.weather.example/v1/daily?days={}&q={}", sbx_digits(days), place);
	if (r.status == 200) return sbx_ok(c, sbx_parse(r.body));
	if (r.status == 404) return sbx_fail(c, "unknown_place", sbx_format("no place called \"{}\"", place));
	if (r.status == 0) return sbx_error(c, r.error); /* a refused call is a value */
	return sbx_error(c, sbx_format("the weather service answered {}", sbx_digits(r.status)));
}

/* A hook sees every call of a tool and may change or answer it. It takes two lines in plugin.yaml:
 *
 *   hooks: [before_tool]
 *   requests: [..., log]
 *
 * SBX_HOOKS {
 *	sbx_log("info", sbx_format("{} is called", sbx_str(sbx_in(c, "/tool"))));
 *	return sbx_unchanged(c);
 * } */
