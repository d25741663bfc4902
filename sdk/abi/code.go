package abi

// A Code names an outcome. The same code stands in receipts, in the audit record
// and in the events a client sees.
type Code string

// The codes. A code is never reused for another meaning.
const (
	OK Code = "ok"

	// A module that cannot be used.
	ModuleMalformed    Code = "module_malformed"     // not a core module, or broken
	ModuleLimit        Code = "module_limit"         // past a structural limit
	ModuleImportDenied Code = "module_import_denied" // imports what its kind may not have
	ModuleABI          Code = "module_abi"           // does not keep this contract
	// ModuleCompileTimeout: compiling took more time or memory than it may.
	ModuleCompileTimeout Code = "module_compile_timeout"
	DigestMismatch       Code = "digest_mismatch"
	VersionConflict      Code = "version_conflict"

	// A guest call that ended without a usable answer.
	GuestError          Code = "guest_error" // the guest reported failure
	GuestTimeout        Code = "guest_timeout"
	GuestMemory         Code = "guest_memory"
	GuestFuel           Code = "guest_fuel"
	GuestStack          Code = "guest_stack"
	GuestTrap           Code = "guest_trap" // trapped or exited, whatever its exit code
	GuestOutputInvalid  Code = "guest_output_invalid"
	GuestOutputTooLarge Code = "guest_output_too_large"
	HostcallLimit       Code = "hostcall_limit"

	// A host call that had no effect.
	CapabilityDenied Code = "capability_denied"
	EgressDenied     Code = "egress_denied"
	EgressLimit      Code = "egress_limit"
	QuotaExceeded    Code = "quota_exceeded" // more kept for one call than its limit
	NoRecordedAnswer Code = "no_recorded_answer"
	NotFound         Code = "not_found"

	// A tool call that was refused or is waiting.
	ArgsInvalid          Code = "args_invalid"
	PolicyDenied         Code = "policy_denied"      // a guard said no
	PolicyUnavailable    Code = "policy_unavailable" // a guard gave no usable verdict
	ConfirmationPending  Code = "confirmation_pending"
	ConfirmationRejected Code = "confirmation_rejected"
	ConfirmationNotFound Code = "confirmation_not_found"
	ConfirmationExpired  Code = "confirmation_expired"
	ConfirmationDecided  Code = "confirmation_decided"
	ConfirmationMismatch Code = "confirmation_mismatch"
	Forbidden            Code = "forbidden" // somebody may not do what they ask for
	BudgetExhausted      Code = "budget_exhausted"
	OutcomeUnknown       Code = "outcome_unknown"
	StorageUnavailable   Code = "storage_unavailable" // the host could not write or read what it had to: its own failure
	ToolError            Code = "tool_error"          // a native tool failed, or the model named a tool that does not exist
	ConfigInvalid        Code = "config_invalid"
	CapabilityInvalid    Code = "capability_invalid"
	Usage                Code = "usage"
	Cancelled            Code = "cancelled"
	Unauthenticated      Code = "unauthenticated"
	ModelError           Code = "model_error"
)

// Sentence returns what a model may read about the code: one short sentence
// without names, numbers or paths. It is empty for [OK] and for codes that
// never reach a model.
func (c Code) Sentence() string { return sentences[c] }

var sentences = map[Code]string{
	GuestTimeout:         "the tool did not finish in time",
	GuestMemory:          "the tool needed more memory than it may have",
	GuestFuel:            "the tool did more work than it may",
	GuestStack:           "the tool recursed too deeply",
	GuestTrap:            "the tool stopped unexpectedly",
	GuestOutputInvalid:   "the tool gave an answer that cannot be used",
	GuestOutputTooLarge:  "the tool gave an answer that is too long",
	HostcallLimit:        "the tool called its host too often",
	CapabilityDenied:     "the tool may not do that",
	EgressDenied:         "the tool may not reach that address",
	EgressLimit:          "the answer from the network was too large or too slow",
	QuotaExceeded:        "the tool stored more than one call may",
	NoRecordedAnswer:     "there is no recorded answer for that request",
	ArgsInvalid:          "the arguments are not valid",
	PolicyDenied:         "a policy refused this call",
	PolicyUnavailable:    "a policy could not decide, so the call was refused",
	ConfirmationPending:  "the call waits for a person",
	ConfirmationRejected: "a person rejected the call",
	BudgetExhausted:      "the run used up its budget",
	OutcomeUnknown:       "the call was interrupted and may or may not have had its effect",
	StorageUnavailable:   "the host could not record or read what the call needs, so it was not made",
	Cancelled:            "the call was cancelled",
	ModuleABI:            "the tool is not usable",
}
