/* A module that says which lines its code comes from, for the tests of what reads that. */
#define SBX_TWICE(n) ((n) > 7 ? (n) * 2 : (n))
int seen;
__attribute__((noinline)) static int half(int n) {
	if (n % 2 == 0)
		return n / 2;
	return -1;
}
static int third(int n) { return n > 9 ? half(n) / 3 : n + seen; }
__attribute__((export_name("judge"))) int judge(int n) {
	if (n > 2)
		return third(n);
	return
		SBX_TWICE(n + seen);
}
