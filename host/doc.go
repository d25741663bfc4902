// Package host runs guests: WebAssembly modules of people nobody trusts. It
// checks a module before the engine sees a byte of it, reads its manifest,
// compiles it, and answers calls, each in an instance of its own that begins in the
// same state, with its own grants, limits and deadline. It knows nothing of models or agents.
//
// # The way of a call
//
// [Open] makes an [Engine]; [Engine.Load] checks a module, has package meter count
// its work, and compiles it;
// [Module.Call] is the only way to run code of a guest. Whatever a guest does,
// Call returns in bounded time with a [Reply] or a [*GuestError], and either
// carries a [Receipt].
//
// # Instances
//
// A call begins with the memory, globals and tables that the start function, _initialize and
// warm_up left, which ran once, before there was a call. The engine keeps that as an
// image and sets instances back to it: on Linux with /proc/self/pagemap, for code that
// changes no table and drops no segment. All other code begins anew for every call. Both are
// the same to the guest, but for randomness that it drew before the call. An
// image holds nothing of any caller's.
//
// # Compiling
//
// What the check lets through may still take the compiler minutes and gigabytes,
// so a child process compiles, with limits of its own. The child is the program
// that opens the engine: its main function begins with [Main]. Where there is no
// jail (package jail says where there is), modules are compiled in this process,
// with a warning in the log and without limits.
//
// # What a guest can reach
//
// Three modules can be imported: Extism's "extism:host/env", so plugins of any
// Extism PDK run unchanged, "sandboxd:host" (package sdk/abi lists it), and a
// subset of WASI preview 1 without files, sockets, arguments or environment.
// Everything with an effect outside the guest looks at the grants of this very
// call and at the [Access] it was given: a grant alone does nothing without the
// access, and neither does the reverse. A refused host call is a value to the
// guest, a line in [Receipt.Denied] to the operator, and has no effect.
//
// A guard, and the check of its settings, may log and nothing else, whatever it
// was granted. Its wall clock is [Call.Now], its monotonic clock counts its
// own work, and its randomness comes from [Call.Seed], so that a judgement can be
// repeated.
//
// Until the export runs, that is in the start function, _initialize and warm_up, no
// grant is effective, input and configuration are empty, wall time is 0, and
// nothing that these set outlives them on the host's side: blocks, variables, output
// and error begin empty.
package host
