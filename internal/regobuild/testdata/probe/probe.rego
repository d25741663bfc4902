# Not a policy: what the tests need of Rego. The question says what is computed.
package guard

verdict := {"value": value}

# One answer for every function that OPA leaves to its host.
value := crypto.hmac.equal(input.args[0], input.args[1]) if input.do == "crypto.hmac.equal"

value := crypto.hmac.sha256(input.args[0], input.args[1]) if input.do == "crypto.hmac.sha256"

value := crypto.sha256(input.args[0]) if input.do == "crypto.sha256"

value := hex.decode(input.args[0]) if input.do == "hex.decode"

value := hex.encode(input.args[0]) if input.do == "hex.encode"

value := net.cidr_is_valid(input.args[0]) if input.do == "net.cidr_is_valid"

value := sprintf(input.args[0], input.args[1]) if input.do == "sprintf"

value := strings.count(input.args[0], input.args[1]) if input.do == "strings.count"

value := time.add_date(input.args[0], input.args[1], input.args[2], input.args[3]) if input.do == "time.add_date"

value := time.clock(input.args[0]) if input.do == "time.clock"

value := time.date(input.args[0]) if input.do == "time.date"

value := time.format(input.args[0]) if input.do == "time.format"

value := time.now_ns() if input.do == "time.now_ns"

value := time.parse_duration_ns(input.args[0]) if input.do == "time.parse_duration_ns"

value := time.parse_ns(input.args[0], input.args[1]) if input.do == "time.parse_ns"

value := time.parse_rfc3339_ns(input.args[0]) if input.do == "time.parse_rfc3339_ns"

value := time.weekday(input.args[0]) if input.do == "time.weekday"

value := urlquery.decode(input.args[0]) if input.do == "urlquery.decode"

value := urlquery.encode(input.args[0]) if input.do == "urlquery.encode"

# Values that JSON does not have, on their way to the host.
value := sprintf("%v %v %v", [{x | some x in input.args}, {x: true | some x in input.args}, set()]) if input.do == "sets"

# What OPA compiles itself.
value := [cidr | some cidr in data.networks; net.cidr_contains(cidr, input.args[0])] if input.do == "data"

value := object.union(input.args[0], {"sum": sum([x | some x in input.args[1]])}) if input.do == "native"

value := glob.match(input.args[0], ["."], input.args[1]) if input.do == "glob"

value := [regex.match(input.args[0], input.args[1]), regex.find_all_string_submatch_n(input.args[0], input.args[1], -1)] if input.do == "regex"

value := json.unmarshal(input.args[0]) if input.do == "json"

value := undefined_when_it_fails if input.do == "not"

default undefined_when_it_fails := "no value"

undefined_when_it_fails := sprintf(input.args[0], input.args[1])

# What ends badly.
value := 1 if input.do == "two values"

value := 2 if input.do == "two values"

value := count([1 | numbers.range(1, 1000)[_]; numbers.range(1, 1000)[_]; numbers.range(1, 1000)[_]]) if input.do == "spin"

value := count(numbers.range(1, 100000000)) if input.do == "hoard"

value := nested(input.args[0]) if input.do == "many calls"

nested(n) := [sprintf("%d", [i]) | some i in numbers.range(1, n)]
