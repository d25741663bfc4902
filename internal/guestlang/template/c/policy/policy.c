/* A policy with one guard. What it is and its settings stand in policy.yaml.
 *
 *   sandboxd policy test */
#include "sandboxd.h"

/* Runs when the guard is installed. */
static sbx_text check(sbx_json settings) {
	int64_t from, until;
	if (!sbx_int(sbx_at(settings, "/from"), &from) || !sbx_int(sbx_at(settings, "/until"), &until)) return SBX("from and until are hours");
	return from < until ? (sbx_text){0} : SBX("until is not after from, so the office would never open");
}

/* Runs for every call of a tool. A guard that traps or loops denies. */
SBX_GUARD_CHECKED(judge, check) {
	sbx_text tool = sbx_str(sbx_in(c, "/call/tool"));
	bool waits = false;
	for (sbx_items i = sbx_each(sbx_in(c, "/settings/tools")); sbx_next(&i);) waits = waits || sbx_same(sbx_str(i.value), tool);
	if (!waits) return sbx_allow();
	int64_t from, until;
	sbx_time now; /* the only time there is, in UTC */
	if (!sbx_int(sbx_in(c, "/settings/from"), &from) || !sbx_int(sbx_in(c, "/settings/until"), &until) || !sbx_now(c, &now))
		return sbx_deny("bad_question", SBX("the question is not complete"));
	/* The row "weekend" waits for this:
	 *
	 * if (now.weekday == 6 || now.weekday == 0) return sbx_deny("closed", SBX("the office is closed at weekends")); */
	if (now.hour < from || now.hour >= until) return sbx_deny("closed", SBX("the office is closed now"));
	return sbx_allow();
}
