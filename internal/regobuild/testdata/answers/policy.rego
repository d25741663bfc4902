# The arguments say which rules hold.
package guard

deny contains d if some d in input.call.args.deny

confirm contains c if some c in input.call.args.confirm

allow := input.call.args.allow
