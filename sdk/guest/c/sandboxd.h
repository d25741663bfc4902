/* The SDK of sandboxd for guests in C, ABI version 1. Copied by sandboxd plugin new; leave it as it is.
 *
 * One header for one file of source, tool.c or policy.c, which may include others. There is no libc and none is
 * needed: sandboxd plugin build runs clang --target=wasm32, freestanding.
 *
 *   SBX_TOOL(get_weather) {                     a tool; the manifest says export: get_weather
 *       sbx_http r = sbx_get("https://api.weather.example/v1/daily?q={}", sbx_str(sbx_arg(c, "/place")));
 *       if (r.status == 200) return sbx_ok(c, sbx_parse(r.body));
 *       if (r.status == 404) return sbx_fail(c, "unknown_place", SBX("no such place"));
 *       return sbx_error(c, r.error);           a refused call is status 0 and a reason
 *   }
 *   SBX_HOOKS { ... }                           all hooks of a module; sbx_in(c, "/hook") is the point
 *   SBX_GUARD(judge) { return sbx_allow(); }    a guard; the manifest says export: judge
 *
 * Everything is made in memory that lasts as long as the call, so nothing is freed. Texts and values are views of
 * bytes; one without bytes is absent. A value that is absent has no members and is no text and no number, so what
 * was read need be looked at only once. JSON is read strictly: a document with a name twice, bytes after its end
 * or text that is not UTF-8 is absent. Numbers keep the text they were written with. */
#ifndef SANDBOXD_H
#define SANDBOXD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SBX_FN static __attribute__((unused))
#define SBX_IMPORT(module, name) extern __attribute__((import_module(module), import_name(name)))

/* A text: bytes, UTF-8 unless it is the body of something. p is null if it is absent. */
typedef struct { const char *p; uint32_t n; } sbx_text;
/* A JSON value as it was written. p is null if it is absent. */
typedef struct { const char *p; uint32_t n; } sbx_json;

/* ---- Memory ---- */

extern unsigned char __heap_base;
static uintptr_t sbx__free;

/* n bytes, of which nothing is known. It traps where the call may have no more. */
SBX_FN char *sbx_alloc(size_t n) {
	if (sbx__free == 0) sbx__free = (uintptr_t)&__heap_base;
	uintptr_t at = (sbx__free + 7) & ~(uintptr_t)7, have = (uintptr_t)__builtin_wasm_memory_size(0) << 16;
	if (n > 0x7fffffff || at > 0x7fffffff) __builtin_trap();
	if (at + n > have) {
		uintptr_t pages = (at + n - have + 0xffff) >> 16;
		if (__builtin_wasm_memory_grow(0, pages) == (size_t)-1) __builtin_trap();
	}
	sbx__free = at + n;
	return (char *)at;
}

/* What a compiler calls even where there is no library. */
__attribute__((weak)) void *memcpy(void *to, const void *from, size_t n) {
	for (size_t i = 0; i < n; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
	return to;
}
__attribute__((weak)) void *memset(void *to, int c, size_t n) {
	for (size_t i = 0; i < n; i++) ((volatile char *)to)[i] = (char)c;
	return to;
}

/* ---- Texts ---- */

#define SBX(literal) ((sbx_text){("" literal), sizeof(literal) - 1})

SBX_FN bool sbx_has(sbx_text t) { return t.p != 0; }

/* A text of a string that ends with a zero byte. */
SBX_FN sbx_text sbx_from(const char *s) {
	uint32_t n = 0;
	while (s[n]) n++;
	return (sbx_text){s, n};
}

SBX_FN bool sbx_same(sbx_text a, sbx_text b) {
	if (!a.p || !b.p || a.n != b.n) return false;
	for (uint32_t i = 0; i < a.n; i++)
		if (a.p[i] != b.p[i]) return false;
	return true;
}

/* Whether a text is the one in the source; an absent one never is. */
SBX_FN bool sbx_is(sbx_text a, const char *b) { return sbx_same(a, sbx_from(b)); }

/* -1, 0 or 1 by the order of the bytes. */
SBX_FN int sbx_order(sbx_text a, sbx_text b) {
	for (uint32_t i = 0; i < a.n && i < b.n; i++)
		if (a.p[i] != b.p[i]) return (unsigned char)a.p[i] < (unsigned char)b.p[i] ? -1 : 1;
	return a.n < b.n ? -1 : a.n > b.n;
}

/* Length of the character that begins at p, 0 if what is there is not UTF-8. */
SBX_FN uint32_t sbx__char(const char *p, const char *end) {
	unsigned char a = (unsigned char)p[0];
	if (a < 0x80) return 1;
	uint32_t n = a >= 0xc2 && a <= 0xdf ? 2 : (a & 0xf0) == 0xe0 ? 3 : a >= 0xf0 && a <= 0xf4 ? 4 : 0;
	if (n == 0 || (uint32_t)(end - p) < n) return 0;
	for (uint32_t i = 1; i < n; i++)
		if (((unsigned char)p[i] & 0xc0) != 0x80) return 0;
	unsigned char b = (unsigned char)p[1];
	if ((a == 0xe0 && b < 0xa0) || (a == 0xed && b > 0x9f) || (a == 0xf0 && b < 0x90) || (a == 0xf4 && b > 0x8f)) return 0;
	return n;
}

/* How many characters a text has; a byte that is none counts as one. */
SBX_FN uint32_t sbx_characters(sbx_text t) {
	uint32_t count = 0;
	for (uint32_t i = 0; i < t.n; count++) {
		uint32_t n = sbx__char(t.p + i, t.p + t.n);
		i += n ? n : 1;
	}
	return count;
}

/* The first characters of a text, at most that many. */
SBX_FN sbx_text sbx_first(sbx_text t, uint32_t characters) {
	uint32_t i = 0;
	for (; i < t.n && characters > 0; characters--) {
		uint32_t n = sbx__char(t.p + i, t.p + t.n);
		i += n ? n : 1;
	}
	return (sbx_text){t.p, i};
}

/* ---- Bytes that grow ---- */

typedef struct { char *p; uint32_t n, room; } sbx_buffer;

SBX_FN void sbx_write(sbx_buffer *b, sbx_text t) {
	if (t.n > b->room - b->n) {
		uint32_t room = (b->n + t.n) * 2 + 64;
		char *p = sbx_alloc(room);
		__builtin_memcpy(p, b->p, b->n);
		b->p = p, b->room = room;
	}
	__builtin_memcpy(b->p + b->n, t.p, t.n);
	b->n += t.n;
}

SBX_FN void sbx__write_byte(sbx_buffer *b, char c) {
	if (b->n < b->room) b->p[b->n++] = c;
	else sbx_write(b, (sbx_text){&c, 1});
}

SBX_FN sbx_text sbx_written(const sbx_buffer *b) { return (sbx_text){b->p ? b->p : "", b->n}; }

/* A number as text. */
SBX_FN sbx_text sbx_digits(int64_t v) {
	char *end = sbx_alloc(24) + 24, *p = end;
	uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
	do *--p = (char)('0' + u % 10);
	while (u /= 10);
	if (v < 0) *--p = '-';
	return (sbx_text){p, (uint32_t)(end - p)};
}

SBX_FN void sbx__format(sbx_buffer *b, const char *format, va_list args, bool encode) {
	for (const char *p = format; *p; p++) {
		if (p[0] != '{' || p[1] != '}') {
			sbx__write_byte(b, *p);
			continue;
		}
		p++;
		sbx_text t = va_arg(args, sbx_text);
		if (!encode) {
			sbx_write(b, t);
			continue;
		}
		for (uint32_t i = 0; i < t.n; i++) {
			unsigned char c = (unsigned char)t.p[i];
			if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '~') {
				sbx__write_byte(b, (char)c);
				continue;
			}
			const char *hex = "0123456789ABCDEF";
			sbx__write_byte(b, '%'), sbx__write_byte(b, hex[c >> 4]), sbx__write_byte(b, hex[c & 15]);
		}
	}
}

