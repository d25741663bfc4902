// Package sandboxd holds the sources of this module that a copy of the Go SDK is made of:
// what guests are built with, and the fake host of their unit tests with what it shares with
// the real one. Package sdk makes copies.
package sandboxd

import "embed"

// Sources holds them, by their paths in this module, without tests. Of package host
// these are the files that know nothing of the engine, which build on their own. Below
// sdk/_jsonschema is a copy of the module that checks schemas, which a plugin that builds
// without a network cannot fetch.
//
// Every file is named: a pattern would take tests along.
//
//go:embed capability/addr.go capability/ask.go capability/capability.go capability/doc.go capability/host.go capability/name.go
//go:embed capability/parse.go capability/path.go capability/set.go capability/words.go
//go:embed host/access.go host/cassette.go host/doc.go host/egress.go host/hostcalls.go host/keepcalls.go host/kv.go host/limits.go
//go:embed host/logs.go host/native.go host/network.go host/random.go host/receipt.go host/secrets.go host/use.go
//go:embed sdk/_jsonschema/LICENSE sdk/_jsonschema/annotations.go sdk/_jsonschema/doc.go sdk/_jsonschema/infer.go sdk/_jsonschema/json_pointer.go
//go:embed sdk/_jsonschema/resolve.go sdk/_jsonschema/schema.go sdk/_jsonschema/util.go sdk/_jsonschema/validate.go
//go:embed sdk/abi/code.go sdk/abi/doc.go sdk/abi/guard.go sdk/abi/hook.go sdk/abi/hostcall.go sdk/abi/json.go sdk/abi/manifest.go sdk/abi/numbers.go sdk/abi/parse.go sdk/abi/schema.go
//go:embed sdk/guest/go/artifact.go sdk/guest/go/assign.go sdk/guest/go/call.go sdk/guest/go/content.go sdk/guest/go/decimal.go sdk/guest/go/doc.go
//go:embed sdk/guest/go/document.go sdk/guest/go/errors.go sdk/guest/go/guard.go sdk/guest/go/hooks.go sdk/guest/go/http.go sdk/guest/go/kv.go
//go:embed sdk/guest/go/members.go sdk/guest/go/plugin.go sdk/guest/go/question.go sdk/guest/go/reader.go sdk/guest/go/schema.go sdk/guest/go/tags.go
//go:embed sdk/guest/go/tool.go sdk/guest/go/wall_other.go sdk/guest/go/wall_wasip1.go sdk/guest/go/internal/native/native.go
//go:embed sdk/guest/go/guesttest/access.go sdk/guest/go/guesttest/doc.go sdk/guest/go/guesttest/guard.go sdk/guest/go/guesttest/hook.go
//go:embed sdk/guest/go/guesttest/host.go sdk/guest/go/guesttest/schema.go sdk/guest/go/guesttest/tool.go
var Sources embed.FS
