// Package wasmbin reads the binary format of WebAssembly modules within a fixed
// budget, before an engine sees a byte of them. It knows the sections and what
// they declare, and steps through instructions without judging their types.
//
// [Decode] compares every count and every length that a module declares with
// the bytes that are left and with a cap, so its work and its memory are bounded
// by the bytes it was given. [Module.CheckCode] does the same with what an engine's
// compiler would make of the code. [Module.Bodies] and [Instructions] read the functions
// of a module that it accepted. [SetCustom] writes a custom section and leaves
// every other byte as it was.
//
// The format is that of the WebAssembly Core Specification 2.0, section 5
// (https://www.w3.org/TR/wasm-core-2/#binary-format), without proposals.
package wasmbin
