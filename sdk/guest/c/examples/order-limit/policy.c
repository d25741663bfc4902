/* A guard over orders: high prices need a person, higher ones are refused, and what is internal in a result does not
 * leave. The examples of the other languages do the same. */
#include "../../sandboxd.h"

static sbx_text check(sbx_json settings) {
	sbx_decimal ask = sbx_decimal_at(sbx_at(settings, "/ask_from")), deny = sbx_decimal_at(sbx_at(settings, "/deny_from"));
	if (!sbx_has(ask.text) || !sbx_has(deny.text)) return SBX("ask_from and deny_from are decimals");
	if (sbx_compare(ask, deny) > 0) return SBX("ask_from is above deny_from, so nothing would ever be asked");
	return (sbx_text){0};
}

static sbx_text place(sbx_items line) { return sbx_format("/lines/{}/price", sbx_digits(line.index)); }

static sbx_verdict call(sbx_call *c) {
	if (!sbx_is(sbx_str(sbx_in(c, "/call/tool")), "price_order")) return sbx_allow();
	sbx_decimal ask = sbx_decimal_at(sbx_in(c, "/settings/ask_from")), deny = sbx_decimal_at(sbx_in(c, "/settings/deny_from"));
	sbx_json lines = sbx_in(c, "/call/args/lines");
	if (sbx_type(lines) != '[') return sbx_deny("bad_order", SBX("an order has lines"));
	sbx_decimal highest = {0};
	for (sbx_items line = sbx_each(lines); sbx_next(&line);) {
		sbx_json price = sbx_at(line.value, "/price");
		sbx_decimal d = sbx_decimal_at(price);
		if (!sbx_has(d.text) || sbx_sign(d) < 0) {
			sbx_why(c, SBX(""), place(line), sbx_str(price));
			return sbx_deny("bad_price", SBX("a price is not a decimal from 0 on"));
		}
		if (sbx_compare(d, deny) >= 0) {
			sbx_why(c, SBX("deny_from"), place(line), d.text);
			return sbx_deny("over_limit", sbx_format("prices of {} and more are not accepted", deny.text));
		}
		if (!sbx_has(highest.text) || sbx_compare(d, highest) > 0) highest = d;
	}
	if (sbx_has(highest.text) && sbx_compare(highest, ask) >= 0) return sbx_confirm(sbx_format("Order at {}?", highest.text));
	if (sbx_true(sbx_in(c, "/call/args/rate"))) return sbx_allow();
	sbx_builder quiet = sbx_list(); /* no rate is asked for, so no network is needed */
	sbx_add(&quiet, sbx_quote(SBX("log")));
	sbx_add(&quiet, sbx_quote(SBX("state read user:currency")));
	return sbx_narrow(sbx_done(&quiet));
}

SBX_GUARD_CHECKED(judge, check) {
	sbx_text phase = sbx_str(sbx_in(c, "/phase"));
	if (sbx_is(phase, "call")) return call(c);
	if (!sbx_is(phase, "result")) return sbx_deny("bad_phase", SBX("this guard judges calls and results"));
	sbx_json result = sbx_in(c, "/result");
	if (!sbx_at(result, "/internal").p) return sbx_allow();
	return sbx_rewrite(sbx_delete(result, "/internal"));
}
