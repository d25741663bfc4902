/* A tool that counts the lines of all logs of one level by a field. It reads every log once, 64 KiB at a time. */
#include "../../../../sdk/guest/c/sandboxd.h"

#define MOST_VALUES 16   /* of the field; what is more counts as other */
#define MOST_SERVICES 64 /* logs */
#define MOST_LINE 4096   /* bytes; the rest of a longer line is not looked at */

typedef struct {
	sbx_text values[MOST_VALUES + 1]; /* the last one is other */
	uint32_t n;
} found;

typedef struct {
	sbx_text service;
	int64_t counts[MOST_VALUES + 1], total;
} row;

/* Where a text is in another, or its length if it is not. */
static uint32_t find(sbx_text in, sbx_text what) {
	for (uint32_t i = 0; i + what.n <= in.n; i++) {
		uint32_t k = 0;
		while (k < what.n && in.p[i + k] == what.p[k]) k++;
		if (k == what.n) return i;
	}
	return in.n;
}

static sbx_text from(sbx_text t, uint32_t i) { return (sbx_text){t.p + i, t.n - i}; }

/* The value of a field that stands before any message: what a message says is no field. */
static sbx_text field(sbx_text line, sbx_text name) {
	line.n = find(line, SBX(" message=\""));
	uint32_t i = find(line, name);
	if (i == line.n) return (sbx_text){0};
	sbx_text value = from(line, i + name.n);
	value.n = find(value, SBX(" "));
	return value;
}

static uint32_t place(found *f, sbx_text value) {
	for (uint32_t i = 0; i < f->n; i++)
		if (sbx_same(f->values[i], value)) return i;
	if (f->n == MOST_VALUES) return MOST_VALUES;
	f->values[f->n] = sbx_format("{}", value); /* the line is not kept */
	return f->n++;
}

static void count(row *r, found *f, sbx_text line, sbx_text level, sbx_text name) {
	if (find((sbx_text){line.p, line.n < 40 ? line.n : 40}, level) >= 40 || line.n < 40) return;
	sbx_text value = field(line, name);
	if (!sbx_has(value)) return;
	r->counts[place(f, value)]++;
	r->total++;
}

/* Counts in one log. What it returns is absent, or why it could not. */
static sbx_text count_log(row *r, found *f, sbx_text log, sbx_text level, sbx_text name) {
	static char line[MOST_LINE];
	uint32_t n = 0;
	for (int64_t offset = 0;;) {
		sbx_reply reply = sbx_artifact_read(log, 0, offset);
		if (!reply.ok) return reply.error;
		if (reply.data.n == 0) break;
		offset += reply.data.n;
		for (uint32_t i = 0; i < reply.data.n; i++) {
			if (reply.data.p[i] != '\n') {
				if (n < MOST_LINE) line[n++] = reply.data.p[i];
				continue;
			}
			count(r, f, (sbx_text){line, n}, level, name);
			n = 0;
		}
	}
	count(r, f, (sbx_text){line, n}, level, name);
	return (sbx_text){0};
}

/* "logs/auth.log" is of auth. */
static sbx_text service_of(sbx_text log) {
	for (uint32_t i; (i = find(log, SBX("/"))) < log.n;) log = from(log, i + 1);
	log.n = find(log, SBX(".log"));
	return log;
}

static void pad(sbx_buffer *b, sbx_text t, uint32_t width, bool right) {
	uint32_t n = sbx_characters(t);
	if (!right) sbx_write(b, t);
	for (; n < width; n++) sbx_write(b, SBX(" "));
	if (right) sbx_write(b, t);
}

SBX_TOOL(count_by) {
	sbx_text level = sbx_format(" {}", sbx_str(sbx_arg(c, "/level")));
	sbx_text name = sbx_format(" {}=", sbx_str(sbx_arg(c, "/field")));
	sbx_reply names = sbx_artifact_list();
	if (!names.ok) return sbx_error(c, names.error);

	static row rows[MOST_SERVICES];
	static found f;
	uint32_t services = 0;
	row all = {.service = SBX("all")};
	for (sbx_items log = sbx_each(sbx_at(sbx_parse(names.data), "/names")); sbx_next(&log); services++) {
		if (services == MOST_SERVICES) return sbx_fail(c, "too_many", SBX("there are more logs than 64"));
		row *r = &rows[services];
		sbx_text path = sbx_str(log.value);
		r->service = service_of(path);
		sbx_text error = count_log(r, &f, path, level, name);
		if (sbx_has(error)) return sbx_error(c, error);
		for (uint32_t i = 0; i <= MOST_VALUES; i++) all.counts[i] += r->counts[i];
		all.total += r->total;
	}
	if (services == 0) return sbx_fail(c, "no_logs", SBX("there is no log that may be read"));
	f.values[MOST_VALUES] = SBX("other");

	sbx_builder counts = sbx_object();
	sbx_buffer table = {0};
	pad(&table, SBX(""), 10, false);
	for (uint32_t i = 0; i <= MOST_VALUES; i++)
		if (all.counts[i]) pad(&table, f.values[i], f.values[i].n + 2, true);
	pad(&table, SBX("total"), 7, true);
	for (uint32_t s = 0; s <= services; s++) {
		row *r = s < services ? &rows[s] : &all;
		sbx_builder by = sbx_object();
		sbx_write(&table, SBX("\n"));
		pad(&table, r->service, 10, false);
		for (uint32_t i = 0; i <= MOST_VALUES; i++) {
			if (!all.counts[i]) continue;
			pad(&table, r->counts[i] ? sbx_digits(r->counts[i]) : SBX("·"), f.values[i].n + 2, true);
			if (r->counts[i]) sbx_put_named(&by, f.values[i], sbx_whole(r->counts[i]));
		}
		pad(&table, sbx_digits(r->total), 7, true);
		if (s < services) sbx_put_named(&counts, r->service, sbx_done(&by));
	}

	sbx_builder b = sbx_object();
	sbx_put(&b, "counts", sbx_done(&counts));
	sbx_put(&b, "services", sbx_whole(services));
	sbx_put_text(&b, "table", sbx_written(&table));
	sbx_put(&b, "total", sbx_whole(all.total));
	return sbx_ok(c, sbx_done(&b));
}
