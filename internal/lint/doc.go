// Package lint holds the rules of this repository that a compiler does not
// check: which package may import which, what is documented and how, and that
// the documents are true. Its tests apply every rule to the repository, and show
// with the small trees in testdata that every rule can fail.
package lint
