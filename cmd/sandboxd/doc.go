// Command sandboxd builds, looks into and runs guests, and reads what they left
// behind.
//
// Every command writes what was asked for to standard output and everything else
// to standard error. It exits with 0 if that was done, 1 if it was not (refused,
// failed, or waiting for a person) and 2 if it was misused: an unknown flag, an
// unreadable or invalid file.
package main