/* The format with each {} replaced by the next sbx_text. */
SBX_FN sbx_text sbx_format(const char *format, ...) {
	sbx_buffer b = {0};
	va_list args;
	va_start(args, format);
	sbx__format(&b, format, args, false);
	va_end(args);
	return sbx_written(&b);
}

/* The format with each {} replaced by the next sbx_text, percent-encoded. */
SBX_FN sbx_text sbx_url(const char *format, ...) {
	sbx_buffer b = {0};
	va_list args;
	va_start(args, format);
	sbx__format(&b, format, args, true);
	va_end(args);
	return sbx_written(&b);
}

/* ---- Reading JSON ---- */

#define SBX_NESTING 80 /* deeper documents are absent; the contract has none */

SBX_FN const char *sbx__space(const char *p, const char *end) {
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')) p++;
	return p;
}

SBX_FN int32_t sbx__hex4(const char *p) {
	int32_t v = 0;
	for (int i = 0; i < 4; i++) {
		char c = p[i];
		int32_t d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
		if (d < 0) return -1;
		v = v << 4 | d;
	}
	return v;
}

/* Goes past the string at p, whose form it checks; null if it is none. */
SBX_FN const char *sbx__check_string(const char *p, const char *end) {
	if (p == end || *p != '"') return 0;
	for (p++; p < end;) {
		unsigned char c = (unsigned char)*p;
		if (c == '"') return p + 1;
		if (c < 0x20) return 0;
		if (c != '\\') {
			uint32_t n = sbx__char(p, end);
			if (n == 0) return 0;
			p += n;
			continue;
		}
		if (end - p < 2) return 0;
		switch (p[1]) {
		case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
			p += 2;
			continue;
		case 'u': break;
		default: return 0;
		}
		int32_t u = end - p < 6 ? -1 : sbx__hex4(p + 2);
		if (u < 0 || (u >= 0xdc00 && u <= 0xdfff)) return 0;
		p += 6;
		if (u < 0xd800 || u > 0xdbff) continue;
		if (end - p < 6 || p[0] != '\\' || p[1] != 'u') return 0;
		u = sbx__hex4(p + 2);
		if (u < 0xdc00 || u > 0xdfff) return 0;
		p += 6;
	}
	return 0;
}

SBX_FN const char *sbx__digits_end(const char *p, const char *end) {
	const char *start = p;
	while (p < end && *p >= '0' && *p <= '9') p++;
	return p == start ? 0 : p;
}

/* Goes past the number at p; null if it is none. */
SBX_FN const char *sbx__check_number(const char *p, const char *end) {
	if (p < end && *p == '-') p++;
	if (p < end && *p == '0') p++;
	else if (!(p = sbx__digits_end(p, end))) return 0;
	if (p < end && *p == '.' && !(p = sbx__digits_end(p + 1, end))) return 0;
	if (p < end && (*p == 'e' || *p == 'E')) {
		p++;
		if (p < end && (*p == '+' || *p == '-')) p++;
		if (!(p = sbx__digits_end(p, end))) return 0;
	}
	return p;
}

SBX_FN sbx_text sbx__unquote(const char *p, const char *end);
SBX_FN const char *sbx__skip(const char *p, const char *end);

/* Whether an object, of which the members up to end were checked, has a name. */
SBX_FN bool sbx__named(const char *object, const char *end, sbx_text name) {
	const char *p = sbx__space(object + 1, end);
	while (p < end && *p == '"') {
		const char *after = sbx__skip(p, end);
		if (sbx_same(sbx__unquote(p, after), name)) return true;
		p = sbx__skip(sbx__space(sbx__space(after, end) + 1, end), end);
		p = sbx__space(sbx__space(p, end) + 1, end);
	}
	return false;
}

/* Goes past the value at p, whose form it checks; null if it is none. */
SBX_FN const char *sbx__check(const char *p, const char *end, int depth) {
	if (p == end) return 0;
	char c = *p;
	if (c == '"') return sbx__check_string(p, end);
	if (c == '-' || (c >= '0' && c <= '9')) return sbx__check_number(p, end);
	if (c == 't' || c == 'f' || c == 'n') {
		sbx_text word = c == 't' ? SBX("true") : c == 'f' ? SBX("false") : SBX("null");
		return (uint32_t)(end - p) >= word.n && sbx_same((sbx_text){p, word.n}, word) ? p + word.n : 0;
	}
	if ((c != '{' && c != '[') || depth == SBX_NESTING) return 0;
	const char *start = p;
	char close = c == '{' ? '}' : ']';
	p = sbx__space(p + 1, end);
	if (p < end && *p == close) return p + 1;
	sbx_text last = {0}; /* the greatest name so far */
	for (;;) {
		if (c == '{') {
			const char *name = p;
			if (!(p = sbx__check_string(p, end))) return 0;
			/* Documents of the host are sorted by name, so one look is enough there. */
			sbx_text text = sbx__unquote(name, p);
			int order = last.p ? sbx_order(last, text) : -1;
			if (order == 0 || (order > 0 && sbx__named(start, name, text))) return 0;
			if (order < 0) last = text;
			p = sbx__space(p, end);
			if (p == end || *p != ':') return 0;
			p = sbx__space(p + 1, end);
		}
		if (!(p = sbx__check(p, end, depth + 1))) return 0;
		p = sbx__space(p, end);
		if (p == end) return 0;
		if (*p == close) return p + 1;
		if (*p != ',') return 0;
		p = sbx__space(p + 1, end);
	}
}

