// Package policies shows what judges to the flow: a guest, or Go code, as a
// [flow.Guard]. A guard sees one question and gives one verdict; whatever else
// it does denies.
package policies
