// A guest of Extism's ABI without any runtime, for benchmarks: "weather" answers
// {"city":NAME} and "echo" its input. Built by build beside it.
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

static u8 buffer[1 << 17];

static u64 read_input(void) {
	u64 size = input_length(), i = 0;
	if (size > sizeof buffer)
		__builtin_trap();
	for (; i + 8 <= size; i += 8)
		*(u64 *)(buffer + i) = input_load_u64(i);
	for (; i < size; i++)
		buffer[i] = input_load_u8(i);
	return size;
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
	write_output(buffer, read_input());
	return 0;
}

static u64 append(u8 *to, u64 at, const char *text) {
	while (*text)
		to[at++] = (u8)*text++;
	return at;
}

EXPORT(weather) {
	static const char key[] = "\"city\":\"";
	static u8 answer[512];
	u64 size = read_input(), i = 0, n = 0;
	for (; i + sizeof key - 1 < size; i++) {
		u64 k = 0;
		while (k < sizeof key - 1 && buffer[i + k] == (u8)key[k])
			k++;
		if (k == sizeof key - 1)
			break;
	}
	n = append(answer, n, "{\"city\":\"");
	for (i += sizeof key - 1; i < size && buffer[i] != '"' && n < 400; i++)
		answer[n++] = buffer[i];
	n = append(answer, n, "\",\"temperature_c\":21,\"condition\":\"sunny\"}");
	write_output(answer, n);
	return 0;
}