/* The value that a text holds, and nothing else; absent if it is not strict JSON. */
SBX_FN sbx_json sbx_parse(sbx_text t) {
	if (!t.p) return (sbx_json){0};
	const char *end = t.p + t.n, *start = sbx__space(t.p, end), *after = sbx__check(start, end, 0);
	if (!after || sbx__space(after, end) != end) return (sbx_json){0};
	return (sbx_json){start, (uint32_t)(after - start)};
}

/* Goes past a value that was checked. */
SBX_FN const char *sbx__skip(const char *p, const char *end) {
	int depth = 0;
	do {
		switch (*p) {
		case '"':
			for (p++; *p != '"'; p++)
				if (*p == '\\') p++;
			p++;
			break;
		case '{': case '[': depth++, p++; break;
		case '}': case ']': depth--, p++; break;
		case ',': case ':': case ' ': case '\n': case '\t': case '\r': p++; break;
		default:
			while (p < end && *p != ',' && *p != '}' && *p != ']' && *p != ':' && (unsigned char)*p > ' ') p++;
		}
	} while (depth > 0);
	return p;
}

/* What a string that was checked says; p is at its first quote and end behind its last. */
SBX_FN sbx_text sbx__unquote(const char *p, const char *end) {
	p++, end--;
	const char *q = p;
	while (q < end && *q != '\\') q++;
	if (q == end) return (sbx_text){p, (uint32_t)(end - p)};
	char *start = sbx_alloc((size_t)(end - p)), *to = start;
	while (p < end) {
		if (*p != '\\') {
			*to++ = *p++;
			continue;
		}
		char c = p[1];
		p += 2;
		if (c != 'u') {
			*to++ = c == 'b' ? '\b' : c == 'f' ? '\f' : c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
			continue;
		}
		uint32_t u = (uint32_t)sbx__hex4(p);
		p += 4;
		if (u >= 0xd800 && u <= 0xdbff) {
			u = 0x10000 + ((u - 0xd800) << 10) + ((uint32_t)sbx__hex4(p + 2) - 0xdc00);
			p += 6;
		}
		if (u < 0x80) *to++ = (char)u;
		else if (u < 0x800) *to++ = (char)(0xc0 | u >> 6), *to++ = (char)(0x80 | (u & 63));
		else if (u < 0x10000) *to++ = (char)(0xe0 | u >> 12), *to++ = (char)(0x80 | (u >> 6 & 63)), *to++ = (char)(0x80 | (u & 63));
		else *to++ = (char)(0xf0 | u >> 18), *to++ = (char)(0x80 | (u >> 12 & 63)), *to++ = (char)(0x80 | (u >> 6 & 63)), *to++ = (char)(0x80 | (u & 63));
	}
	return (sbx_text){start, (uint32_t)(to - start)};
}

/* What a value is: '{', '[', '"', '0' for a number, 't', 'f', 'n' for null, or 0 if it is absent. */
SBX_FN char sbx_type(sbx_json v) {
	if (!v.p) return 0;
	return *v.p == '-' || (*v.p >= '0' && *v.p <= '9') ? '0' : *v.p;
}

/* The members of an object or the elements of a list:
 *
 *   for (sbx_items i = sbx_each(value); sbx_next(&i);) { i.name, i.index, i.value } */
typedef struct {
	sbx_text name; /* absent in a list */
	uint32_t index;
	sbx_json value;
	const char *at, *end;
} sbx_items;

SBX_FN sbx_items sbx_each(sbx_json v) {
	sbx_items i = {0};
	char type = sbx_type(v);
	if (type == '{' || type == '[') i.at = v.p, i.end = v.p + v.n - 1; /* end is at the bracket that closes */
	return i;
}

SBX_FN bool sbx_next(sbx_items *i) {
	if (!i->at) return false;
	const char *p = sbx__space(i->at, i->end);
	if (p == i->end) return false;
	bool first = !i->value.p;
	p = sbx__space(p + 1, i->end); /* past the bracket that opens, or a comma */
	if (p == i->end) return false;
	if (*i->end == '}') {
		const char *after = sbx__skip(p, i->end);
		i->name = sbx__unquote(p, after);
		p = sbx__space(sbx__space(after, i->end) + 1, i->end);
	}
	i->index = first ? 0 : i->index + 1;
	i->at = sbx__skip(p, i->end);
	i->value = (sbx_json){p, (uint32_t)(i->at - p)};
	return true;
}

/* The member of an object with exactly that name. */
SBX_FN sbx_json sbx_member(sbx_json v, sbx_text name) {
	if (sbx_type(v) == '{')
		for (sbx_items i = sbx_each(v); sbx_next(&i);)
			if (sbx_same(i.name, name)) return i.value;
	return (sbx_json){0};
}

/* The element of a list, from 0 on. */
SBX_FN sbx_json sbx_element(sbx_json v, uint32_t index) {
	if (sbx_type(v) == '[')
		for (sbx_items i = sbx_each(v); sbx_next(&i);)
			if (i.index == index) return i.value;
	return (sbx_json){0};
}

/* One step of a pointer, from v. */
SBX_FN sbx_json sbx__step(sbx_json v, sbx_text step) {
	if (sbx_type(v) != '[') return sbx_member(v, step);
	uint32_t index = 0;
	if (step.n == 0 || step.n > 9 || (step.n > 1 && step.p[0] == '0')) return (sbx_json){0};
	for (uint32_t i = 0; i < step.n; i++) {
		if (step.p[i] < '0' || step.p[i] > '9') return (sbx_json){0};
		index = index * 10 + (uint32_t)(step.p[i] - '0');
	}
	return sbx_element(v, index);
}

/* Reads the next step of a pointer at *p, which is a '/', and goes past it. */
SBX_FN sbx_text sbx__read_step(const char **p) {
	sbx_buffer b = {0};
	const char *start = *p + 1, *q = start;
	while (*q && *q != '/' && *q != '~') q++;
	if (*q != '~') {
		*p = q;
		return (sbx_text){start, (uint32_t)(q - start)};
	}
	for (q = start; *q && *q != '/'; q++) {
		if (*q == '~' && (q[1] == '0' || q[1] == '1')) sbx__write_byte(&b, *++q == '0' ? '~' : '/');
		else sbx__write_byte(&b, *q);
	}
	*p = q;
	return sbx_written(&b);
}

/* The value at a JSON pointer (RFC 6901), such as "/lines/0/sku"; "" is v itself. */
SBX_FN sbx_json sbx_at(sbx_json v, const char *pointer) {
	while (*pointer == '/' && v.p) v = sbx__step(v, sbx__read_step(&pointer));
	return *pointer ? (sbx_json){0} : v;
}

