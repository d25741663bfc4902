// A guest of Extism's ABI on an ordinary C library, for benchmarks: "weather" answers
// {"city":NAME,...} and "echo" its input. Built by build beside it.
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef unsigned char u8;

#define IMPORT(name) __attribute__((import_module("extism:host/env"), import_name(#name))) extern

IMPORT(input_length) u64 input_length(void);
IMPORT(input_load_u8) u8 input_load_u8(u64 at);
IMPORT(input_load_u64) u64 input_load_u64(u64 at);
IMPORT(alloc) u64 block_alloc(u64 size);
IMPORT(store_u8) void store_u8(u64 at, u8 value);
IMPORT(store_u64) void store_u64(u64 at, u64 value);
IMPORT(output_set) void output_set(u64 at, u64 size);

#define EXPORT(name) __attribute__((export_name(#name))) int name(void)

// read_input returns the input, with a zero behind it.
static u8 *read_input(u64 *size) {
	u64 n = *size = input_length(), i = 0;
	u8 *in = malloc(n + 8);
	for (; i + 8 <= n; i += 8)
		*(u64 *)(in + i) = input_load_u64(i);
	for (; i < n; i++)
		in[i] = input_load_u8(i);
	in[n] = 0;
	return in;
}

static void write_output(const u8 *from, u64 size) {
	u64 at = block_alloc(size), i = 0;
	for (; i + 8 <= size; i += 8)
		store_u64(at + i, *(const u64 *)(from + i));
	for (; i < size; i++)
		store_u8(at + i, from[i]);
	output_set(at, size);
}

EXPORT(echo) {
	u64 size;
	u8 *in = read_input(&size);
	write_output(in, size);
	free(in);
	return 0;
}

// put appends a text and returns where it ends.
static char *put(char *at, const char *text) {
	size_t n = strlen(text);
	memcpy(at, text, n);
	return at + n;
}

EXPORT(weather) {
	u64 size;
	char *in = (char *)read_input(&size);
	char *city = strstr(in, "\"city\":\"");
	if (!city)
		return 1;
	city += strlen("\"city\":\"");
	char *end = strchr(city, '"');
	if (!end)
		return 1;
	*end = 0;
	char *out = malloc(size + 100), *at = out;
	at = put(at, "{\"city\":\"");
	at = put(at, city);
	at = put(at, "\",\"temperature_c\":21.5,\"condition\":\"sunny\"}");
	write_output((u8 *)out, at - out);
	free(out);
	free(in);
	return 0;
}
