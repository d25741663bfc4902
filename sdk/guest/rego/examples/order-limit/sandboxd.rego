# The rule that sandboxd asks, guard/verdict, of the rules that you write in this
# package. Copied by sandboxd policy new; leave it as it is.
#
#   deny contains "too much" if ...                            refuses, for this reason
#   deny contains {"code": "too_much", "reason": "..."} if ... with a code as well
#   confirm contains "Pay 12.00 EUR?" if ...                   asks a person
#   allow if ...                                               lets the call pass
#
# One deny is enough, a question comes before allow, and silence is a denial.
package guard

default answer := {"verdict": "deny", "code": "no_rule", "reason": "no rule allowed this call"}

answer := denial if {
	count(deny) > 0
} else := {"verdict": "confirm", "hint": hint} if {
	count(confirm) > 0
} else := {"verdict": "allow"} if {
	allow == true
}

# Each has a value whatever the rules say: without one, the next branch above would
# be taken.
default denial := {"verdict": "deny"}

denial := object.union(first_denial, {"verdict": "deny"}) if {
	is_object(first_denial)
} else := {"verdict": "deny", "reason": substring(first_denial, 0, 256)} if {
	is_string(first_denial)
}

first_denial := sort(deny)[0]

default hint := "This call needs an approval."

hint := substring(concat(" ", sort(confirm)), 0, 256)

verdict := object.union(answer, {"nonce": input.nonce, "document_sha256": input.document_sha256})

# A policy need not have every kind of rule.
deny contains {} if false

confirm contains "" if false

allow if false