/* What a string says. Absent if the value is no string. */
SBX_FN sbx_text sbx_str(sbx_json v) { return sbx_type(v) == '"' ? sbx__unquote(v.p, v.p + v.n) : (sbx_text){0}; }

/* A number as it was written. Absent if the value is no number. */
SBX_FN sbx_text sbx_number(sbx_json v) { return sbx_type(v) == '0' ? (sbx_text){v.p, v.n} : (sbx_text){0}; }

/* Whether the value is true. */
SBX_FN bool sbx_true(sbx_json v) { return sbx_type(v) == 't'; }

/* ---- Decimals ---- */

/* An exact number. It keeps the text it was written with. */
typedef struct {
	sbx_text text;   /* absent: no number */
	bool negative;
	sbx_text digits; /* significant ones, first and last not '0'; empty for zero */
	int64_t point;   /* the value is 0.digits times ten to the power of point */
} sbx_decimal;

/* The decimal that a text says, in the form that JSON gives numbers, with an exponent of at most a million. Its
 * text is absent if it says none. */
SBX_FN sbx_decimal sbx_decimal_of(sbx_text t) {
	sbx_decimal none = {0}, d = {.text = t};
	if (!t.p) return none;
	const char *p = t.p, *end = t.p + t.n;
	if (t.n == 0 || sbx__check_number(p, end) != end) return none;
	d.negative = *p == '-';
	p += d.negative;
	char *digits = sbx_alloc(t.n);
	uint32_t n = 0, leading = 0, whole = 0;
	bool fraction = false;
	int64_t exponent = 0;
	for (; p < end && *p != 'e' && *p != 'E'; p++) {
		if (*p == '.') {
			fraction = true;
			continue;
		}
		whole += !fraction;
		if (n == 0 && *p == '0') leading++;
		else digits[n++] = *p;
	}
	if (p < end) {
		bool minus = *++p == '-';
		if (minus || *p == '+') p++;
		for (; p < end; p++)
			if ((exponent = exponent * 10 + (*p - '0')) > 1000000) return none;
		if (minus) exponent = -exponent;
	}
	while (n > 0 && digits[n - 1] == '0') n--;
	d.digits = (sbx_text){digits, n};
	if (n == 0) d.negative = false;
	else d.point = (int64_t)whole - (int64_t)leading + exponent;
	return d;
}

/* The decimal that a value says: a number, or text that reads like one. */
SBX_FN sbx_decimal sbx_decimal_at(sbx_json v) { return sbx_decimal_of(sbx_type(v) == '0' ? sbx_number(v) : sbx_str(v)); }

/* -1, 0 or 1. */
SBX_FN int sbx_sign(sbx_decimal d) { return d.digits.n == 0 ? 0 : d.negative ? -1 : 1; }

/* -1, 0 or 1 as a is less than, equal to or greater than b. Both must be decimals. */
SBX_FN int sbx_compare(sbx_decimal a, sbx_decimal b) {
	if (sbx_sign(a) != sbx_sign(b)) return sbx_sign(a) < sbx_sign(b) ? -1 : 1;
	int size = a.point < b.point ? -1 : a.point > b.point ? 1 : sbx_order(a.digits, b.digits);
	return a.negative ? -size : size;
}

/* Reads a whole number, which may be written 3.0 or 3e0; false if the value is none or too large. */
SBX_FN bool sbx_int(sbx_json v, int64_t *into) {
	sbx_decimal d = sbx_decimal_of(sbx_number(v));
	if (!d.text.p || d.point < (int64_t)d.digits.n || d.point > 19) return false;
	uint64_t u = 0;
	for (int64_t i = 0; i < d.point; i++) {
		uint64_t digit = i < (int64_t)d.digits.n ? (uint64_t)(d.digits.p[i] - '0') : 0;
		if (u > (UINT64_MAX - digit) / 10) return false;
		u = u * 10 + digit;
	}
	if (u > (uint64_t)INT64_MAX + d.negative) return false;
	*into = (int64_t)(d.negative ? 0 - u : u);
	return true;
}

/* ---- Writing JSON ---- */

/* The string that says a text; bytes that are not UTF-8 become U+FFFD. */
SBX_FN sbx_json sbx_quote(sbx_text t) {
	sbx_buffer b = {0};
	sbx__write_byte(&b, '"');
	for (uint32_t i = 0; i < t.n;) {
		uint32_t n = sbx__char(t.p + i, t.p + t.n);
		char c = t.p[i];
		const char *hex = "0123456789abcdef";
		if (n == 0) sbx_write(&b, SBX("\xef\xbf\xbd")), n = 1;
		else if (c == '"' || c == '\\') sbx__write_byte(&b, '\\'), sbx__write_byte(&b, c);
		else if ((unsigned char)c < 0x20) sbx_write(&b, SBX("\\u00")), sbx__write_byte(&b, hex[c >> 4]), sbx__write_byte(&b, hex[c & 15]);
		else if (n == 1) sbx__write_byte(&b, c);
		else sbx_write(&b, (sbx_text){t.p + i, n});
		i += n;
	}
	sbx__write_byte(&b, '"');
	return (sbx_json){b.p, b.n};
}

SBX_FN sbx_json sbx_whole(int64_t v) {
	sbx_text t = sbx_digits(v);
	return (sbx_json){t.p, t.n};
}

SBX_FN sbx_json sbx_bool(bool v) { return v ? (sbx_json){"true", 4} : (sbx_json){"false", 5}; }

/* An object or a list that is being written:
 *
 *   sbx_builder b = sbx_object();
 *   sbx_put(&b, "place", sbx_quote(place));
 *   return sbx_ok(c, sbx_done(&b)); */
typedef struct { sbx_buffer bytes; char close; } sbx_builder;

SBX_FN sbx_builder sbx_object(void) {
	sbx_builder b = {.close = '}'};
	sbx__write_byte(&b.bytes, '{');
	return b;
}

SBX_FN sbx_builder sbx_list(void) {
	sbx_builder b = {.close = ']'};
	sbx__write_byte(&b.bytes, '[');
	return b;
}

/* Adds an element to a list. An absent value is none. */
SBX_FN void sbx_add(sbx_builder *b, sbx_json value) {
	if (!value.p) return;
	if (b->bytes.n > 1) sbx__write_byte(&b->bytes, ',');
	sbx_write(&b->bytes, (sbx_text){value.p, value.n});
}

/* Adds a member to an object, whose name must be new. An absent value is none. */
SBX_FN void sbx_put_named(sbx_builder *b, sbx_text name, sbx_json value) {
	if (!value.p) return;
	sbx_json quoted = sbx_quote(name);
	sbx_add(b, quoted);
	sbx__write_byte(&b->bytes, ':');
	sbx_write(&b->bytes, (sbx_text){value.p, value.n});
}

