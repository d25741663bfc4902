/* What tests call to see every helper of the SDK at work. */
#include "../../sandboxd.h"

static sbx_builder errors;

static void note(sbx_text error) {
	if (sbx_has(error)) sbx_add(&errors, sbx_quote(error));
}

static sbx_result keep(sbx_call *c) {
	sbx_builder b = sbx_object(), x = sbx_object(), list = sbx_list();
	sbx_value n = sbx_state_get(SBX("session:n"));
	note(n.error), sbx_put(&b, "state", n.value);
	sbx_value none = sbx_state_get(SBX("user:none"));
	note(none.error), sbx_put(&b, "found", sbx_bool(none.found));
	sbx_put(&x, "x", sbx_quote(SBX("ä")));
	note(sbx_state_set(SBX("session:m"), sbx_done(&x)).error);
	sbx_reply names = sbx_artifact_list(), text = sbx_artifact_read(SBX("a.txt"), 0, 2), saved = sbx_artifact_save(SBX("b.txt"), "text/plain", SBX("größer"));
	note(names.error), sbx_put(&b, "names", sbx_at(sbx_parse(names.data), "/names"));
	note(text.error), sbx_put_text(&b, "text", text.data);
	note(saved.error), sbx_put(&b, "version", sbx_at(sbx_parse(saved.data), "/version"));
	sbx_value k = sbx_kv_get(SBX("k"));
	note(k.error), sbx_put(&b, "kv", k.value);
	sbx_add(&list, (sbx_json){"1.50", 4});
	note(sbx_kv_set(SBX("k2"), sbx_done(&list), 1000).error);
	note(sbx_kv_delete(SBX("k")).error);
	sbx_value gone = sbx_kv_get(SBX("k"));
	note(gone.error), sbx_put(&b, "gone", sbx_bool(!gone.found));
	sbx_count first = sbx_kv_add(SBX("c"), 2, 3, 0), second = sbx_kv_add(SBX("c"), 2, 3, 60000);
	note(first.error), sbx_put(&b, "count", sbx_whole(first.count)), sbx_put(&b, "added", sbx_bool(first.added));
	note(second.error), sbx_put(&b, "again", sbx_bool(second.added));
	sbx_reply memory = sbx_memory_search(SBX("INV-7"));
	note(memory.error), sbx_put(&b, "memory", sbx_at(sbx_parse(memory.data), "/entries"));
	sbx_put(&b, "errors", sbx_done(&errors));
	return sbx_ok(c, sbx_done(&b));
}

static sbx_result moment(sbx_call *c) {
	sbx_time t;
	if (!sbx_now(c, &t)) return sbx_error(c, SBX("no time"));
	sbx_builder b = sbx_list();
	int32_t parts[] = {t.year, t.month, t.day, t.hour, t.minute, t.second, t.weekday};
	for (int i = 0; i < 7; i++) sbx_add(&b, sbx_whole(parts[i]));
	sbx_add(&b, sbx_quote(sbx_digits(sbx_clock())));
	unsigned char bytes[16] = {0}, all = 0;
	sbx_random(bytes, sizeof bytes);
	for (int i = 0; i < 16; i++) all |= bytes[i];
	sbx_add(&b, sbx_bool(all != 0));
	return sbx_ok(c, sbx_done(&b));
}

static sbx_result whole(sbx_call *c) {
	sbx_builder b = sbx_list();
	for (sbx_items i = sbx_each(sbx_arg(c, "/numbers")); sbx_next(&i);) {
		int64_t v;
		sbx_add(&b, sbx_int(i.value, &v) ? sbx_whole(v) : (sbx_json){"null", 4});
	}
	return sbx_ok(c, sbx_done(&b));
}

static sbx_result edit(sbx_call *c) {
	sbx_text at = sbx_str(sbx_arg(c, "/at"));
	char *pointer = sbx_alloc(at.n + 1);
	for (uint32_t i = 0; i < at.n; i++) pointer[i] = at.p[i];
	pointer[at.n] = 0;
	sbx_builder b = sbx_object();
	sbx_put(&b, "set", sbx_set(sbx_arg(c, "/doc"), pointer, sbx_arg(c, "/value")));
	sbx_put(&b, "deleted", sbx_delete(sbx_arg(c, "/doc"), pointer));
	return sbx_ok(c, sbx_done(&b));
}

static sbx_result send(sbx_call *c) {
	sbx_builder headers = sbx_object(), secret = sbx_object(), secrets = sbx_list(), b = sbx_object();
	sbx_put(&headers, "Idempotency-Key", sbx_quote(SBX("call-3")));
	sbx_put(&secret, "secret", sbx_quote(SBX("BANK_TOKEN")));
	sbx_put(&secret, "header", sbx_quote(SBX("Authorization")));
	sbx_put(&secret, "prefix", sbx_quote(SBX("Bearer ")));
	sbx_add(&secrets, sbx_done(&secret));
	sbx_http r = sbx_send((sbx_request){.method = "POST", .url = SBX("https://pay.bank.example/v1/payments"), .headers = sbx_done(&headers),
		.secrets = sbx_done(&secrets), .body = SBX("{\"n\":1}")});
	if (r.status == 0) return sbx_error(c, r.error);
	sbx_put(&b, "status", sbx_whole(r.status));
	sbx_put(&b, "type", sbx_at(r.headers, "/content-type"));
	sbx_put(&b, "body", sbx_quote(r.body));
	return sbx_ok(c, sbx_done(&b));
}

SBX_TOOL(calls) {
	sbx_text what = sbx_str(sbx_arg(c, "/do"));
	errors = sbx_list();
	if (sbx_is(what, "keep")) return keep(c);
	if (sbx_is(what, "time")) return moment(c);
	if (sbx_is(what, "whole")) return whole(c);
	if (sbx_is(what, "edit")) return edit(c);
	if (sbx_is(what, "send")) return send(c);
	if (sbx_is(what, "ask")) note(sbx_ask_person(SBX("Sure?"), (sbx_json){"{\"n\":1.50}", 10}).error);
	if (sbx_is(what, "transfer")) note(sbx_transfer(SBX("billing")).error);
	if (sbx_is(what, "escalate")) note(sbx_escalate().error);
	if (sbx_is(what, "skip")) note(sbx_skip_summary().error);
	return sbx_ok(c, sbx_done(&errors));
}

SBX_TOOL(lines) {
	sbx_reply r = sbx_emit(sbx_quote(SBX("ä\n")));
	if (r.ok) r = sbx_emit((sbx_json){"{\"n\":1.50}", 10});
	return r.ok ? sbx_nothing(c) : sbx_error(c, r.error);
}
