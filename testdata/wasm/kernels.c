// Kernels that benchmarks measure the cost of metering with: exports of (i32) -> i32 that compute
// as much as they are told. Built by build beside it.
typedef unsigned u32;
typedef unsigned char u8;

#define EXPORT(name) __attribute__((export_name(#name)))

EXPORT(fib) u32 fib(u32 n) {
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static u8 flags[1 << 20];

EXPORT(sieve) u32 sieve(u32 n) {
	u32 count = 0;
	if (n > sizeof flags)
		n = sizeof flags;
	for (u32 i = 0; i < n; i++)
		flags[i] = 1;
	for (u32 i = 2; i < n; i++) {
		if (!flags[i])
			continue;
		count++;
		for (u32 j = i + i; j < n; j += i)
			flags[j] = 0;
	}
	return count;
}

static const u32 K[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
	0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
	0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
	0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
	0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
	0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#define ROR(x, n) ((x) >> (n) | (x) << (32 - (n)))

EXPORT(sha256) u32 sha256(u32 blocks) {
	u32 h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
	for (u32 b = 0; b < blocks; b++) {
		u32 w[64];
		for (u32 i = 0; i < 16; i++)
			w[i] = b * 16 + i;
		for (u32 i = 16; i < 64; i++) {
			u32 a = w[i - 15], c = w[i - 2];
			w[i] = w[i - 16] + (ROR(a, 7) ^ ROR(a, 18) ^ a >> 3) + w[i - 7] + (ROR(c, 17) ^ ROR(c, 19) ^ c >> 10);
		}
		u32 a = h[0], c1 = h[1], c2 = h[2], d = h[3], e = h[4], f = h[5], g = h[6], last = h[7];
		for (u32 i = 0; i < 64; i++) {
			u32 t1 = last + (ROR(e, 6) ^ ROR(e, 11) ^ ROR(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i];
			u32 t2 = (ROR(a, 2) ^ ROR(a, 13) ^ ROR(a, 22)) + ((a & c1) ^ (a & c2) ^ (c1 & c2));
			last = g, g = f, f = e, e = d + t1;
			d = c2, c2 = c1, c1 = a, a = t1 + t2;
		}
		h[0] += a, h[1] += c1, h[2] += c2, h[3] += d, h[4] += e, h[5] += f, h[6] += g, h[7] += last;
	}
	return h[0];
}

static double A[128 * 128], B[128 * 128], C[128 * 128];

EXPORT(matmul) u32 matmul(u32 n) {
	if (n > 128)
		n = 128;
	for (u32 i = 0; i < n * n; i++) {
		A[i] = i % 7;
		B[i] = i % 5;
	}
	for (u32 i = 0; i < n; i++)
		for (u32 j = 0; j < n; j++) {
			double sum = 0;
			for (u32 k = 0; k < n; k++)
				sum += A[i * n + k] * B[k * n + j];
			C[i * n + j] = sum;
		}
	return (u32)C[n * n - 1];
}

static u8 text[1 << 16];

// scan walks through a JSON-like text and counts its values.
EXPORT(scan) u32 scan(u32 rounds) {
	static const char unit[] = "{\"name\":\"a\\\"b\",\"list\":[1,2.5,-3e4,true,null],\"deep\":{\"x\":{}}},";
	u32 n = sizeof text, count = 0;
	for (u32 i = 0; i < n; i++)
		text[i] = (u8)unit[i % (sizeof unit - 1)];
	for (; rounds > 0; rounds--) {
		u32 depth = 0;
		for (u32 i = 0; i < n; i++) {
			switch (text[i]) {
			case '"':
				for (i++; i < n && text[i] != '"'; i++)
					if (text[i] == '\\')
						i++;
				count++;
				break;
			case '{':
			case '[':
				depth++;
				break;
			case '}':
			case ']':
				depth--;
				break;
			case ',':
			case ':':
				break;
			default:
				while (i + 1 < n && text[i + 1] != ',' && text[i + 1] != ']' && text[i + 1] != '}')
					i++;
				count++;
			}
		}
		count += depth;
	}
	return count;
}