SBX_FN void sbx_put(sbx_builder *b, const char *name, sbx_json value) { sbx_put_named(b, sbx_from(name), value); }

/* Adds a member that is text. An absent or empty text is none. */
SBX_FN void sbx_put_text(sbx_builder *b, const char *name, sbx_text text) {
	if (text.p && text.n) sbx_put(b, name, sbx_quote(text));
}

SBX_FN sbx_json sbx_done(sbx_builder *b) {
	sbx__write_byte(&b->bytes, b->close);
	return (sbx_json){b->bytes.p, b->bytes.n};
}

/* ---- Changing documents ---- */

/* A copy of the object or list v with value for its member, or element, of that step; without it if value is
 * absent. Absent if there is no such place. */
SBX_FN sbx_json sbx__with(sbx_json v, const char *pointer, sbx_json value) {
	if (!*pointer) return value;
	if (*pointer != '/') return (sbx_json){0};
	sbx_text step = sbx__read_step(&pointer);
	sbx_json inner = sbx__step(v, step);
	char type = sbx_type(v);
	bool here = !*pointer, append = here && type == '[' && sbx_is(step, "-") && value.p;
	if ((type != '{' && type != '[') || (!inner.p && !append && !(here && type == '{'))) return (sbx_json){0};
	if (!here && !(value = sbx__with(inner, pointer, value)).p) return (sbx_json){0};
	sbx_builder b = type == '{' ? sbx_object() : sbx_list();
	for (sbx_items i = sbx_each(v); sbx_next(&i);) {
		sbx_json element = inner.p && i.value.p == inner.p ? value : i.value;
		if (type == '{') sbx_put_named(&b, i.name, element);
		else sbx_add(&b, element);
	}
	if (append) sbx_add(&b, value);
	else if (!inner.p) sbx_put_named(&b, step, value);
	return sbx_done(&b);
}

/* A copy of a document with value at the pointer: it replaces what is there, adds the member, or with "-" as the
 * last step appends to a list. Absent if there is no such place. */
SBX_FN sbx_json sbx_set(sbx_json document, const char *pointer, sbx_json value) {
	return value.p ? sbx__with(document, pointer, value) : (sbx_json){0};
}

/* A copy of a document without what is at the pointer, if anything is. */
SBX_FN sbx_json sbx_delete(sbx_json document, const char *pointer) {
	return sbx_at(document, pointer).p ? sbx__with(document, pointer, (sbx_json){0}) : document;
}

/* ---- The call ---- */

SBX_IMPORT("sandboxd:host", "input_length") int64_t sbx__input_length(void);
SBX_IMPORT("sandboxd:host", "input_read") uint32_t sbx__input_read(void *to, uint32_t off, uint32_t n);
SBX_IMPORT("sandboxd:host", "output_set") void sbx__output_set(const void *p, uint32_t n);
SBX_IMPORT("sandboxd:host", "reply_read") uint32_t sbx__reply_read(void *to, uint32_t off, uint32_t n);

/* One call of a guest. Its input is the document of the contract: a tool call, a hook call or a question. */
typedef struct {
	sbx_json input;
	sbx_items members[32]; /* of input, so that what is asked for is not looked for from its beginning */
	uint32_t count;
	sbx_builder why; /* of a guard */
} sbx_call;

/* A value of the input, such as sbx_in(c, "/user/id"). */
SBX_FN sbx_json sbx_in(sbx_call *c, const char *pointer) {
	const char *rest = pointer;
	if (*pointer != '/') return sbx_at(c->input, pointer);
	sbx_text step = sbx__read_step(&rest);
	for (uint32_t i = 0; i < c->count; i++)
		if (sbx_same(c->members[i].name, step)) return sbx_at(c->members[i].value, rest);
	return (sbx_json){0};
}

/* A value of a tool's arguments; sbx_arg(c, "") is all of them. */
SBX_FN sbx_json sbx_arg(sbx_call *c, const char *pointer) { return sbx_at(sbx_in(c, "/args"), pointer); }

/* What the operator configured under a name; absent if nothing. */
SBX_FN sbx_text sbx_config(sbx_call *c, const char *name) { return sbx_str(sbx_member(sbx_in(c, "/config"), sbx_from(name))); }

SBX_FN sbx_text sbx__read_all(uint32_t n, uint32_t (*read)(void *, uint32_t, uint32_t)) {
	char *p = sbx_alloc(n);
	for (uint32_t off = 0; off < n;) {
		uint32_t got = read(p + off, off, n - off);
		if (got == 0) __builtin_trap();
		off += got;
	}
	return (sbx_text){p, n};
}

/* Reads the input; what is not a document of this contract traps. */
SBX_FN sbx_call sbx__begin(void) {
	int64_t n = sbx__input_length();
	if (n > 0x7fffffff) __builtin_trap();
	sbx_call c = {.input = sbx_parse(sbx__read_all((uint32_t)n, sbx__input_read))};
	for (sbx_items i = sbx_each(c.input); sbx_next(&i);) {
		if (c.count == 32) __builtin_trap(); /* the contract knows fewer */
		c.members[c.count++] = i;
	}
	if (!sbx_is(sbx_number(sbx_in(&c, "/format")), "1")) __builtin_trap();
	return c;
}

SBX_FN void sbx__kind(sbx_call *c, const char *kind) {
	if (!sbx_is(sbx_str(sbx_in(c, "/kind")), kind)) __builtin_trap();
}

SBX_FN int32_t sbx__output(sbx_json v) {
	if (!v.p) __builtin_trap();
	sbx__output_set(v.p, v.n);
	return 0;
}

/* A moment, in UTC. weekday is 0 on Sundays. */
typedef struct { int32_t year, month, day, hour, minute, second, weekday; } sbx_time;

/* When the call began, which for a guard is all it may know of time; false if the input does not say. */
SBX_FN bool sbx_now(sbx_call *c, sbx_time *t) {
	sbx_text s = sbx_str(sbx_in(c, "/now"));
	const char *form = "dddd-dd-ddTdd:dd:dd";
	int32_t f[6] = {0}, field = 0;
	for (uint32_t i = 0; i < 19; i++) {
		if (i >= s.n) return false;
		if (form[i] != 'd') {
			if (s.p[i] != form[i]) return false;
			field++;
		} else if (s.p[i] < '0' || s.p[i] > '9') return false;
		else f[field] = f[field] * 10 + (s.p[i] - '0');
	}
	if (s.p[s.n - 1] != 'Z' || f[1] < 1 || f[1] > 12 || f[2] < 1 || f[2] > 31 || f[3] > 23 || f[4] > 59 || f[5] > 60) return false;
	static const int32_t shift[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4}; /* Sakamoto's */
	int32_t y = f[0] - (f[1] < 3);
	*t = (sbx_time){f[0], f[1], f[2], f[3], f[4], f[5], (y + y / 4 - y / 100 + y / 400 + shift[f[1] - 1] + f[2]) % 7};
	return true;
}

