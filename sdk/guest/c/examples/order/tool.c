/* A tool that prices an order, and a hook that completes and refuses orders. The examples of the other languages do
 * the same, and one table of tests holds all of them to it. */
#include "../../sandboxd.h"

/* The currency of an order: what it says, else what the user prefers, else EUR. */
static bool currency_of(sbx_call *c, sbx_text *currency, sbx_text *error) {
	*currency = sbx_str(sbx_arg(c, "/currency"));
	if (sbx_has(*currency)) return true;
	sbx_value kept = sbx_state_get(SBX("user:currency"));
	*error = kept.error;
	*currency = kept.found ? sbx_str(kept.value) : SBX("EUR");
	return !sbx_has(kept.error);
}

SBX_TOOL(price_order) {
	sbx_text currency, error;
	if (!currency_of(c, &currency, &error)) return sbx_error(c, error);
	sbx_decimal highest = {0};
	sbx_text longest = SBX("");
	uint32_t count = 0;
	for (sbx_items line = sbx_each(sbx_arg(c, "/lines")); sbx_next(&line); count++) {
		sbx_decimal price = sbx_decimal_at(sbx_at(line.value, "/price"));
		if (!sbx_has(price.text)) return sbx_fail(c, "bad_price", sbx_format("line {} has no price", sbx_digits(count + 1)));
		if (count == 0 || sbx_compare(price, highest) > 0) highest = price;
		sbx_text name = sbx_str(sbx_at(line.value, "/name"));
		if (sbx_characters(name) > sbx_characters(longest)) longest = name;
	}
	if (count == 0) return sbx_fail(c, "no_lines", SBX("an order has at least one line"));

	sbx_builder b = sbx_object();
	sbx_put(&b, "count", sbx_whole(count));
	sbx_put(&b, "currency", sbx_quote(currency));
	sbx_put(&b, "highest", (sbx_json){highest.text.p, highest.text.n}); /* the text that it was written with */
	sbx_put(&b, "longest", sbx_quote(longest));
	if (sbx_true(sbx_arg(c, "/rate"))) {
		sbx_http r = sbx_get("https://rates.example/v1/{}", currency);
		if (r.status == 404) return sbx_fail(c, "unknown_currency", sbx_format("there is no rate for \"{}\"", currency));
		if (r.status == 0) return sbx_error(c, r.error);
		sbx_json rate = sbx_at(sbx_parse(r.body), "/rate");
		if (r.status != 200 || !sbx_has(sbx_number(rate)))
			return sbx_error(c, sbx_format("the rate service answered {}", sbx_digits(r.status)));
		sbx_put(&b, "rate", rate);
	}
	sbx_log("info", sbx_format("{} lines", sbx_digits(count)));
	return sbx_ok(c, sbx_done(&b));
}

SBX_HOOKS {
	if (!sbx_is(sbx_str(sbx_in(c, "/hook")), "before_tool") || !sbx_is(sbx_str(sbx_in(c, "/tool")), "price_order")) return sbx_unchanged(c);
	sbx_text currency = sbx_str(sbx_arg(c, "/currency")), usual = sbx_config(c, "currency");
	if (sbx_is(currency, "???")) return sbx_hook_error(c, SBX("the currency \"???\" is not known"));
	if (sbx_is(currency, "none")) {
		sbx_builder b = sbx_object();
		sbx_put(&b, "count", sbx_whole(0));
		return sbx_answer(c, sbx_done(&b));
	}
	if (sbx_has(currency) || !sbx_has(usual)) return sbx_unchanged(c);
	return sbx_change(c, "args", sbx_set(sbx_arg(c, ""), "/currency", sbx_quote(usual)));
}
