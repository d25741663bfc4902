// Package capability says what may be granted to a guest and does the
// arithmetic of grants. A capability is one line of text. What a module asks
// for (its request), the most that a tenant or an app may give (a ceiling), what
// an operator gives (a binding) and what a guard leaves (a narrowing) are all a
// [Set] of such lines, and [Effective] intersects them: nothing in this package
// can make a grant wider. The zero Set grants nothing.
//
// # Lines
//
//	http METHODS [private] [SCHEME://]HOST[:PORT][/PATH]
//	state read,write SCOPE:KEY           SCOPE is session, user, app or temp
//	artifact read,write [user:]NAME
//	secret use NAME at HOST
//	memory search
//	kv read,write
//	clock  random  log  emit  confirm  transfer  escalate  skip-summary
//
// Fields are separated by blanks, verbs by commas. Where two verbs stand, one is
// enough. METHODS are of GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS; none
// includes another.
//
// # Hosts
//
// Hosts are ASCII (a name in another script is written in its xn-- form) and
// compare by whole labels without regard to case; one dot at the end is dropped.
// "*" is exactly one label; "**" is one or more and stands only in front.
// The last two labels of a pattern are never wildcards, so "*.com" is refused;
// "**" alone is every name. Public suffixes are not known here: "*.co.uk" parses.
//
// A wildcard never covers an IP address: an address is granted by writing it, in
// canonical form, IPv6 in brackets. Other spellings of addresses (2130706433,
// 0x7f.1, 127.1, 0177.0.0.1, an IPv4 address inside an IPv6 one) are hosts that
// nothing grants: a name whose last label is a number is no host at all.
//
// Private addresses (see [PrivateAddr]), localhost and names below it are only
// granted by a line that says "private". Metadata services (see [MetadataAddr],
// [MetadataHost]) cannot be granted, and no wildcard covers them. What a name
// resolves to is for the caller to check, with [Set.HTTPPrivate], [PrivateAddr]
// and [MetadataAddr], for every address it would connect to.
//
// # Scheme, port, path
//
// The scheme is https unless http is written. The port is the scheme's own unless
// one is written. A line without a path covers every path. In a path, "*" stands
// for a whole segment: for exactly one that is not empty, or at the end for all
// that lies below, so "/v1/*" covers "/v1/" and "/v1/a/b" but not "/v1". Patterns
// and requests are compared segment by segment after percent-decoding; a literal
// star is written %2A. A request path that servers may understand in more
// than one way is covered by no pattern: dot segments (also encoded, or followed
// by parameters as in "..;"), empty segments except the last, encoded slashes,
// backslashes, control characters, bytes that are not UTF-8, and escapes that
// decode to another escape. The query is not compared.
//
// # Keys and names
//
// In a state key, an artifact name and a secret name, one "*" covers any run of
// characters, also none, slashes included. There is at most one in a pattern:
// this keeps every intersection exact and short enough to read. A key or name
// that holds a "*" itself is never granted.
//
// "session:" names state keys that are stored without a prefix; such a key holds
// no colon, else "session:app:x" would reach another scope. Artifacts whose
// name begins with "user:" belong to the user rather than to the session, and
// only a pattern that begins so covers them; other names hold no colon. Artifact
// names are relative paths without empty, "." or ".." segments. Keys of the
// framework itself (adk_, _adk, _sbx_, sandboxd_, _sandboxd) are never granted.
// Keys and names are at most [MaxName] bytes of printable text that neither
// begins nor ends with a space.
//
// All values are immutable and safe for concurrent use.
package capability
