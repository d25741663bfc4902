// Package rego computes, for policies that OPA compiled to WebAssembly, the
// functions of Rego that OPA leaves to its host. Only functions of their arguments
// are here, and of the time of the question: nothing that reads a clock, draws at
// random, or reaches outside. Each does work in proportion to its arguments and its
// result, and both are bounded.
package rego
