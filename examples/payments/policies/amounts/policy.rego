# Small payments pass, larger ones ask a person, the largest are refused.
package guard

# A rule that fails is silence, and a denial that cannot say its reason is none. So
# insist on the form, and say what is allowed, never what is left over. Limits are
# whole numbers, so comparing an amount with them is exact. Patterns would be shorter
# than this, but Rego compiles them for every judgement.
amount := to_number(input.call.args.amount) if {
	[units, cents] := split(input.call.args.amount, ".")
	digits(units)
	count(units) < 10
	not padded(units)
	digits(cents)
	count(cents) == 2
	to_number(input.call.args.amount) > 0
}

digits(text) if {
	text != ""
	trim(text, "0123456789") == ""
}

padded(text) if {
	startswith(text, "0")
	text != "0"
}

payable if {
	input.call.tool == "pay_invoice"
	input.call.args.currency in input.settings.currencies
	startswith(input.call.args.invoice, "INV-")
	digits(substring(input.call.args.invoice, 4, -1))
	count(input.call.args.invoice) < 11
	amount
}

deny contains {"code": "not_payable", "reason": reason} if {
	input.call.tool == "pay_invoice"
	not payable
	reason := sprintf("want an invoice such as INV-7, an amount such as 12.50, and a currency of %v", [input.settings.currencies])
}

deny contains {"code": "over_limit", "reason": sprintf("payments end at %d.00", [input.settings.deny_from])} if {
	payable
	amount >= input.settings.deny_from
}

confirm contains sprintf("Pay %s %s for %s?", [input.call.args.amount, input.call.args.currency, input.call.args.invoice]) if {
	payable
	amount >= input.settings.ask_from
}

allow if {
	payable
	amount < input.settings.ask_from
}

allow if input.call.tool in input.settings.free_tools
