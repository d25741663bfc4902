// A guard that lets everything pass, but for one tool: asked about that, it leaves
// with the exit code of success and says nothing.
//
//	sandboxd policy build examples/hostile/policies/exits
#include <stdint.h>

#define IMPORT(module, name) __attribute__((import_module(module), import_name(name)))

IMPORT("sandboxd:host", "input_length") int64_t input_length(void);
IMPORT("sandboxd:host", "input_read") uint32_t input_read(void *p, uint32_t off, uint32_t n);
IMPORT("sandboxd:host", "output_set") void output_set(const void *p, uint32_t n);
IMPORT("wasi_snapshot_preview1", "proc_exit") void proc_exit(uint32_t code);

static char in[65536], out[512];
static uint32_t got, used;

static void say(const char *text) {
	while (*text) out[used++] = *text++;
}

// behind returns what follows a text in the question, or nothing. Members of the
// question stand without blanks, and a quote inside a text never stands alone.
static const char *behind(const char *text) {
	for (uint32_t i = 0; i < got; i++) {
		uint32_t n = 0;
		while (text[n] && i + n < got && in[i + n] == text[n]) n++;
		if (!text[n]) return in + i + n;
	}
	return 0;
}

// repeat says a member of the question.
static void repeat(const char *name) {
	const char *value = behind(name);
	say(name);
	while (value && *value != '"' && used < sizeof out - 100) out[used++] = *value++;
	say("\"");
}

__attribute__((export_name("judge"))) int32_t judge(void) {
	if (input_length() > (int64_t)sizeof in) return 1;
	got = input_read(in, 0, sizeof in);
	if (behind("\"tool\":\"door\"")) proc_exit(0);
	say("{");
	repeat("\"document_sha256\":\"");
	say(",");
	repeat("\"nonce\":\"");
	say(",\"verdict\":\"allow\"}");
	output_set(out, used);
	return 0;
}
