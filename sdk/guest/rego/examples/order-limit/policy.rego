# A guard over orders: high prices need a person, and higher ones are refused. The
# examples of the other languages do the same, and more than this rule offers: they
# check their settings, narrow grants and rewrite results.
package guard

decimal := `^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,6})?$`

# The price of each line that has one: a number, or text that reads like one.
prices[i] := price if {
	price := input.call.args.lines[i].price
	is_number(price)
}

prices[i] := to_number(text) if {
	text := input.call.args.lines[i].price
	is_string(text)
	regex.match(decimal, text)
}

order if {
	input.phase == "call"
	input.call.tool == "price_order"
}

deny contains {"code": "bad_order", "reason": "an order has lines"} if {
	order
	not is_array(object.get(input.call.args, "lines", null))
}

deny contains {"code": "bad_price", "reason": "a price is not a decimal from 0 on", "why": [{"at": sprintf("/lines/%d/price", [i])}]} if {
	order
	some i, _ in input.call.args.lines
	not good(i)
}

good(i) if prices[i] >= 0

deny contains {
	"code": "over_limit", "reason": substring(sprintf("prices of %s and more are not accepted", [input.settings.deny_from]), 0, 256),
	"why": [{"rule": "deny_from", "at": sprintf("/lines/%d/price", [i])}],
} if {
	order
	some i, price in prices
	price >= to_number(input.settings.deny_from)
}

asked contains price if {
	order
	some price in prices
	price >= to_number(input.settings.ask_from)
}

confirm contains sprintf("Order at %v?", [max(asked)]) if count(asked) > 0

allow if order

allow if not order