/* ---- Tools ---- */

/* What a tool answers; only the functions below make one. */
typedef struct { sbx_json document; } sbx_result;

#define SBX_TOOL(name)                                                                                               \
	static sbx_result sbx__tool_##name(sbx_call *c);                                                             \
	__attribute__((export_name(#name))) int32_t sbx__export_##name(void) {                                       \
		sbx_call c = sbx__begin();                                                                           \
		sbx__kind(&c, "tool");                                                                               \
		return sbx__output(sbx__tool_##name(&c).document);                                                   \
	}                                                                                                            \
	static sbx_result sbx__tool_##name(sbx_call *c)

SBX_FN sbx_result sbx__answer(const char *member, sbx_json v) {
	sbx_builder b = sbx_object();
	if (member) sbx_put(&b, member, v);
	sbx_put(&b, "format", (sbx_json){"1", 1});
	return (sbx_result){sbx_done(&b)};
}

/* A failure that the model reads. The code, [a-z_]{1,40}, is the author's. */
SBX_FN sbx_result sbx_fail(sbx_call *c, const char *code, sbx_text message) {
	(void)c;
	sbx_builder b = sbx_object();
	if (code) sbx_put(&b, "code", sbx_quote(sbx_from(code)));
	sbx_put(&b, "message", sbx_quote(message.p ? message : SBX("")));
	return sbx__answer("fail", sbx_done(&b));
}

/* A failure without a code, such as that of a host call. */
SBX_FN sbx_result sbx_error(sbx_call *c, sbx_text message) { return sbx_fail(c, 0, message); }

/* The result. A value that is absent is a failure. */
SBX_FN sbx_result sbx_ok(sbx_call *c, sbx_json v) {
	if (!v.p) return sbx_fail(c, "bad_result", SBX("result: no JSON"));
	return sbx__answer("result", v);
}

/* No result: a streaming tool has sent its parts, a long-running one has nothing to say yet. */
SBX_FN sbx_result sbx_nothing(sbx_call *c) {
	(void)c;
	return sbx__answer(0, (sbx_json){0});
}

/* ---- Hooks ---- */

/* All hooks of a module: sbx_str(sbx_in(c, "/hook")) is the point. */
#define SBX_HOOKS                                                                                                    \
	static sbx_result sbx__hooks(sbx_call *c);                                                                   \
	__attribute__((export_name("call"))) int32_t sbx__export_hooks(void) {                                       \
		sbx_call c = sbx__begin();                                                                           \
		sbx__kind(&c, "hook");                                                                               \
		return sbx__output(sbx__hooks(&c).document);                                                         \
	}                                                                                                            \
	static sbx_result sbx__hooks(sbx_call *c)

/* The run goes on as it was. */
SBX_FN sbx_result sbx_unchanged(sbx_call *c) { return sbx_nothing(c); }

/* The hook failed. */
SBX_FN sbx_result sbx_hook_error(sbx_call *c, sbx_text message) {
	(void)c;
	return sbx__answer("error", sbx_quote(message.p && message.n ? message : SBX("the hook failed")));
}

/* The run goes on with a changed document: member is args, result, request, response, content or event. A document
 * that is absent is an error. */
SBX_FN sbx_result sbx_change(sbx_call *c, const char *member, sbx_json document) {
	if (!document.p) return sbx_hook_error(c, sbx_format("{}: there is no such place", sbx_from(member)));
	return sbx__answer(member, document);
}

/* The answer of the hook, an object, which ends the chain of hooks at this point. */
SBX_FN sbx_result sbx_answer(sbx_call *c, sbx_json answer) {
	if (sbx_type(answer) != '{') return sbx_hook_error(c, SBX("answer: no object"));
	return sbx__answer("answer", answer);
}

/* ---- Guards ---- */

/* What a guard decides. One that is zero denies. */
typedef struct {
	const char *ruling, *code;
	sbx_text text; /* reason or hint */
	sbx_json grants, document;
	int32_t hold;
} sbx_verdict;

/* A guard without a check of its settings. sbx_in(c, "/phase"), "/call/tool", "/call/args/..." and "/settings/..."
 * are what it judges by. */
#define SBX_GUARD(name) SBX__GUARD(name, 0)

/* A guard with one: static sbx_text check(sbx_json settings) says what is wrong with them, absent for nothing. The
 * manifest says check: true. */
#define SBX_GUARD_CHECKED(name, check) SBX__GUARD(name, check)

#define SBX__GUARD(name, check)                                                                                      \
	static sbx_verdict sbx__judge_##name(sbx_call *c);                                                           \
	__attribute__((export_name(#name))) int32_t sbx__export_##name(void) { return sbx__guard(sbx__judge_##name, check); } \
	static sbx_verdict sbx__judge_##name(sbx_call *c)

SBX_FN sbx_verdict sbx_allow(void) { return (sbx_verdict){.ruling = "allow"}; }

/* Allows a response but for the last characters of a stream, at most 8192, until the guard has seen what follows. */
SBX_FN sbx_verdict sbx_allow_but(int32_t hold) { return (sbx_verdict){.ruling = "allow", .hold = hold}; }

/* Refuses. The code, [a-z_]{1,40}, is the author's; the model reads the reason, which is cut at 256 characters. */
SBX_FN sbx_verdict sbx_deny(const char *code, sbx_text reason) { return (sbx_verdict){.ruling = "deny", .code = code, .text = reason}; }

/* Asks a person, who reads the hint, cut at 256 characters. */
SBX_FN sbx_verdict sbx_confirm(sbx_text hint) { return (sbx_verdict){.ruling = "confirm", .text = hint}; }

/* Lets the call pass with at most these grants, a list of texts. */
SBX_FN sbx_verdict sbx_narrow(sbx_json grants) { return (sbx_verdict){.ruling = sbx_type(grants) == '[' ? "narrow" : 0, .grants = grants}; }

/* Replaces the judged document, in a phase that the manifest lists under mutates. An absent one denies. */
SBX_FN sbx_verdict sbx_rewrite(sbx_json document) { return (sbx_verdict){.ruling = document.p ? "rewrite" : 0, .document = document}; }

/* Tells the operator what the verdict rests on, at most 16 times. at is a JSON pointer into the judged document;
 * texts may be absent, and are cut at 256 characters. */
SBX_FN void sbx_why(sbx_call *c, sbx_text rule, sbx_text at, sbx_text saw) {
	static int32_t entries;
	if (entries++ == 16) entries = 16;
	if (entries > 16) return;
	sbx_builder b = sbx_object();
	sbx_put_text(&b, "rule", sbx_first(rule, 256));
	sbx_put_text(&b, "at", sbx_first(at, 256));
	sbx_put_text(&b, "saw", sbx_first(saw, 256));
	if (!c->why.close) c->why = sbx_list();
	sbx_add(&c->why, sbx_done(&b));
}

SBX_FN int32_t sbx__guard(sbx_verdict (*judge)(sbx_call *), sbx_text (*check)(sbx_json)) {
	sbx_call c = sbx__begin();
	if (check && sbx_is(sbx_str(sbx_in(&c, "/kind")), "settings")) {
		sbx_text wrong = check(sbx_in(&c, "/settings"));
		return sbx__output(sbx__answer(wrong.p ? "error" : 0, sbx_quote(wrong.p && wrong.n ? wrong : SBX("not accepted"))).document);
	}
	sbx__kind(&c, "guard");
	sbx_verdict v = judge(&c);
	if (!v.ruling) __builtin_trap();
	sbx_text ruling = sbx_from(v.ruling);
	sbx_builder b = sbx_object();
	if (v.code) sbx_put(&b, "code", sbx_quote(sbx_from(v.code)));
	sbx_put(&b, "document", v.document);
	sbx_put(&b, "document_sha256", sbx_in(&c, "/document_sha256"));
	sbx_put(&b, "grants", v.grants);
	if (v.hold) sbx_put(&b, "hold", sbx_whole(v.hold));
	sbx_put(&b, "nonce", sbx_in(&c, "/nonce"));
	sbx_put_text(&b, sbx_is(ruling, "confirm") ? "hint" : "reason", sbx_first(v.text, 256));
	sbx_put(&b, "verdict", sbx_quote(ruling));
	if (c.why.close) sbx_put(&b, "why", sbx_done(&c.why));
	return sbx__output(sbx_done(&b));
}

/* ---- Host calls ---- */

/* What a host call gave. One that was refused is a value: it had no effect, and the guest goes on. */
typedef struct {
	bool ok;
	sbx_text data;  /* of one that is ok */
	sbx_text code;  /* of one that is not, such as capability_denied */
	sbx_text error; /* "FUNCTION: CODE: MESSAGE" */
} sbx_reply;

SBX_FN sbx_reply sbx__reply(const char *function, int64_t code) {
	sbx_text data = sbx__read_all((uint32_t)code, sbx__reply_read);
	if (code >= 0) return (sbx_reply){.ok = true, .data = data};
	sbx_json e = sbx_parse(data);
	sbx_text why = sbx_str(sbx_at(e, "/code"));
	return (sbx_reply){.code = why, .error = sbx_format("{}: {}: {}", sbx_from(function), why, sbx_str(sbx_at(e, "/message")))};
}

#define SBX__HOST(name) SBX_IMPORT("sandboxd:host", #name) int64_t sbx__host_##name(const void *p, uint32_t n)
SBX__HOST(log);
SBX__HOST(state_get);
SBX__HOST(state_set);
SBX__HOST(artifact_list);
SBX__HOST(artifact_read);
SBX__HOST(kv_get);
SBX__HOST(kv_set);
SBX__HOST(kv_delete);
SBX__HOST(kv_add);
SBX__HOST(memory_search);
SBX__HOST(emit);
SBX__HOST(confirm);
SBX__HOST(transfer);
SBX__HOST(escalate);
SBX__HOST(skip_summary);
SBX_IMPORT("sandboxd:host", "http") int64_t sbx__host_http(const void *p, uint32_t n, const void *body, uint32_t size);
SBX_IMPORT("sandboxd:host", "artifact_save") int64_t sbx__host_artifact_save(const void *p, uint32_t n, const void *body, uint32_t size);
SBX_IMPORT("wasi_snapshot_preview1", "random_get") int32_t sbx__random_get(void *p, uint32_t n);
SBX_IMPORT("wasi_snapshot_preview1", "clock_time_get") int32_t sbx__clock_time_get(int32_t clock, int64_t precision, int64_t *ns);

/* Makes a host call with a request, which is an object: sbx_ask(state_get, request). */
#define sbx_ask(function, request) sbx__ask(#function, sbx__host_##function, request)
SBX_FN sbx_reply sbx__ask(const char *name, int64_t (*host)(const void *, uint32_t), sbx_json request) {
	return sbx__reply(name, host(request.p, request.n));
}

/* Writes a line to the operator's log; level is debug, info, warn or error. One that the host refuses is lost. */
SBX_FN void sbx_log(const char *level, sbx_text message) {
	sbx_builder b = sbx_object();
	sbx_put(&b, "level", sbx_quote(sbx_from(level)));
	sbx_put(&b, "message", sbx_quote(message));
	(void)sbx_ask(log, sbx_done(&b));
}

/* A request. Everything but the url may be left out. */
typedef struct {
	const char *method; /* default GET */
	sbx_text url;
	sbx_json headers;   /* an object of texts */
	sbx_json secrets;   /* a list of {"secret": NAME, "header": NAME, "prefix": TEXT}; the guest never sees one */
	sbx_text body;
} sbx_request;

/* The answer to a request, or why there is none: then the status is 0. Any other status is an answer. */
typedef struct {
	int32_t status;
	sbx_json headers; /* names in lower case */
	sbx_text body;
	sbx_text code, error;
} sbx_http;

SBX_FN sbx_http sbx_send(sbx_request r) {
	sbx_builder b = sbx_object();
	if (r.method) sbx_put(&b, "method", sbx_quote(sbx_from(r.method)));
	sbx_put(&b, "url", sbx_quote(r.url));
	sbx_put(&b, "headers", r.headers);
	sbx_put(&b, "secrets", r.secrets);
	sbx_json head = sbx_done(&b);
	sbx_reply reply = sbx__reply("http", sbx__host_http(head.p, head.n, r.body.p, r.body.n));
	if (!reply.ok) return (sbx_http){.code = reply.code, .error = reply.error};
	const unsigned char *p = (const unsigned char *)reply.data.p;
	uint32_t n = reply.data.n < 4 ? 0xffffffff : p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	if (n > reply.data.n - 4) __builtin_trap();
	sbx_json answer = sbx_parse((sbx_text){reply.data.p + 4, n});
	int64_t status = 0;
	if (!sbx_int(sbx_at(answer, "/status"), &status)) __builtin_trap();
	return (sbx_http){.status = (int32_t)status, .headers = sbx_at(answer, "/headers"), .body = {reply.data.p + 4 + n, reply.data.n - 4 - n}};
}

/* Gets a url: the format with each {} replaced by the next sbx_text, percent-encoded. */
SBX_FN sbx_http sbx_get(const char *format, ...) {
	sbx_buffer b = {0};
	va_list args;
	va_start(args, format);
	sbx__format(&b, format, args, true);
	va_end(args);
	return sbx_send((sbx_request){.url = sbx_written(&b)});
}

/* A value that was read: of a state, or of kv. */
typedef struct {
	bool found;
	sbx_json value;
	sbx_text code, error; /* of a read that was refused */
} sbx_value;

SBX_FN sbx_value sbx__value(sbx_reply r) {
	sbx_json v = sbx_parse(r.data);
	return (sbx_value){.found = sbx_true(sbx_at(v, "/found")), .value = sbx_at(v, "/value"), .code = r.code, .error = r.error};
}

SBX_FN sbx_json sbx__key(sbx_text key) {
	sbx_builder b = sbx_object();
	sbx_put(&b, "key", sbx_quote(key));
	return sbx_done(&b);
}

/* Reads a state value. Keys have their scope: session:, user:, app: or temp:. */
SBX_FN sbx_value sbx_state_get(sbx_text key) { return sbx__value(sbx_ask(state_get, sbx__key(key))); }

/* Writes a state value. It counts unless the call is denied. */
SBX_FN sbx_reply sbx_state_set(sbx_text key, sbx_json value) {
	sbx_builder values = sbx_object(), b = sbx_object();
	sbx_put_named(&values, key, value);
	sbx_put(&b, "values", sbx_done(&values));
	return sbx_ask(state_set, sbx_done(&b));
}

/* The names of artifacts that are granted: {"names": [...]}. */
SBX_FN sbx_reply sbx_artifact_list(void) { return sbx_ask(artifact_list, ((sbx_json){"{}", 2})); }

/* Reads at most 64 KiB of an artifact, from an offset on; no bytes at its end. Version 0 is the newest. */
SBX_FN sbx_reply sbx_artifact_read(sbx_text name, int64_t version, int64_t offset) {
	sbx_builder b = sbx_object();
	sbx_put(&b, "name", sbx_quote(name));
	sbx_put(&b, "offset", sbx_whole(offset));
	if (version) sbx_put(&b, "version", sbx_whole(version));
	return sbx_ask(artifact_read, sbx_done(&b));
}

/* Saves an artifact: {"version": N}. type is its media type. */
SBX_FN sbx_reply sbx_artifact_save(sbx_text name, const char *type, sbx_text body) {
	sbx_builder b = sbx_object();
	sbx_put(&b, "name", sbx_quote(name));
	sbx_put(&b, "type", sbx_quote(sbx_from(type)));
	sbx_json head = sbx_done(&b);
	return sbx__reply("artifact_save", sbx__host_artifact_save(head.p, head.n, body.p, body.n));
}

/* kv keeps small values and counters between calls. ttl_ms is how long one lives, 0 until it is deleted. A guard
 * that cannot read or count should deny. */
SBX_FN sbx_value sbx_kv_get(sbx_text key) { return sbx__value(sbx_ask(kv_get, sbx__key(key))); }
SBX_FN sbx_reply sbx_kv_delete(sbx_text key) { return sbx_ask(kv_delete, sbx__key(key)); }
SBX_FN sbx_reply sbx_kv_set(sbx_text key, sbx_json value, int64_t ttl_ms) {
	sbx_builder b = sbx_object();
	sbx_put(&b, "key", sbx_quote(key));
	if (ttl_ms) sbx_put(&b, "ttl_ms", sbx_whole(ttl_ms));
	sbx_put(&b, "value", value);
	return sbx_ask(kv_set, sbx_done(&b));
}

/* A counter after an addition. */
typedef struct { bool added; int64_t count; sbx_text code, error; } sbx_count;

/* Adds n to a counter in one step, unless the sum would exceed most. */
SBX_FN sbx_count sbx_kv_add(sbx_text key, int64_t n, int64_t most, int64_t ttl_ms) {
	sbx_builder b = sbx_object();
	sbx_put(&b, "key", sbx_quote(key));
	sbx_put(&b, "most", sbx_whole(most));
	sbx_put(&b, "n", sbx_whole(n));
	if (ttl_ms) sbx_put(&b, "ttl_ms", sbx_whole(ttl_ms));
	sbx_reply r = sbx_ask(kv_add, sbx_done(&b));
	sbx_json v = sbx_parse(r.data);
	sbx_count count = {.added = sbx_true(sbx_at(v, "/added")), .code = r.code, .error = r.error};
	if (r.ok && !sbx_int(sbx_at(v, "/count"), &count.count)) __builtin_trap();
	return count;
}

/* What was said in earlier sessions of the user: {"entries": [{"author", "text", "time"}]}. */
SBX_FN sbx_reply sbx_memory_search(sbx_text query) {
	sbx_builder b = sbx_object();
	sbx_put(&b, "query", sbx_quote(query));
	return sbx_ask(memory_search, sbx_done(&b));
}

/* Sends a part of the result, in a streaming tool. One that goes on when it is not ok is stopped. */
SBX_FN sbx_reply sbx_emit(sbx_json chunk) {
	sbx_builder b = sbx_object();
	sbx_put(&b, "chunk", chunk);
	return sbx_ask(emit, sbx_done(&b));
}

/* Asks a person about this call. The tool should return at once; it is called again with sbx_in(c, "/confirmation").
 * payload is shown beside the hint; it may be absent. */
SBX_FN sbx_reply sbx_ask_person(sbx_text hint, sbx_json payload) {
	sbx_builder b = sbx_object();
	sbx_put(&b, "hint", sbx_quote(hint));
	sbx_put(&b, "payload", payload);
	return sbx_ask(confirm, sbx_done(&b));
}

/* Hands the conversation to another agent after this step. */
SBX_FN sbx_reply sbx_transfer(sbx_text agent) {
	sbx_builder b = sbx_object();
	sbx_put(&b, "agent", sbx_quote(agent));
	return sbx_ask(transfer, sbx_done(&b));
}

/* Ends the work of this agent and returns to the one above it. */
SBX_FN sbx_reply sbx_escalate(void) { return sbx_ask(escalate, ((sbx_json){"{}", 2})); }

/* Makes the result of this call the answer, without another turn of the model. */
SBX_FN sbx_reply sbx_skip_summary(void) { return sbx_ask(skip_summary, ((sbx_json){"{}", 2})); }

/* Fills n bytes with randomness from the host. */
SBX_FN void sbx_random(void *p, uint32_t n) {
	if (sbx__random_get(p, n) != 0) __builtin_trap();
}

/* Nanoseconds since 1970. Time stands at the start of the call unless it was granted the clock. */
SBX_FN int64_t sbx_clock(void) {
	int64_t ns = 0;
	if (sbx__clock_time_get(0, 1, &ns) != 0) __builtin_trap();
	return ns;
}

#endif
