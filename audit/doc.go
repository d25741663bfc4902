// Package audit keeps the decision record: who asked for what, what was decided,
// and by which rule, as lines of JSON that are chained by hashes. A record never
// holds arguments, results or secrets; arguments appear as a digest.
//
// # Lines
//
// A log is a file of lines that end in "\n". A line is one [Record] as
// [encoding/json] writes it: members in the order of the struct, no blanks, empty
// ones left out. Its last two members chain it:
//
//   - prev is the lower-case hexadecimal SHA-256 of the line before, without its
//     "\n"; for the first record it is [Genesis].
//   - hash is the same of this very line with the hash member left out.
//
// seq counts from 1 without gaps and is the order of the log; times may jump.
// The head of a log is the digest of its last line, so that of an ordinary file
// is also what `tail -n1 FILE | tr -d '\n' | sha256sum` prints.
//
// # What the chain shows
//
// [Verify] finds a line that was changed, removed, added or moved. The hashes have
// no key: someone who may write the file can cut lines off its end, or write all
// lines anew. Both show when the head is compared with one that was kept
// elsewhere ([Summary.Head]).
package audit
