# Small payments pass, larger ones ask a person, the largest are refused.
package guard

# A rule that fails is silence, and a denial that cannot say its reason is none. So
# insist on the form, and say what is allowed, never what is left over. Limits are
# whole numbers, so comparing an amount with them is exact.
amount := to_number(text) if {
	text := input.call.args.amount
	regex.match(`^(0|[1-9][0-9]{0,8})\.[0-9]{2}$`, text)
	to_number(text) > 0
}

payable if {
	input.call.tool == "pay_invoice"
	input.call.args.currency in input.settings.currencies
	regex.match(`^INV-[0-9]{1,6}$`, input.call.args.invoice)
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
